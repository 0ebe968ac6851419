"""Texts for other programs: JSON, which is finite whatever it is given, and text that a notebook shows as it is."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(fields: Any, *, indent: int | None = None, sort_keys: bool = False) -> str:
    """The JSON text. JSON has no infinity: `{"ratio": inf}` is `{"ratio": null, "ratio_reason": "infinite"}`."""
    return json.dumps(finite(fields), ensure_ascii=False, indent=indent, sort_keys=sort_keys, allow_nan=False)


def finite(value: Any) -> Any:
    """The same with null for each number that is not finite, and beside it, in an object, the reason."""
    match value:
        case dict():
            reasons = {f"{key}_reason": why for key, number in value.items() if (why := _why_none(number))}
            return {key: finite(each) for key, each in value.items()} | reasons
        case list() | tuple():
            return [finite(each) for each in value]
        case _:
            return None if _why_none(value) else value


def _why_none(number: Any) -> str:
    if not isinstance(number, float) or math.isfinite(number):
        return ""
    return "not a number" if math.isnan(number) else "infinite" if number > 0 else "negative and infinite"


def preformatted(text: str) -> str:
    """HTML that shows a text as a terminal does."""
    from html import escape  # which few need, and takes time to load

    return f'<pre style="overflow-x:auto;white-space:pre">{escape(text)}</pre>'
