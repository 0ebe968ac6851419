"""The parser's table is kept by what it is made of, and reads as one that was just made."""

import sys

import pytest
from lark import Lark
from lark.exceptions import UnexpectedInput

from shardc.errors import ShardcError, Source
from shardc.ir.names import check_name
from shardc.notation import grammar, parse
from shardc.notation.scan import scan

TEXT = grammar._text()
READ = [
    "A[I, J_X] · B[J, K] → C[I, K_X]",
    "mesh X=4, Y=2\nfor -T {\n  h[I_X] = tanh(h[I_X] + x[T, I_X]) ⊙ 2\n}\nreturn h",
    "\\frac{A[I]}{B[I]} → C[I]{U_X}; dtype bf16",
    "A[I,",
    "A[I] ? B[I] → C",
    "for T { dims",
]


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SHARDC_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def said(parser: Lark, text: str) -> object:
    """The tree with its places, or the error with what would have been allowed."""
    try:
        tree = parser.parse(text, start="start")
    except UnexpectedInput as error:
        expected = (
            getattr(error, "accepts", None) or getattr(error, "expected", None) or getattr(error, "allowed", None)
        )
        return type(error), error.pos_in_stream, expected and set(expected)
    return tree, [(token.type, token.start_pos, token.end_pos) for token in tree.scan_values(lambda _: True)]


def test_a_table_that_was_kept_reads_as_one_just_made(cache, monkeypatch):
    made = Lark(TEXT, postlex=grammar._Newlines(), **grammar._OPTIONS)
    grammar.parser_of(TEXT)
    monkeypatch.setattr(grammar, "_table", None)  # it is not made again
    read = grammar.parser_of(TEXT)
    assert len(list(cache.iterdir())) == 1
    for text in READ:
        assert said(read, text) == said(made, text)


def test_a_changed_grammar_is_not_read_by_the_table_of_another(cache):
    grammar.parser_of(TEXT)
    changed = grammar.parser_of(TEXT.replace('PLUS: "+"', 'PLUS: "+" | "plus"'))
    assert changed.parse("A[I] plus B[I] → C[I]", start="start")
    with pytest.raises(UnexpectedInput):
        grammar.parser_of(TEXT).parse("A[I] plus B[I] → C[I]", start="start")


def test_another_lark_makes_a_table_of_its_own(cache, monkeypatch):
    grammar.parser_of(TEXT)
    monkeypatch.setattr("lark.__version__", "another")
    grammar.parser_of(TEXT)
    assert len(list(cache.iterdir())) == 2


def test_without_a_place_to_keep_it_the_text_is_read_all_the_same(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SHARDC_CACHE", str(tmp_path / "file" / "cache"))
    assert said(grammar.parser_of(TEXT), READ[0])[1]
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    "other", ["", "[]", "{", '{"data": {}, "memo": {}}', '{"data": {"options": {}}, "memo": {"1": 2}}']
)
def test_a_file_that_holds_something_else_is_as_none(cache, monkeypatch, other):
    monkeypatch.setattr(grammar, "kept", lambda content, make: other)
    assert said(grammar.parser_of(TEXT), READ[0])[1]


def test_a_text_that_is_read_again_with_sizes_is_parsed_once(monkeypatch):
    parsed = []
    syntax = grammar.syntax
    monkeypatch.setattr(grammar, "syntax", lambda source, start: parsed.append(source.text) or syntax(source, start))
    text = "OnlyHere[I] → Other[I]"
    assert [parse(text, dims=dims).sizes for dims in (None, {"I": 8}, {"I": 16})] == [(), (("I", 8),), (("I", 16),)]
    assert parsed == [text]


def passes(check, *arguments: object) -> bool:
    try:
        check(*arguments)
    except ShardcError:
        return False
    return True


def test_of_all_that_is_scanned_the_letters_of_names_are_the_words_of_the_grammar():
    """The grammar says `\\w`, which is every script's: the scan is what keeps the others out."""
    scanned = {
        char for char in map(chr, range(sys.maxunicode + 1)) if char.isalnum() and passes(scan, Source(char, ""))
    }
    named = {char for char in map(chr, range(0x3FF)) if char.isalnum() and passes(check_name, f"a{char}", "dim")}
    assert scanned == named >= set("aZ09αΩ")
