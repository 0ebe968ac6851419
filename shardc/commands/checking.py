"""`shardc check`: every fault of every input, and its warnings; for a reader, or for another program."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias

from shardc.commands.failures import installed_version
from shardc.commands.options import Options
from shardc.errors import CODES, SEMANTICS, ShardcError, in_line, in_lines
from shardc.io import streams
from shardc.io.files import read_input
from shardc.io.text import json_text

Format: TypeAlias = Literal["text", "json", "github", "sarif"]
FORMATS: tuple[Format, ...] = ("text", "json", "github", "sarif")
_OF_WARNINGS = "what is legal, and may not be meant"
_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


@dataclass(frozen=True, slots=True)
class Checked:
    """What is to be said of one input. `file` is its path, or empty for an expression; `strict` warnings are errors."""

    file: str
    strict: bool
    statements: tuple[str, ...] = ()
    program: str = ""
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    faults: tuple[ShardcError, ...] = ()

    @property
    def status(self) -> int:
        if self.faults:
            return max(fault.exit_code for fault in self.faults)
        return SEMANTICS if self.strict and self.warnings else 0

    @property
    def level(self) -> str:
        """Of its warnings."""
        return "error" if self.strict else "warning"


def check(inputs: Iterable[str], options: Options, strict: bool, form: Format) -> int:
    """Says what is to be said of each input; the worst status."""
    if form == "sarif":
        found = [checked(argument, options, strict) for argument in inputs]
        streams.result(in_lines(json_text(sarif(found), indent=1)))
        return max(each.status for each in found)
    tell = {"text": _tell, "json": _tell_json, "github": _annotate}[form]
    worst = 0
    for argument in inputs:
        one = checked(argument, options, strict)
        tell(one)
        worst = max(worst, one.status)
    return worst


def checked(argument: str, options: Options, strict: bool) -> Checked:
    from shardc.api import faults_beside

    name = ""
    try:
        text, name = read_input(argument)
        program = options.parsed(text, name)
        found = options.plan(program)
    except ShardcError as error:
        faults = faults_beside(error, partial(options.parsed, name=name))
        return Checked(argument if name in ("", argument) else "", strict, faults=tuple(faults))
    statements = tuple(statement.text for statement in program.statements)
    file = argument if name == argument else ""
    return Checked(file, strict, statements, f"{program}\n", program.warnings, tuple(found.notes))


def _tell(found: Checked) -> None:
    for fault in found.faults:
        streams.say(fault.render())
    where = f"{found.file}: " if found.file else ""
    for warning in found.warnings:
        streams.say(f"{found.level}: {where}{in_line(warning)}")
    if not found.status:
        streams.show(in_lines("\n".join(f"ok: {text}" for text in found.statements)))


def _tell_json(found: Checked) -> None:
    for fault in found.faults:
        streams.say(in_lines(json_text({"error": fault.to_json()})))
    if found.faults:
        return
    named = {"file": found.file} if found.file else {}
    for warning in found.warnings:
        told = {"code": None, "message": warning, "span": None, "note": "", "help": ""}
        streams.say(in_lines(json_text({found.level: {**named, **told}})))
    fields = {**named, "ok": not found.status, "program": found.program, "warnings": list(found.notes)}
    streams.result(in_lines(json_text(fields)))


# --- annotations of GitHub's workflows


def _annotate(found: Checked) -> None:
    for fault in found.faults:
        streams.result(annotation("error", found.file, fault.message, fault))
    for warning in found.warnings:
        streams.result(annotation(found.level, found.file, warning))


def annotation(level: str, file: str, message: str, fault: ShardcError | None = None) -> str:
    """`::error file=mlp.shard,line=1,col=3,title=SHC204::dim …`: a line, whatever is in it."""
    facts: dict[str, object] = {"file": file} if file else {}
    if fault is not None:
        facts |= _github_place(fault) | {"title": fault.code}
        message = "\n".join(part for part in (message, fault.note, fault.help) if part)
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in facts.items())
    return f"::{level}{' ' if properties else ''}{properties}::{_data(message)}"


def _github_place(fault: ShardcError) -> dict[str, object]:
    if fault.span is None:
        return {}
    line, column, until_line, until = _place(fault)
    end = {"endColumn": until - 1} if until_line == line and until > column else {}  # the last one that is meant
    return {"line": line, "col": column, **end}


def _data(text: str) -> str:
    escaped = text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
    return in_line(escaped)


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")


# --- SARIF 2.1.0


def sarif(found: Iterable[Checked]) -> dict[str, Any]:
    """One run: a rule for each code that occurs, a result for each fault and warning."""
    results = [result for each in found for result in _results(each)]
    occurring = sorted({result["ruleId"] for result in results})
    rules = [{"id": rule, "shortDescription": {"text": CODES.get(rule, _OF_WARNINGS)}} for rule in occurring]
    driver = {"name": "shardc", "version": installed_version(), "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}


def _results(found: Checked) -> Iterable[dict[str, Any]]:
    for fault in found.faults:
        said = ". ".join(part for part in (fault.message, fault.note, fault.help) if part)
        place = {"ruleId": fault.code, "locations": _locations(found, fault)}
        yield {"level": "error", "message": {"text": said}, **place}
    for warning in found.warnings:
        place = {"ruleId": "warning", "locations": _locations(found, None)}
        yield {"level": found.level, "message": {"text": warning}, **place}


def _locations(found: Checked, fault: ShardcError | None) -> list[dict[str, Any]]:
    if not found.file:
        return []
    place: dict[str, Any] = {"artifactLocation": {"uri": _uri(found.file)}}
    if fault is not None and fault.span is not None:
        names = ("startLine", "startColumn", "endLine", "endColumn")
        place["region"] = dict(zip(names, _place(fault), strict=True))
    return [{"physicalLocation": place}]


def _uri(path: str) -> str:
    from urllib.parse import quote

    return ("file://" if path.startswith("/") else "") + quote(path, errors="surrogateescape")


def _place(fault: ShardcError) -> tuple[int, int, int, int]:
    """Line and column where it begins, and where it has ended."""
    span = fault.span
    assert span is not None, "it has a place"
    return (*span.source.position(span.start), *span.source.position(span.end))
