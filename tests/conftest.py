"""Settings of all tests. Hypothesis draws the same examples each time, so that a run means the same everywhere; with
`--hypothesis-profile=explore` it looks for new ones.

Tests marked `exhaustive` go through a whole space, or draw much more than their quick siblings do. They run with
`--exhaustive`, as CI does. Tests marked `devices` use eight simulated devices, started here before any of them touches
JAX; those marked `tpu` need the TPU's compiler, libtpu. The others need neither.

Of one test's many cases a run takes some, spread over all of them, and of a law's examples a part: CI more of them
than `pytest` alone, which of tests that compile for devices takes one in three. Of those marked `instant` it takes
each case, and every example. `--every-case` takes all, and those marked `long`; `--part 1`, `--part 2` and so on take
others than the first, so that a run for each of twelve parts takes every case that is not `long`.
"""

import functools
import gc
import sys
from collections import Counter
from importlib import util
from pathlib import Path

import jax
import pytest
from hypothesis import settings

import shardc

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_num_cpu_devices", 8)

FEW, MANY, VERY_MANY = 4, 8, 24  # of more cases than so many one in so many is taken: below
DRAWN_QUICK, DRAWN_LONG = 1 / 12, 1 / 8  # of a law's examples
DRAWN = 30  # examples of a law that does not say how many; hypothesis draws 100 of its own accord
settings.register_profile("repeated", deadline=None, max_examples=DRAWN, derandomize=True)
settings.register_profile("explore", deadline=None, max_examples=DRAWN)
settings.load_profile("repeated")


def pytest_addoption(parser):
    parser.addoption("--exhaustive", action="store_true", help="also run the tests marked exhaustive")
    parser.addoption("--every-case", action="store_true", help="run every case of every test, and those marked long")
    parser.addoption("--part", type=int, default=0, help="which of each test's cases to begin with: 0 to 11")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--every-case"):
        return
    exhaustive = config.getoption("--exhaustive")
    out = ("long",) if exhaustive else ("long", "exhaustive")
    left = [item for item in items if not any(item.get_closest_marker(name) for name in out)]
    left = left if exhaustive else one_test_in_three(left)
    taken = set(taken_of(left, one_in_long if exhaustive else one_in_quick, config.getoption("--part")))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in taken])
    items[:] = [item for item in items if item.nodeid in taken]
    draw_part(items, DRAWN_LONG if exhaustive else DRAWN_QUICK)


def one_test_in_three(items):
    """Of tests that compile for devices, which take most of the time, two of three are CI's alone."""
    tests = list(dict.fromkeys(test_of(item) for item in items if compiles(item)))
    out = {*tests} - {*tests[::3]}
    return [item for item in items if test_of(item) not in out]


def taken_of(items, one_in, part):
    """Of each test every n-th case, where `one_in` says n, by its marks and how many it has; the first is the one at
    place `part`, gone round."""
    tests = Counter(test_of(item) for item in items)
    seen = Counter()
    for item in items:
        test = test_of(item)
        spread = min(one_in(item, tests[test]), tests[test])  # so that each part has a case
        if seen[test] % spread == part % spread:
            yield item.nodeid
        seen[test] += 1


def test_of(item):
    return item.nodeid.partition("[")[0]


def one_in_quick(item, cases):
    if item.get_closest_marker("instant"):
        return 1
    return 30 if compiles(item) else 16 if cases > VERY_MANY else 10 if cases > MANY else 6


def one_in_long(item, cases):
    if any(item.get_closest_marker(name) for name in ("instant", "page")):
        return 1
    return 12 if compiles(item) else 10 if cases > VERY_MANY else 6 if cases > MANY else 2 if cases > FEW else 1


def compiles(item):
    return any(item.get_closest_marker(name) for name in ("devices", "tpu"))


def draw_part(items, part):
    """Hypothesis lets a test's settings be made once; what it keeps of them is replaced here."""
    drawn = [item for item in items if hasattr(item.obj, "hypothesis") and not item.get_closest_marker("instant")]
    for law in {item.obj for item in drawn}:
        kept = getattr(law, "_hypothesis_internal_use_settings", None)
        if kept is not None and kept.max_examples > FEW:
            law._hypothesis_internal_use_settings = settings(kept, max_examples=max(FEW, int(kept.max_examples * part)))


def pytest_collection_finish(session):
    """What is loaded by now stays: looking through it for what may be freed took a fifth of all the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 100)


def pytest_runtest_setup(item):
    """Eight devices, before a command in this process would start as many as it needs. What is compiled for them is run
    once, on a few numbers: LLVM's optimizations took a third of the time. Processes that a test starts are as a user's,
    and the TPU's compiler does all that it does."""
    on_devices = item.get_closest_marker("devices") is not None
    if on_devices:
        jax.devices()
    jax.config.update("jax_disable_most_optimizations", on_devices and item.get_closest_marker("tpu") is None)


@pytest.fixture(autouse=True)
def no_mesh_is_left_behind():
    yield
    assert jax.sharding.get_abstract_mesh().empty, "a test left a mesh in force"


KEPT = (  # prices and ways that every plan of a process shares
    ("shardc.cost.legs", "_told"),
    ("shardc.cost.model", "_emitted"),
    ("shardc.planner.products.functions", "_function"),
    ("shardc.planner.products.ways", "_every_priced"),
    ("shardc.planner.products.ways", "_every_way"),
    ("shardc.planner.whole.local", "_every_lie"),
)


@pytest.fixture(autouse=True)
def nothing_planted_is_kept(request):
    """What was worked out before a test replaces a rule is not what it goes by, nor what others go by after it."""
    replaces = "monkeypatch" in request.fixturenames
    if replaces:
        forget()
    yield
    if replaces:
        forget()


def forget():
    for module, name in KEPT:
        kept = getattr(sys.modules.get(module), name, None)
        if hasattr(kept, "cache_clear"):  # a test may have put the function itself there
            kept.cache_clear()


@pytest.fixture(scope="session")
def plan_of():
    """The plan of an example as it stands, made once in a process: that of thirty-two layers takes seconds."""
    return functools.cache(lambda path: shardc.plan(path.read_text(encoding="utf-8")))


@pytest.fixture(scope="session")
def field():
    """The benchmark against the field, as a module."""
    return benchmark("bench_field")


@pytest.fixture(scope="session")
def bench():
    """The benchmark of programs with unreduced inputs."""
    return benchmark("bench_unreduced")


@pytest.fixture(scope="session")
def time_bench():
    """The benchmark of replayed time."""
    return benchmark("bench_time")


def benchmark(name):
    spec = util.spec_from_file_location(name, Path(__file__).parent / "benchmark" / f"{name}.py")
    module = sys.modules[name] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
