"""Settings of all tests. In CI hypothesis draws the same examples each time; elsewhere it looks for new ones."""

import os
import sys
from importlib import util
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("default", deadline=None)
settings.register_profile("ci", deadline=None, derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


@pytest.fixture(scope="session")
def field():
    """The benchmark against the field, as a module."""
    spec = util.spec_from_file_location("bench_field", Path(__file__).parent / "benchmark" / "bench_field.py")
    module = sys.modules["bench_field"] = util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
