"""The page in a real browser: it renders, nothing overflows, tables sort, keys and screen readers find their way.

Needs a Chromium, Debian's say, and websocket-client to speak with it; named as skipped where there is none.
"""

import sys
from pathlib import Path

import pytest

import shardc

sys.path.insert(0, str(Path(__file__).parent))
from chromium import browser, installed

pytest.importorskip("drawsvg", reason="the page has pictures, which need drawsvg")
pytest.importorskip("websocket", reason="needs websocket-client to speak with the browser")
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(installed() is None, reason="needs a Chromium: apt-get install chromium"),
]

WIDTHS = (400, 1600)
PROGRAMS = {
    "case 2": ("A[I, J_X] · B[J, K] → C[I, K_X]", {"X": 4}),
    "two axes": ("In[B_X, D_Y] · W[D_X, F_Y] → Out[B_X, F_Y]", {"X": 4, "Y": 4}),
    "long names": (
        "Activations[batch_data, embed_model] · Weights[embed_data, hidden_model] → Result[batch_data, hidden_model]",
        {"data": 16, "model": 4},
    ),
    "a torus of two": ("A[I_XY, J] → A[I, J_XY]", {"X": 5, "Y": 4}),
    "a torus of three": ("A[I_XYZ, J] → A[I, J]", {"X": 2, "Y": 3, "Z": 4}),
    "sums": ("A[I_X, J]{U_YZ} → A[I, J_Y]", {"X": 2, "Y": 2, "Z": 2}),
}


@pytest.fixture(scope="module")
def shown():
    with browser() as page:
        yield page


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A file for each program."""
    folder = tmp_path_factory.mktemp("pages")
    for name, (text, mesh) in PROGRAMS.items():
        shardc.plan(text, mesh=mesh).report(str(folder / f"{name}.html"), pareto=name == "case 2")
    one, other = (shardc.plan(*PROGRAMS[name][:1], mesh=PROGRAMS[name][1]) for name in ("case 2", "two axes"))
    one.report(str(folder / "beside.html"), compare=other)
    return folder


# Of each element that is seen, how far it reaches beyond the window; what scrolls in a box of its own may.
OVERFLOW = """
Array.from(document.body.querySelectorAll("*")).filter(function (each) {
  var box = each.getBoundingClientRect(), around = each.parentElement.closest(".scrolls");
  return !around && box.width && !each.closest(".skip") && box.right > document.documentElement.clientWidth + 1;
}).map(function (each) { return each.tagName + "." + each.getAttribute("class"); })
"""
# Texts of a picture that reach beyond it, or over one another.
CUT = """
Array.from(document.querySelectorAll("svg.shardc-picture")).flatMap(function (svg) {
  var sheet = svg.getBoundingClientRect();
  return Array.from(svg.querySelectorAll("text")).filter(function (text) {
    var box = text.getBoundingClientRect();
    return box.width && (box.left < sheet.left - 1 || box.right > sheet.right + 1 || box.top < sheet.top - 1
      || box.bottom > sheet.bottom + 3);
  }).map(function (text) { return svg.getAttribute("aria-label") + ": " + text.textContent; });
})
"""
OVERLAID = """
Array.from(document.querySelectorAll("svg.shardc-picture")).flatMap(function (svg) {
  var boxes = Array.from(svg.querySelectorAll("text")).map(function (text) {
    return [text.textContent, text.getBoundingClientRect()];
  }).filter(function (each) { return each[1].width; });
  return boxes.flatMap(function (one, at) {
    return boxes.slice(at + 1).filter(function (other) {
      var a = one[1], b = other[1];
      return a.left + 1 < b.right && b.left + 1 < a.right && a.top + 4 < b.bottom && b.top + 4 < a.bottom;
    }).map(function (other) { return svg.getAttribute("aria-label") + ": " + one[0] + " | " + other[0]; });
  });
})
"""
# Pictures of which a part is to be scrolled to.
SCROLLED = """
Array.from(document.querySelectorAll(".scrolls")).filter(function (each) {
  return each.querySelector("svg") && each.scrollWidth > each.clientWidth + 1;
}).map(function (each) { return each.querySelector("svg").getAttribute("aria-label"); })
"""
OPENED = 'document.querySelectorAll("details").forEach(function (each) { each.open = true; })'


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [*PROGRAMS, "beside"])
def test_nothing_overflows_and_no_text_is_cut_or_covered(shown, pages, name, width):
    shown.open(pages / f"{name}.html", width)
    shown.run(OPENED)
    assert shown.run("document.documentElement.scrollWidth") <= width
    assert shown.run(OVERFLOW) == []
    assert shown.run(CUT) == []
    assert shown.run(OVERLAID) == []
    assert shown.requests() == [] and shown.complaints() == []


def test_two_plans_side_by_side_are_seen_without_scrolling_where_there_is_room(shown, pages):
    shown.open(pages / "beside.html", 1600)
    shown.run(OPENED)
    assert shown.run(SCROLLED) == []
    shown.open(pages / "beside.html", 400)
    assert shown.run(SCROLLED) != [], "the check must see one that scrolls"


def test_the_checks_of_layout_see_what_is_wrong(shown, pages, tmp_path):
    broken = (pages / "case 2.html").read_text(encoding="utf-8")
    broken = broken.replace("<main", '<div style="width:3000px">wide</div><main', 1)
    broken = broken.replace("<text ", '<text x="-40" y="5">cut</text><text x="0" y="13">over</text><text ', 1)
    target = tmp_path / "broken.html"
    target.write_text(broken, encoding="utf-8")
    shown.open(target, 400)
    assert shown.run(OVERFLOW) and shown.run(CUT) and shown.run(OVERLAID)


@pytest.mark.parametrize("dark", [False, True])
def test_ink_and_paper_change_places_in_the_dark_and_fills_stay(shown, pages, dark):
    shown.open(pages / "sums.html", 1600, dark)
    style = 'getComputedStyle(document.querySelector("%s")).%s'
    paper, ink = (shown.run(style % ("body", name)) for name in ("backgroundColor", "color"))
    assert (sum(rgb(paper)) < sum(rgb(ink))) == dark
    assert rgb(shown.run(style % ("svg .t", "fill"))) == rgb(ink)
    assert rgb(shown.run(style % ("svg .f0", "fill"))) == [0x74, 0xB1, 0xFD]
    assert rgb(shown.run(style % ("svg text.k", "fill"))) == [0, 0, 0]
    assert 'url("#shardc-plus")' in shown.run(style % ("svg .plus", "fill"))


def rgb(colour):
    return [int(part) for part in colour[colour.index("(") + 1 : -1].split(",")[:3]]


COLUMN = """
Array.from(document.querySelector("table.sorts").tBodies[0].rows).map(function (row) {
  return Number(row.children[%d].getAttribute("data-key"));
})
"""


def test_a_table_sorts_by_the_keyboard_and_says_how(shown, pages):
    shown.open(pages / "case 2.html", 1600)
    before = shown.run(COLUMN % 2)
    assert len(before) >= 2
    heads = 'document.querySelectorAll("table.sorts th")'
    shown.run(f"{heads}[2].querySelector('button').focus()")
    for wanted, said in ((sorted(before), "ascending"), (sorted(before, reverse=True), "descending")):
        shown.press("Enter", 13)
        assert shown.run(COLUMN % 2) == wanted
        assert shown.run(f"{heads}[2].getAttribute('aria-sort')") == said
    shown.run(f"{heads}[0].querySelector('button').focus()")
    shown.press("Space", 32)
    assert shown.run(COLUMN % 0) == sorted(shown.run(COLUMN % 0))
    assert shown.run(f"{heads}[2].getAttribute('aria-sort')") is None


def test_the_code_is_copied_or_selected(shown, pages):
    shown.open(pages / "case 2.html", 1600)
    shown.run("document.querySelector('button.copy[data-of=module]').click()")
    said = "document.querySelector('button.copy[data-of=module]').textContent"
    wait = f"new Promise(function (done) {{ setTimeout(function () {{ done({said}); }}, 300); }})"
    assert shown.run(wait) in ("copied", "selected")
    source = shardc.plan(PROGRAMS["case 2"][0], mesh={"X": 4}).source()
    assert shown.run("document.getElementById('module').textContent") == source


def test_the_keyboard_reaches_all_that_acts_and_first_the_way_past_the_links(shown, pages):
    shown.open(pages / "case 2.html", 400)
    reached = []
    for _ in range(200):
        shown.press("Tab", 9)
        found = shown.run("document.activeElement.outerHTML.slice(0, 80)")
        if not found or found.startswith("<body") or found in reached[:1]:
            break
        reached.append(found)
    assert "skip" in reached[0]
    acts = shown.run("document.querySelectorAll('a, button, summary, .scrolls').length")
    assert len(reached) >= acts
    shown.run("document.querySelector('.skip').focus()")
    shown.press("Enter", 13)
    assert shown.run("location.hash") == "#plan"


def test_a_screen_reader_hears_sections_pictures_and_tables_by_name(shown, pages):
    shown.open(pages / "case 2.html", 1600)
    heard = shown.named()
    roles = {role for role, _ in heard}
    assert {"main", "navigation", "banner", "table", "columnheader", "button", "heading"} <= roles
    assert ("heading", PROGRAMS["case 2"][0]) in heard
    pictures = [name for role, name in heard if role in ("image", "img", "graphics-document")]
    assert any(name.startswith("step 1: ") for name in pictures) and "roofline of v5p" in pictures
    assert not [name for role, name in heard if role in ("image", "img", "button", "link") and not name]


def test_the_picture_of_a_file_renders_by_itself(shown, tmp_path):
    target = tmp_path / "plan.svg"
    shardc.plan(PROGRAMS["sums"][0], mesh=PROGRAMS["sums"][1]).picture().save(str(target))
    shown.open(target, 1600)
    assert shown.run("document.documentElement.tagName") == "svg" and shown.complaints() == []
    assert shown.run("document.querySelectorAll('g.cell').length") > 8
