"""An older JAX is refused by its number, and no newer one is."""

import pytest

from shardc.emit import supported
from shardc.errors import ShardcError


@pytest.mark.instant
@pytest.mark.parametrize("version", ["0.10.0", "0.10.0.dev2", "0.11", "0.20.3", "1.0.0"])
def test_this_one_and_newer_ones_are_taken(version, monkeypatch):
    monkeypatch.setattr(supported.metadata, "version", lambda _: version)
    supported.check_jax()


@pytest.mark.instant
@pytest.mark.parametrize("version", ["0.9.2", "0.4.38", "0.9.10.dev1"])
def test_an_older_one_is_refused_with_the_one_that_is_needed(version, monkeypatch):
    monkeypatch.setattr(supported.metadata, "version", lambda _: version)
    with pytest.raises(ShardcError) as caught:
        supported.check_jax()
    assert caught.value.code == "SHC307" and caught.value.help == "pip install 'jax>=0.10'"
    assert caught.value.message == f"JAX {version} is installed; programs are written for 0.10 and newer"
