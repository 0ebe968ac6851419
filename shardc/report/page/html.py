"""HTML as a tree of elements: whatever a text says, it stays text, since only the tree is written out.

Styles and scripts are the one exception, as HTML has it, and are constants of this room.
"""

from __future__ import annotations

from typing import TypeAlias
from xml.etree import ElementTree

Element: TypeAlias = ElementTree.Element
Child: TypeAlias = "Element | str | None"


_LINE = 28  # characters of a cell that stand in one line


def tag(of: str, /, *children: Child, **attributes: str | None) -> Element:
    """An element; `class_` is its class, `aria_label` its aria-label; what is None is left out."""
    made = ElementTree.Element(of)
    for key, value in attributes.items():
        if value is not None:
            made.set(key.removesuffix("_").replace("_", "-"), value)
    for child in children:
        _append(made, child)
    return made


def _append(parent: Element, child: Child) -> None:
    if child is None:
        return
    if not isinstance(child, str):
        parent.append(child)
    elif len(parent):
        parent[-1].tail = (parent[-1].tail or "") + child
    else:
        parent.text = (parent.text or "") + child


def drawn(svg: str) -> Element:
    """An SVG text as an element of a page, where it needs no namespace."""
    root = ElementTree.fromstring(svg)
    for each in root.iter():
        each.tag = each.tag.rpartition("}")[2]
        each.tail = each.tail if each.tail and each.tail.strip() else None
        each.text = each.text if each.text and each.text.strip() else None
    return root


def render(root: Element) -> str:
    return f"<!doctype html>\n{render_part(root)}\n"


def render_part(part: Element) -> str:
    return ElementTree.tostring(part, encoding="unicode", method="html")


def row(cells: list[Child], of: str = "td") -> Element:
    return tag("tr", *(tag(of, cell) for cell in cells))


def table(
    caption: str, headers: tuple[str, ...], rows: list[list[Child]], *, keys: list[list[str]] | None = None
) -> Element:
    """A table that scrolls by itself; with `keys`, one a cell, its columns sort: by number, or by text where empty."""
    heads = [tag("th", _head(name, keys is not None), scope="col") for name in headers]
    body = tag("tbody", *map(row, rows))
    for cell in body.iter("td"):
        if len("".join(cell.itertext())) > _LINE:
            cell.set("class", "wide")
    for line, own in zip(body, keys or [], strict=False):
        for cell, key in zip(line, own, strict=True):
            if key:
                cell.set("data-key", key)
    whole = tag("table", tag("caption", caption), tag("thead", tag("tr", *heads)), body)
    if keys is not None:
        whole.set("class", "sorts")
    return scrolls(whole, caption)


def _head(name: str, sorts: bool) -> Child:
    return tag("button", name, type="button", title=f"sort by {name}") if sorts else name


def scrolls(inside: Element, name: str) -> Element:
    """What is wider than the page scrolls in a box of its own, which the keyboard reaches."""
    return tag("div", inside, class_="scrolls", role="region", aria_label=name, tabindex="0")
