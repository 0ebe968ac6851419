"""What is kept is made once; what cannot be kept, or was harmed, is made again."""

import pytest

from shardc.io.kept import kept


@pytest.fixture
def where(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDC_CACHE", str(tmp_path / "deep" / "cache"))
    return tmp_path / "deep" / "cache"


def making(made):
    return lambda: made.append("made") or f"text {len(made)}"


def test_what_is_kept_is_made_once(where):
    made = []
    assert [kept("one", making(made)), kept("one", making(made)), kept("two", making(made))] == [
        "text 1",
        "text 1",
        "text 2",
    ]


@pytest.mark.parametrize("harm", [b"", b"no gzip", b"\x1f\x8b\x08\x00cut"])
def test_a_file_that_was_harmed_is_made_again(where, harm):
    made = []
    kept("one", making(made))
    (only,) = where.iterdir()
    only.write_bytes(harm)
    assert kept("one", making(made)) == "text 2"
    assert kept("one", making(made)) == "text 2"


def test_where_nothing_can_be_written_it_is_made_each_time(where):
    where.parent.mkdir()
    where.write_text("a file, no folder")
    made = []
    assert [kept("one", making(made)), kept("one", making(made))] == ["text 1", "text 2"]


def test_a_user_without_a_home_keeps_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("SHARDC_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("os.path.expanduser", lambda path: path)  # as where neither $HOME nor the user's id says it
    made = []
    assert [kept("one", making(made)), kept("one", making(made))] == ["text 1", "text 2"]
    assert list(tmp_path.iterdir()) == []
