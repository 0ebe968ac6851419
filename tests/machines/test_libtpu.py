"""A libtpu that JAX does not name, and a program that cannot be read: said, with both versions and the remedy."""

import json

import jax
import jax.numpy as jnp
import pytest

import shardc
from shardc import cli
from shardc.machines import libtpu

pytest.importorskip("libtpu")

pytestmark = pytest.mark.tpu

OPTIONS = {"mesh": {"X": 4}, "dims": {"I": 1024, "J": 1024, "K": 1024}, "topology": "v5p:2x2x1", "dtype": "bf16"}
MATMUL = "A[I, J_X] · B[J_X, K] → C[I_X, K]"


def explained():
    mesh = jax.sharding.AbstractMesh((4,), ("X",), axis_types=(jax.sharding.AxisType.Explicit,))
    x = jax.ShapeDtypeStruct((64, 64), jnp.float32, sharding=jax.NamedSharding(mesh, jax.P("X", None)))
    return shardc.explain(jax.jit(lambda x: jax.reshard(x, jax.P(None, None))), x, topology="v5p:2x2x1")


@pytest.mark.parametrize(
    ("version", "wanted", "fits"),
    [
        ("0.0.42.1", "0.0.42.*", True),
        ("0.0.42", "0.0.42.*", True),
        ("0.0.421", "0.0.42.*", False),
        ("0.0.52", "0.0.42.*", False),
        ("0.0.42", "0.0.42", True),
        ("0.0.42.1", "0.0.42", False),
    ],
)
def test_versions_are_compared_by_their_parts(version, wanted, fits):
    assert libtpu.fits(version, wanted) is fits


@pytest.mark.parametrize(
    ("requirement", "wanted"),
    [
        ('libtpu==0.0.42.*; extra == "tpu"', "0.0.42.*"),
        ('libtpu (==0.0.17) ; extra == "tpu"', "0.0.17"),
        ("libtpu-nightly==0.1.dev", None),
        ("numpy>=2", None),
    ],
)
def test_what_jax_names_is_read_off_its_metadata(monkeypatch, requirement, wanted):
    monkeypatch.setattr(libtpu.metadata, "requires", lambda name: ["scipy>=1", requirement])
    assert libtpu.named() == wanted


def test_the_libtpu_that_jax_names_gets_no_note():
    if libtpu.other_libtpu():
        pytest.skip("another one is installed")
    verified = shardc.plan(MATMUL, **OPTIONS).verify()
    assert verified.notes == ()


def test_another_libtpu_gets_a_note_in_each_output(monkeypatch, capsys):
    monkeypatch.setattr(libtpu, "installed", lambda: "0.0.999")
    plan = shardc.plan(MATMUL, **OPTIONS)
    wanted = libtpu.named()
    for text in (str(plan.compare()), str(explained())):
        (line,) = [line for line in text.splitlines() if "0.0.999" in line]
        assert line.startswith("note: ") and wanted in line and jax.__version__ in line
    arguments = ["verify", MATMUL, "--mesh", "X=4", "--dims", "I=1024,J=1024,K=1024", "--topology", "v5p:2x2x1"]
    cli._status(arguments)
    assert "note: compiled by libtpu 0.0.999" in capsys.readouterr().out
    cli._status([*arguments, "--json"])
    assert "0.0.999" in json.loads(capsys.readouterr().out)["verification"]["notes"][0]


@pytest.mark.parametrize("installed", ["0.0.999", libtpu.installed()])
@pytest.mark.parametrize("text", [None, "not HLO at all"])
@pytest.mark.parametrize("reads", [lambda: shardc.plan(MATMUL, **OPTIONS).verify(), explained])
def test_a_program_that_cannot_be_read_is_a_coded_error(monkeypatch, installed, text, reads):
    def as_text(self, **options):
        if text is None:
            raise jax.errors.JaxRuntimeError("INTERNAL: RET_CHECK failure: should have 1 operands but sees 3\nat x.cc")
        return text

    monkeypatch.setattr(jax.stages.Compiled, "as_text", as_text)
    monkeypatch.setattr(libtpu, "installed", lambda: installed)
    with pytest.raises(shardc.ShardcError) as caught:
        reads()
    error = caught.value
    assert (error.code, error.exit_code) == ("SHC312", 5)
    assert installed in error.note and libtpu.named() in error.note and "\n" not in error.message
    assert (f"libtpu=={libtpu.named()}" in error.help) == (not libtpu.fits(installed, libtpu.named()))
