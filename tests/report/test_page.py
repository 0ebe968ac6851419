"""The page by what it holds: one file, nothing fetched, whatever a text says stays text, and its size is bounded."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import shardc
from shardc import cli
from shardc.io.units import in_seconds
from shardc.report.page import Reported, page
from shardc.report.page.reported import MOST
from shardc.report.pictures import plan as pictures
from shardc.report.pictures.plan import Pictured
from shardc.report.view import every_view
from shardc.testing import strategies

pytest.importorskip("drawsvg", reason="the page has pictures, which need drawsvg: pip install 'shardc[report]'")

CASE_2 = "A[I, J_X] · B[J, K] → C[I, K_X]"
VOID = {"meta", "br", "link", "input"}


class Read(HTMLParser):
    """What a browser would find: elements with their attributes, texts by the element around them; all closed."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.elements, self.texts, self.open = [], [], []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append((self.open[-1] if self.open else "", data))

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def text(self):
        return "".join(text for around, text in self.texts if around not in ("script", "style"))


def reported(plan, **more):
    return Reported(Pictured(plan._view, plan.schedule, plan._model), plan.source(), **more)


@settings(max_examples=15)
@given(strategies.programs())
def test_a_page_holds_the_plan_in_one_file_that_fetches_nothing(case):
    plan = shardc.plan(case.text, mesh=case.mesh, dims=case.dims)
    text = plan.page()
    read = Read(text)
    assert len(text.encode()) < MOST == 500_000
    for name, attributes in read.elements:
        assert not {"src", "srcset", "action", "xlink:href", "background"} & set(attributes), (name, attributes)
        assert attributes.get("href", "#").startswith("#")
        assert not [key for key in attributes if key.startswith("on")]
    assert "://" not in re.sub(r"<code[^>]*>.*?</code>", "", text, flags=re.DOTALL)
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    wanted = [each["href"][1:] for each in read.all("a")] + [
        each["data-of"] for each in read.all("button") if "data-of" in each
    ]
    assert set(wanted) <= set(ids)
    for step in every_view(plan.steps):
        assert step.result in read.text and step.rule in read.text
    assert plan.source() in read.text
    drawn = {attributes.get("aria-label", "") for attributes in read.all("svg")}
    assert {f"step {n}" for n in range(1, len(plan.steps) + 1)} <= {label.partition(":")[0] for label in drawn}


def test_the_sections_are_there_and_say_what_the_table_says():
    plan = shardc.plan(CASE_2, mesh={"X": 4}, dims={"I": 512, "J": 8192, "K": 1024}, chip="v5e")
    read = Read(plan.page(pareto=True))
    sections = [each["id"] for each in read.all("section")]
    assert sections == ["shardings", "steps", "timeline", "roofline", "memory", "front", "code"]
    assert "X: case 2, gather the operand, or slice the other and reduce" in read.text
    for shown in ("28.4 µs", "786 kB", "1.00× the lower bound", "24.1 MB", "2·I·K·(X-1)/X / W_X", "76.1 µs", "2.68"):
        assert shown in read.text
    assert len(plan.pareto()) == sum("data-plan" in attributes for attributes in read.all("g"))


def test_of_a_long_program_the_bound_is_said_in_bytes():
    """Of attention over sharded positions a number for each device's rows is proved: no measure of the plan."""
    text = "S = q[T_X, E] ·_E k[U_X, E]; P = softmax_U(S); O[T_X, E] = P ·_U v[U_X, E]"
    plan = shardc.plan(text, mesh={"X": 8}, dims={"T": 4096, "E": 128})
    assert plan.cost.wire_bytes > 10 * plan.bound.wire_bytes > 0
    (said,) = (line for line in str(plan).splitlines() if line.startswith("wire bytes"))
    assert said.endswith("are proved to be needed)") and "lower bound" not in said
    assert said.partition("(")[2].strip(")") in Read(plan.page()).text


@pytest.mark.exhaustive
def test_a_factor_is_shown_to_as_many_digits_as_are_read():
    plan = shardc.plan("C[I_X, K] = A[I_X, J] · B[J, K]", mesh="X=8", dims="I=8192,J=2048,K=8192", topology="v5e:2x4")
    (step,) = plan.steps
    times = step.formula.partition(" + ")[0].rpartition("·")[2]
    assert len(times) > 8 and times not in str(plan) + plan.page()
    assert f"·{times[:6]} " in str(plan) and f"·{times[:6]}" in Read(plan.page()).text


LAYERS = "for L {\n  h[B_X, F] = x[B_X, D] · W[L, D_X, F]\n  x[B_X, D] = h · V[L, F_X, D]\n}"


def test_a_loop_has_the_steps_cases_and_alternatives_of_its_statements():
    plan = shardc.plan(LAYERS, mesh={"X": 4}, dims={"L": 6, "B": 512, "D": 256, "F": 1024})
    read = Read(plan.page())
    labels = {each.get("aria-label", "").partition(":")[0] for each in read.all("svg")}
    inside = plan.steps[0].steps
    assert {f"step 1.{n}" for n in range(1, len(inside) + 1)} <= labels
    for step in every_view(plan.steps):
        assert step.result in read.text and step.rule in read.text
    assert "case 2, gather the operand, or slice the other and reduce (in h[B_X, F]" in read.text
    assert len([each for each in read.all("table") if each.get("class") == "sorts"]) == 2
    assert "\n" not in repr(plan) and plan.source() in read.text
    assert len(plan.page(compare=plan).encode()) < MOST and plan._repr_html_()


def test_what_keeps_a_plan_from_running_stands_first():
    plan = shardc.plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 2**17, "J": 2**17}, chip="v5e")
    text = plan.page()
    assert 0 < text.index("it does not fit") < text.index('id="shardings"')


HOSTILE = ("<script>alert(1)</script>", '"><img src=x onerror=alert(1)>', "</style></pre><b>", "&lt;&amp;", "]]>-->")


@settings(max_examples=30)
@given(st.one_of(st.sampled_from(HOSTILE), st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1)))
def test_whatever_a_user_wrote_stays_text(hostile):
    plan = shardc.plan("A[I_X] → A[I]", mesh={"X": 4}, dims={"I": 64})
    found = reported(plan, unverified=hostile)
    view = replace(plan._view, notes=(hostile,), warnings=(hostile,), chip=hostile, dtype=hostile, dims={hostile: 1})
    for statement in view.statements:
        statement.text = hostile
    calm = Read(plan.page())
    read = Read(page(replace(found, plan=replace(found.plan, view=view), source=hostile)))
    assert [name for name, _ in read.elements].count("script") == 1
    known = {"p", "strong", "section", "h2", "li", "a"}  # warnings, notes, the section on verification and its link
    assert {name for name, _ in read.elements} <= {name for name, _ in calm.elements} | known
    assert read.text.count(hostile) >= 5
    assert {key for _, each in read.elements for key in each} <= {key for _, each in calm.elements for key in each} | {
        "role"
    }


@pytest.mark.exhaustive
def test_a_program_of_many_statements_keeps_the_size_and_says_what_is_left_out(monkeypatch):
    """And draws each step once, however often the page is made with less."""
    lines = "; ".join(f"T{n}[I_X, K] = A[I, J_X] · W{n}[J_X, K]" for n in range(160))
    plan = shardc.plan(lines, mesh={"X": 8}, dims={"I": 256, "J": 512, "K": 64})
    drawn, draw = [], pictures.step_picture
    monkeypatch.setattr(pictures, "step_picture", lambda done, *rest: drawn.append(done.path) or draw(done, *rest))
    first = plan.page()
    assert len(drawn) == len(set(drawn)) > 10
    for text in (first, plan.page(compare=plan)):
        assert len(text.encode()) < MOST
        assert "more statements" in text and "more characters" in text


@pytest.mark.exhaustive
def test_of_a_layer_on_many_devices_the_steps_that_move_something_are_drawn():
    """Rather than the first ones, as many as there is room for."""
    text = (Path(__file__).parents[2] / "examples" / "llama_layer.shard").read_text(encoding="utf-8")
    plan = shardc.plan(text, mesh="data=4,model=16", dims={"G": 16, "F": 256})
    read = Read(plan.page())
    moving = [place for place, step in enumerate(plan.steps, 1) if step.wire_bytes]
    assert 5 < len(moving) < len(plan.steps) and len(read.all("details")) == len(moving)
    assert "Only steps that move something are drawn" in read.text


EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.shard"))


@pytest.mark.parametrize(
    "file",
    [p if p.stem == "cross_entropy" else pytest.param(p, marks=pytest.mark.exhaustive) for p in EXAMPLES],
    ids=lambda path: path.stem,
)
def test_every_example_has_a_page(file, plan_of):
    """With what takes no array among its steps, `index_T`, and loops, and hundreds of steps."""
    plan = plan_of(file)
    text = plan.page()
    assert len(text.encode()) < MOST and plan.statements[-1].text.splitlines()[0] in Read(text).text


def test_the_same_plan_is_the_same_page():
    one, other = (shardc.plan(CASE_2, mesh={"X": 4}).page() for _ in range(2))
    assert one == other


def test_two_plans_stand_side_by_side_on_one_scale():
    one = shardc.plan(CASE_2, mesh={"X": 4}, dims={"I": 512, "J": 8192, "K": 1024}, chip="v5e")
    other = shardc.plan(
        "A[I, J_X] · B[J, K] → C[I, K]", mesh={"X": 4}, dims={"I": 512, "J": 8192, "K": 1024}, chip="v5e"
    )
    text = one.page(compare=other)
    read = Read(text)
    assert len(text.encode()) < MOST
    ids = [attributes["id"] for _, attributes in read.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) and {"first-module", "second-module"} <= set(ids)
    assert {each["data-of"] for each in read.all("button") if "data-of" in each} <= set(ids)
    assert one.source() in read.text and other.source() in read.text
    costs = [cell for around, cell in read.texts if around == "td"]
    at = costs.index("wire bytes")
    assert costs[at : at + 4] == ["wire bytes", "786 kB", "1.57 MB", "2.00"]
    bars = re.findall(r'data-duration="(\d+)".*?<rect [^>]*?width="([\d.]+)"', text, re.DOTALL)
    assert len(bars) == 6, "of each a product, and a collective both ways round"
    scales = [float(width) / int(length) for length, width in bars]
    assert max(scales) == pytest.approx(min(scales), rel=1e-4), "a microsecond is as long in both"


def test_a_plan_beside_itself_differs_in_nothing():
    plan = shardc.plan(CASE_2, mesh={"X": 4})
    cells = [cell for around, cell in Read(plan.page(compare=plan)).texts if around == "td"]
    assert cells[3 : 4 * 8 : 4] == ["1.00"] * 8


@pytest.fixture
def run(capsys):
    def call(*arguments):
        status = cli._status(list(arguments))
        captured = capsys.readouterr()
        return status, captured.out, captured.err

    return call


@pytest.mark.devices
def test_a_plan_stands_beside_what_xla_makes_of_it(run):
    """Both compiled for the same devices: the table's figures, both timelines on one scale, our steps and code."""
    arguments = ["--mesh", "X=4", "--dims", "I=64,J=256,K=64", "--dtype", "f32"]
    status, text, err = run("report", CASE_2, *arguments, "--compare", "xla")
    assert status == 0 and all(line.startswith("… ") for line in err.splitlines())
    plan = shardc.plan(CASE_2, mesh={"X": 4}, dims={"I": 64, "J": 256, "K": 64}, dtype="f32")
    compared = plan.compare(rounds=1)
    read, cells = Read(text), [cell for around, cell in Read(text).texts if around == "td"]
    assert len(text.encode()) < MOST and plan.source() in read.text
    at = cells.index("wire bytes")
    assert cells[at : at + 4] == [*next(row for row in compared.rows() if row[0] == "wire bytes")]
    assert compared.ours.wire_bytes < compared.theirs.wire_bytes
    for side in (compared.ours, compared.theirs):
        assert {tally.name for tally in side.collectives} <= set(cells)
        assert f"timeline of {in_seconds(side.timeline.step_s)}" in text


# --- files and the command line


def test_the_command_writes_a_page_once(run, tmp_path):
    target = tmp_path / "plan.html"
    arguments = ["report", CASE_2, "--mesh", "X=4", "-o", str(target)]
    assert run(*arguments) == (0, "", "")
    assert target.read_text(encoding="utf-8") == shardc.plan(CASE_2, mesh={"X": 4}).page()
    status, out, err = run(*arguments)
    assert (status, out) == (7, "") and "SHC504" in err
    assert run(*arguments, "--force") == (0, "", "")


def test_without_a_file_the_page_is_printed(run):
    status, out, err = run("report", CASE_2, "--mesh", "X=4")
    assert (status, err) == (0, "") and out == shardc.plan(CASE_2, mesh={"X": 4}).page()


def test_a_file_that_ends_in_svg_is_the_picture(run, tmp_path):
    target = tmp_path / "plan.svg"
    assert run("report", "-A[I_X] → B[I]", "--mesh", "X=4", "-o", str(target))[0] == 0
    assert target.read_text(encoding="utf-8").startswith("<svg")


def test_the_picture_of_the_readme_is_that_of_its_plan(run, tmp_path):
    root, target = Path(__file__).parents[2], tmp_path / "plan.svg"
    (shown,) = re.findall(r"!\[.*\]\((.+\.svg)\)", (root / "README.md").read_text(encoding="utf-8"))
    sizes = ("--mesh", "X=4", "--dims", "I=512,J=8192,K=1024", "--chip", "v5e")
    assert run("report", CASE_2, *sizes, "-o", str(target))[0] == 0
    drawn, kept = (ElementTree.parse(path).getroot() for path in (target, root / shown))
    assert [(each.tag, each.text) for each in drawn.iter()] == [(each.tag, each.text) for each in kept.iter()]


def test_a_file_that_exists_is_refused_before_the_work(run, tmp_path, monkeypatch):
    target = tmp_path / "plan.html"
    target.write_text("mine")
    monkeypatch.setattr("shardc.commands.options.Options.plan", lambda *_: pytest.fail("planned"))
    assert run("report", CASE_2, "--mesh", "X=4", "-o", str(target))[0] == 7
    assert target.read_text() == "mine"


def test_the_command_compares_with_another_input(run, tmp_path):
    file = tmp_path / "other.shard"
    file.write_text("A[I, J_X] · B[J, K] → C[I, K]")
    arguments = ["report", CASE_2, "--mesh", "X=4", "--compare", str(file)]
    other = shardc.plan("A[I, J_X] · B[J, K] → C[I, K]", mesh={"X": 4})
    assert run(*arguments) == (0, shardc.plan(CASE_2, mesh={"X": 4}).page(compare=other), "")
    assert run(*arguments, "--pareto")[0] == 2
    assert run(*arguments, "-o", str(tmp_path / "two.svg"))[0] == 2
    assert run(*arguments, "-o", str(file), "--force")[0] == 7, "no output takes the place of an input"


def test_a_page_is_no_json(run):
    status, out, err = run("report", CASE_2, "--mesh", "X=4", "--json")
    assert (status, out) == (2, "") and "plan --json" in json.loads(err)["error"]["message"]


def test_a_plan_writes_its_page(tmp_path):
    plan = shardc.plan(CASE_2, mesh={"X": 4})
    plan.report(str(tmp_path / "plan.html"))
    assert (tmp_path / "plan.html").read_text(encoding="utf-8") == plan.page()
    with pytest.raises(shardc.ShardcError, match="exists"):
        plan.report(str(tmp_path / "plan.html"))


@pytest.mark.tpu
def test_where_a_slice_is_named_the_page_has_what_the_compiler_made_of_it():
    pytest.importorskip("libtpu")
    plan = shardc.plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 4096, "J": 4096}, topology="v5e:2x2")
    read = Read(plan.page())
    assert "verified" in [each["id"] for each in read.all("section")]
    assert "collectives: as planned" in read.text
    verified = plan.verify()
    assert re.fullmatch(
        r"<Verification for v5e:2x2: as planned, [\d,]+ wire bytes of [\d,]+ predicted>", repr(verified)
    )
    assert "AllGather_X" in Read(verified._repr_html_()).text


def test_a_plan_that_cannot_be_verified_says_why(monkeypatch):
    plan = shardc.plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 64, "J": 64}, topology="v5e:2x2")

    def refused():
        raise shardc.ShardcError("SHC311", "the TPU compiler is not installed")

    monkeypatch.setattr(plan, "verify", refused)
    said = []
    assert "Not held against the compiler: the TPU compiler is not installed." in Read(plan.page(say=said.append)).text
    assert said == ["compiling for v5e:2x2", "drawing"]


# --- in a notebook


def test_a_plan_and_a_front_have_a_short_repr_and_html():
    plan = shardc.plan(CASE_2, mesh={"X": 4}, dims={"I": 512, "J": 8192, "K": 1024}, chip="v5e")
    assert repr(plan) == f"<Plan of {CASE_2} on v5e, X=4: 786 kB, 28.4 µs>"
    front = plan.pareto()
    assert repr(front) == f"<Front of 2 plans of {CASE_2}: 28.4 µs in 24.1 MB to 76.1 µs in 21.2 MB>"
    for each, table in ((plan, plan.table()), (front, str(front))):
        read = Read(each._repr_html_())
        assert table in read.text and read.all("svg")


def test_without_drawsvg_a_notebook_shows_the_table(monkeypatch):
    plan = shardc.plan(CASE_2, mesh={"X": 4})
    monkeypatch.setattr("shardc.report.page.notebook.find_spec", lambda name: None)
    for each, table in ((plan, plan.table()), (plan.pareto(), str(plan.pareto()))):
        read = Read(each._repr_html_())
        assert read.text == table and not read.all("svg")


def test_a_repr_is_one_line_however_many_statements():
    lines = "; ".join(f"T{n}[I_X] = A{n}[I]" for n in range(40))
    assert len(repr(shardc.plan(lines, mesh={"X": 2}))) < 250


@pytest.mark.devices
def test_a_program_has_a_short_repr():
    program = shardc.parse("A[I_X] → A[I]", mesh={"X": 4}, chip="v5e")
    assert repr(program) == "<Program: mesh X=4; dtype bf16; chip v5e; A[I_X] → A[I]>"
    long = shardc.parse("; ".join(f"A{n}[I_X] → B{n}[I]" for n in range(40)), mesh={"X": 4})
    assert len(repr(long)) < 180 and repr(long).endswith("…>")


def test_what_the_compiler_is_asked_has_a_repr_and_html():
    import jax
    import jax.numpy as jnp

    compared = shardc.plan("A[I_X, J] → A[I, J]", mesh={"X": 4}, dims={"I": 8, "J": 8}, dtype="f32").compare(rounds=1)
    assert repr(compared) == "<Comparison: shardc 192 wire bytes, jax.jit 192 wire bytes>"
    x = jax.device_put(jnp.ones((64, 64)), jax.NamedSharding(jax.make_mesh((8,), ("X",)), jax.P("X")))
    found = shardc.explain(jax.jit(lambda x: x * 2, out_shardings=jax.NamedSharding(x.sharding.mesh, jax.P())), x)
    assert repr(found).startswith("<Explanation on ") and "14,336 wire bytes" in repr(found)
    for each in (compared, found):
        assert Read(each._repr_html_()).text == str(each)


def test_a_product_that_waits_for_memory_says_so():
    """Of few rows it does, of many it does not: in the table, the JSON, the page and the roofline."""
    for rows, is_bound in ((16, True), (8192, False)):
        dims = {"I": rows, "J": 8192, "K": 8192}
        plan = shardc.plan("A[I, J] · B[J, K_X] → C[I, K_X]", mesh={"X": 4}, dims=dims, chip="v5p")
        step = json.loads(plan.to_json())["steps"][0]
        assert step["op"] == "Einsum" and step.get("hbm_bound", False) == is_bound
        assert ("local product; HBM-bound" in str(plan)) == is_bound == ("local product; HBM-bound" in plan.page())
        assert (", HBM-bound" in plan.picture("roofline").svg) == is_bound


def test_the_totals_are_of_all_devices():
    plan = shardc.plan("A[I, J_X] · B[J_X, K] → C[I, K]", mesh={"X": 4}, dims={"I": 512, "J": 512, "K": 512})
    assert f"{3 * 512 * 512 * 2 * 2 / 1e6:.2f} MB on all 4" in str(plan)
    totals = json.loads(plan.to_json())["totals"]
    assert totals == {"devices": 4, "wire_bytes": 4 * plan.cost.wire_bytes, "flops": 2 * 512**3}


def test_no_two_alternatives_read_alike():
    """Gathered over one axis, of one dim or of another; in the table and on the page."""
    plan = shardc.plan("P = where(index_T >= index_S, A[B_X, T, S], 0)", mesh={"X": 4}, dims={"B": 8, "T": 64, "S": 64})
    rows = re.findall(r"^ +\d.*B  .*?s  +\S+ +(index;.*)$", plan.table(top=6), re.MULTILINE)
    assert len(rows) == len(set(rows)) > 2 and any("[T_X, S]" in row for row in rows)
    cells = [each for each in Read(plan.page()).all("td") if each.get("class") == "wide"]
    assert len(cells) > 2 and plan.page().count("AllGather_X P_1[T_X, S]") == 1
