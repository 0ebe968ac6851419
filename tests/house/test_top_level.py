"""What lies at the top: guides lie beside what they describe, and what a slip of a command left lies nowhere."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = {"LICENSE", "README.md", "examples", "grammar", "pyproject.toml", "shardc", "tests"}


def test_the_top_level_holds_no_more():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    tops = {path.partition("/")[0] for path in tracked.splitlines()}
    assert {top for top in tops if not top.startswith(".")} == HERE
