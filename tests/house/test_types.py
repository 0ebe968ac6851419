"""What an editor and a type checker are told: options' words are those that are read; a misspelt one is found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import metadata, util
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import pytest

import shardc
from shardc.cli import shardc as commands
from shardc.commands.checking import FORMATS
from shardc.cost.chips import PROFILES
from shardc.interface import arguments
from shardc.planner import Idle, Objective

ROOT = Path(__file__).parents[2]
LAYER = "In[B_X, D_Y] · W[D_X, F_Y] → Out[B_X, F_Y]"

FILE = """import jax
import jax.numpy as jnp
import shardc

plan = shardc.plan("A[I, J_X] · B[J_X, K] → C[I, K]", mesh={"X": 4}, dims={"I": 8, "J": 8, "K": 8}, objective="bytes")
print(plan.cost.wire_bytes + plan.bound.wire_bytes, [step.op for step in plan.steps], shardc.__version__)
plan.picture("timeline").save("timeline.svg")
front: shardc.Front = plan.pareto()
lean: shardc.Plan = front[-1]
print(lean.table(top=3), lean.source(), lean.to_json())
program: shardc.Program = shardc.check("A[I_X] → A[I]", mesh={"X": 4}, chip="v5e")
print(shardc.sweep("A[I_X] → A[I]", "I=8..64", mesh={"X": 4}, idle="keep").crossings)
print(shardc.grad(shardc.parse("C[I] = relu(A[I_X])", mesh={"X": 4}), ["A"], whole=True))


def layer(x: jax.Array, w: jax.Array, there: jax.NamedSharding) -> jax.Array:
    y = shardc.einsum("In[B_X, D] · W[D, F_X] → Out[B, F_X]", x, w, objective="time", memory="16GB")
    y = y + shardc.einsum("In[B_X, D] · W[D, F_X] → Out[B, F_X]", x, w, overlap="on")
    print(shardc.einsum.plan("In[B_X, D] · W[D, F_X] → Out[B, F_X]", x, w, chip="v5p"))
    return jnp.tanh(shardc.reshard(y, there, formula="book"))


outputs: jax.Array = plan.compile()(jnp.ones((8, 8)), jnp.ones((8, 8)))
"""
SLIPS = {
    'objective="bytes"': 'objective="byte"',
    'chip="v5e")': 'ship="v5e")',
    'objective="time"': 'objektive="time"',
    'idle="keep"': 'idle="kept"',
    'overlap="on"': 'overlap="yes"',
    'formula="book"': 'formulas="book"',
    'plan.picture("timeline")': 'plan.picture("timelin")',
    "plan.bound.wire_bytes": "plan.bound.wirebytes",
}


def test_the_words_of_options_are_those_that_are_read() -> None:
    assert get_args(arguments.ObjectiveWord) == tuple(word.value for word in Objective)
    assert sorted(get_args(arguments.IdleWord)) == sorted(word.value for word in Idle)
    assert get_args(arguments.ProfileWord) == tuple(PROFILES)
    words = {"objective": arguments.ObjectiveWord, "idle": arguments.IdleWord, "profile": arguments.ProfileWord}
    words["overlap"] = arguments.OverlapWord
    words["formula"] = arguments.FormulaWord
    choices = {option.name: option.type for option in commands.commands["plan"].params}
    for name, word in words.items():
        assert sorted(choices[name].choices) == sorted(get_args(word))  # type: ignore[attr-defined]
    [form] = [option.type for option in commands.commands["check"].params if option.name == "form"]
    assert tuple(form.choices) == FORMATS  # type: ignore[attr-defined]


def test_the_package_says_that_it_has_types_and_which_version_it_is() -> None:
    assert (ROOT / "shardc" / "py.typed").is_file()
    assert shardc.__version__ == metadata.version("shardc")


def slips() -> list[tuple[str, int]]:
    """The file with all slips, and the line of each."""
    text = FILE
    for right, wrong in SLIPS.items():
        assert text.count(right) == 1
        text = text.replace(right, wrong)
    return [(text, 1 + FILE[: FILE.index(right)].count("\n")) for right in SLIPS]


@pytest.mark.exhaustive
@pytest.mark.parametrize("checker", ["mypy", "pyright", "basedpyright"])
def test_a_type_checker_finds_the_slips_and_nothing_else(checker: str, tmp_path: Path) -> None:
    if util.find_spec(checker) is None and shutil.which(checker) is None:
        pytest.skip(f"needs {checker}")
    faulty, lines = slips()[0][0], sorted({line for _, line in slips()})
    for text, wanted in ((FILE, []), (faulty, lines)):
        path = tmp_path / "step.py"
        path.write_text(text, encoding="utf-8")
        assert found_by(checker, path, tmp_path) == wanted


def found_by(checker: str, path: Path, folder: Path) -> list[int]:
    """The lines of the file that are at fault."""
    if checker == "mypy":
        command = ["-m", "mypy", "--strict", "--follow-imports=silent", "--cache-dir", str(ROOT / ".mypy_cache")]
        environment = {"MYPYPATH": str(ROOT), "PATH": ""}
        said = subprocess.run(
            [sys.executable, *command, str(path)], capture_output=True, text=True, cwd=folder, env=environment
        )
        return sorted({int(line) for line in re.findall(r"step\.py:(\d+): error", said.stdout)})
    settings = {"include": [path.name], "extraPaths": [str(ROOT)], "typeCheckingMode": "standard"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings), encoding="utf-8")
    program = [sys.executable, "-m", checker] if util.find_spec(checker) else [checker]  # npm's is a command alone
    command = [*program, "--outputjson", "--pythonpath", sys.executable, "-p", str(folder)]
    said = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    told = json.loads(said.stdout)["generalDiagnostics"]
    return sorted({each["range"]["start"]["line"] + 1 for each in told if each["severity"] == "error"})


@pytest.mark.devices
def test_an_einsum_takes_the_options_of_a_plan_and_shows_it() -> None:
    """Eagerly and while it is traced; by another objective another plan; a limit that none keeps is refused."""
    text = "A[I, J_X] · B[J, K] → C[I, K_X]"
    seen = []
    with jax.set_mesh(jax.make_mesh((4, 2), ("X", "Y"))):
        a, b = jax.device_put(jnp.ones((64, 1024)), jax.P(None, "X")), jnp.ones((1024, 64))

        @jax.jit
        def step(a: jax.Array, b: jax.Array) -> jax.Array:
            seen.append(shardc.einsum.plan(text, a, b, objective="bytes"))
            return shardc.einsum(text, a, b, objective="bytes")

        eager = shardc.einsum.plan(text, a, b, objective="bytes")
        assert (step(a, b) == 1024).all() and [step.op for step in seen[0].steps] == [each.op for each in eager.steps]
        assert eager.cost.wire_bytes <= shardc.einsum.plan(text, a, b).cost.wire_bytes
        shapes = [jax.ShapeDtypeStruct(each.shape, each.dtype) for each in (a, b)]
        assert str(shardc.einsum.plan(text, *shapes, objective="bytes")) == str(eager), (
            "of arrays that there are not yet"
        )
        with pytest.raises(shardc.ShardcError, match="ShapeDtypeStruct"):
            shardc.einsum(text, *shapes)  # type: ignore[arg-type]
        assert eager.dtype == "f32" and eager.dims == {"I": 64, "J": 1024, "K": 64}
        assert shardc.einsum.plan(text, a, b, topology="v5e:2x4").chip == "v5e"
        assert shardc.einsum.plan(text, a, b, chip="v6e").chip == "v6e"
        for call in (shardc.einsum, shardc.einsum.plan):
            with pytest.raises(shardc.ShardcError) as refused:
                call(text, a, b, memory=1000)
            assert refused.value.code == "SHC410"
            with pytest.raises(shardc.ShardcError) as refused:
                call(text, a, b, objective="byte")  # type: ignore[arg-type]
            assert refused.value.code == "SHC001"
