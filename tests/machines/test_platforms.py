"""Where a program runs. What is no accelerator stands for one here: four of the simulated devices."""

import json

import jax
import pytest

import shardc
from shardc.cli import shardc as command
from shardc.errors import ShardcError
from shardc.machines import platforms
from shardc.machines import run as machine
from shardc.machines.run import run

TEXT = "A[I_X, J] · B[J, K_X] → C[I_X, K]"
SIZES = ("--mesh", "X=4", "--dims", "I=8,J=16,K=8", "--dtype", "f32")


class _Gpu:
    """What JAX says of a device, and what it does not say of a simulated one."""

    device_kind = "Some GPU"


@pytest.fixture
def four_gpus(monkeypatch):
    """JAX is asked for GPUs and gives CPUs, whose name is another."""
    found = jax.devices()[:4]
    monkeypatch.setattr("shardc.machines.run.accelerators", lambda platform: found)
    monkeypatch.setattr(platforms, "accelerators", lambda platform: [_Gpu()])


@pytest.mark.devices
def test_what_ran_on_accelerators_says_on_which(four_gpus):
    report = run(shardc.plan(TEXT, mesh="X=4", dims="I=8,J=16,K=8", dtype="f32").schedule, platform="gpu")
    assert report.ok
    assert "4 shards on 4 Some GPU, equal to NumPy" in str(report)
    assert report.to_json()["on"] == "Some GPU"


@pytest.mark.devices
def test_a_wrong_program_is_found_there_too(four_gpus, monkeypatch):
    monkeypatch.setattr(jax.lax, "all_to_all", lambda value, *args, **named: value * 2)
    monkeypatch.setattr(jax.lax, "all_gather", lambda value, *args, **named: jax.numpy.zeros((16, 8), value.dtype))
    schedule = shardc.plan("A[I_X, J] → A[I, J]", mesh="X=4", dims="I=16,J=8", dtype="f32").schedule
    report = run(schedule, platform="gpu")
    assert not report.ok


@pytest.mark.devices
def test_f32_is_multiplied_in_f32_there(four_gpus, monkeypatch):
    seen = set()
    computed = machine._computed

    def noted(*args):
        seen.add(jax.config.jax_default_matmul_precision)
        return computed(*args)

    monkeypatch.setattr(machine, "_computed", noted)
    schedule = shardc.plan(TEXT, mesh="X=4", dims="I=8,J=16,K=8", dtype="f32").schedule
    run(schedule, platform="gpu")
    assert seen == {"highest"}
    assert jax.config.jax_default_matmul_precision is None


@pytest.mark.devices
def test_too_few_are_told(four_gpus):
    schedule = shardc.plan("A[I_X] → A[I]", mesh="X=8", dims="I=16").schedule
    with pytest.raises(ShardcError, match="needs 8 devices; there are 4") as caught:
        run(schedule, platform="gpu")
    assert caught.value.code == "SHC301"


@pytest.mark.devices
@pytest.mark.parametrize("name", ["run", "compare"])
def test_where_there_are_none_that_is_an_error(name):
    from click.testing import CliRunner

    found = CliRunner().invoke(command, [name, TEXT, *SIZES, "--platform", "gpu", "--json"])
    assert isinstance(found.exception, ShardcError)
    assert found.exception.code == "SHC301"
    assert "JAX finds no GPU" in str(found.exception)


@pytest.mark.devices
def test_compare_is_timed_on_the_platform(monkeypatch):
    asked = []
    monkeypatch.setattr(
        "shardc.machines.run.accelerators", lambda platform: asked.append(platform) or jax.devices()[:4]
    )
    compared = shardc.plan(TEXT, mesh="X=4", dims="I=8,J=16,K=8", dtype="f32").compare(rounds=1, platform="gpu")
    assert asked == ["gpu"]
    assert json.loads(json.dumps(compared.to_json()))["measured"]["rounds"] == 1
