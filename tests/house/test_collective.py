"""What the guide says of a collective: a class, and the type checker names the rest. Counted in a copy."""

import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytestmark = pytest.mark.exhaustive

ROOT = Path(__file__).parents[2]
COLLECTIVE = '''@dataclass(frozen=True, slots=True)
class RingShift(OnDim):
    """`A[I_X] → A[I_X]` over X: each device's block goes to the next one. L."""

    facts: ClassVar[Facts] = Facts(Kind.PERMUTE, "RingShift", is_named=False)

    def check(self, before: Sharding, _: Mesh) -> None:
        require(before.dims[self.dim] == self.axes, "the axes are not those of the dim")

    def leaves(self, before: Sharding) -> Sharding:
        return before

    def wire_bytes(self, _: Sharding, __: Mesh, local_bytes: int) -> int:
        return local_bytes


Move: TypeAlias = (
    RingShift
    | '''
FORM = '''@dataclass(frozen=True, slots=True)
class Shifted:
    """Blocks in one permute, round a ring."""

    op: RingShift

    def calls(self, mesh: Mesh) -> tuple[Call, ...]:
        return (at_once(self.op),)


OneForm: TypeAlias = Shifted | '''


OF_A_FORM = {
    "lowering/lower": 3,
    "lowering/forms": 2,
    "lowering/legal": 5,
    "lowering/copies": 2,
    "lowering/pairs": 1,
    "lowering/buffers": 1,
    "lowering/spell": 1,
    "emit/steps/calls": 1,
    "proving/forms": 1,
}


@pytest.fixture(scope="module")
def copied(tmp_path_factory):
    """The package, and a cache that is filled by what is checked first."""
    folder = tmp_path_factory.mktemp("copy")
    shutil.copytree(ROOT / "shardc", folder / "shardc", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    return folder


def plant(folder, name, found, put):
    path = folder / "shardc" / name
    text = path.read_text(encoding="utf-8")
    assert text.count(found) == 1
    path.write_text(text.replace(found, put), encoding="utf-8")


def named(folder):
    """How many places the type checker names, by file; each is a `match` that is closed."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--cache-dir", str(folder / "cache"), "-p", "shardc"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    errors = run.stdout.splitlines()
    assert [each for each in errors if '"assert_never" has incompatible type' not in each] == [], run.stderr
    return dict(Counter(re.match(r"shardc/([\w/]+\.py):\d+: error", each)[1] for each in errors))


def test_the_type_checker_names_what_a_collective_lacks(copied):
    """Its form and its meaning; then, of one with a form of its own, all that goes by forms."""
    plant(copied, "ir/collectives.py", "Move: TypeAlias = (\n    ", COLLECTIVE)
    assert named(copied) == {"lowering/lower.py": 1, "simulate/steps.py": 1}
    plant(copied, "lowering/forms.py", "OneForm: TypeAlias = ", FORM)
    plant(
        copied,
        "lowering/forms.py",
        "    Slice,\n    UnevenExchange,\n",
        "    RingShift,\n    Slice,\n    UnevenExchange,\n",
    )
    found = named(copied)
    assert found.pop("simulate/steps.py") == 1
    assert found == {f"{name}.py": count for name, count in OF_A_FORM.items()}
    guide = (ROOT / "shardc" / "README.md").read_text(encoding="utf-8")
    row = next(line for line in guide.splitlines() if line.startswith("| a collective |"))
    assert [name for name in found if Path(name).name not in row] == []
