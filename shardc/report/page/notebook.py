"""What a notebook shows of a plan or a front: a line, the picture where it can be drawn, the table folded away."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from shardc.io.text import preformatted
from shardc.report.front import FrontView, front_table
from shardc.report.page import sections
from shardc.report.page.html import render_part, tag
from shardc.report.pictures import Picture, front_picture, steps_picture
from shardc.report.pictures.plan import Pictured
from shardc.report.pictures.tuned import tuned_picture
from shardc.report.table import table

if TYPE_CHECKING:
    from shardc.compiled.tune.tuned import Tuned

_MOST = 12  # steps of which a notebook shows pictures unasked


def plan_html(plan: Pictured) -> str:
    text = preformatted(table(plan.view))
    if find_spec("drawsvg") is None or len(plan.view.steps) > _MOST:
        return text
    told = "".join(render_part(each) for each in sections.told(plan.view))
    return f"{told}{_scrolled(steps_picture(plan.view, plan.schedule).svg)}{_folded('the table', text)}"


def front_html(front: FrontView) -> str:
    text = preformatted(front_table(front))
    return text if find_spec("drawsvg") is None else _scrolled(front_picture(front).svg) + text


def tuned_html(tuned: Tuned) -> str:
    text = preformatted(str(tuned))
    return text if find_spec("drawsvg") is None else _scrolled(tuned_picture(tuned).svg) + _folded("the table", text)


def swept_html(picture: Picture, table: str) -> str:
    text = preformatted(table)
    return text if find_spec("drawsvg") is None else _scrolled(picture.svg) + text


def _scrolled(svg: str) -> str:
    return f'<div style="overflow-x:auto">{svg}</div>'


def _folded(name: str, inside: str) -> str:
    return f"<details>{render_part(tag('summary', name))}{inside}</details>"
