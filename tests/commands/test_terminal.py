"""What a user wrote is shown to a terminal without the terminal acting on it: every place, every control character."""

import json
import subprocess

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardc import ShardcError, cli, parse, plan
from shardc.cost.chips import from_toml
from shardc.errors import in_line, in_lines

MATMUL = ["A[I_X] → A[I]", "--mesh", "X=2"]
CHIP = '{}\nname = "mine"\nflops = 1e14\nlargest = "{}"\n'

# What a terminal acts on, or hides: C0, DEL, C1 (one character is a CSI), bidi, zero width, tags, lone surrogates.
ACTING = ["\x1b[31m", "\x1b]0;t\x07", "\x9b2J", "\x07", "\b", "\r", "\n", "\x7f", "\x85", "\u202e", "\u200b", "\u2028"]
ACTING += ["\ufeff", "\U000e0041", "\udcff", "\ud800"]
words = st.lists(st.sampled_from([*ACTING, "A", "x", "[", "]", "_", "=", ",", "é", " "]), min_size=1, max_size=5)
payloads = words.map("".join)

PLACES = {
    "expression": lambda text: ["check", f"A[I{text}] → A[I]"],
    "name": lambda text: ["check", f"{text}[I] → A[I]"],
    "comment": lambda text: ["check", f"A[I_W] → A[I] # {text}", "--mesh", "X=2"],
    "file": lambda text: ["check", f"{text}.shard"],
    "second file": lambda text: ["check", MATMUL[0], f"no{text}.shard", *MATMUL[1:]],
    "chip": lambda text: ["check", *MATMUL, "--chip", text],
    "chip file": lambda text: ["check", *MATMUL, "--chip", f"{text}.toml"],
    "topology": lambda text: ["check", *MATMUL, "--topology", text],
    "topology's chip": lambda text: ["check", *MATMUL, "--topology", f"{text}:2x2"],
    "mesh": lambda text: ["check", "A[I_X] → A[I]", "--mesh", f"X=2,{text}"],
    "dims": lambda text: ["check", *MATMUL, "--dims", f"{text}=4"],
    "dtype": lambda text: ["check", *MATMUL, "--dtype", text],
    "map": lambda text: ["check", *MATMUL, "--map", f"{text}=0", "--topology", "v5p:2x1x1"],
    "dcn": lambda text: ["check", *MATMUL, "--dcn", text],
    "wraparound": lambda text: ["check", *MATMUL, "--wraparound", f"{text}=ring"],
    "wraparound's kind": lambda text: ["check", *MATMUL, "--wraparound", f"X={text}"],
    "memory": lambda text: ["check", *MATMUL, "--memory", text],
    "choice": lambda text: ["plan", *MATMUL, "--objective", text],
    "number": lambda text: ["plan", *MATMUL, "--top", text],
    "option": lambda text: ["plan", *MATMUL, f"--{text}"],
    "extra": lambda text: ["plan", *MATMUL, f"x{text}"],
    "command": lambda text: [f"x{text}"],
    "target": lambda text: ["explain", text],
    "module": lambda text: ["explain", f"no_such_{text}:f"],
    "output": lambda text: ["emit", *MATMUL, "-o", f"/no/such/{text}"],
}


def shown(text):
    return all(c.isprintable() or c == "\n" for c in text)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.sampled_from(sorted(PLACES)), payloads, st.booleans())
def test_nothing_that_a_user_writes_acts_on_the_terminal(capsys, place, text, as_json):
    arguments = [argument.replace("\0", "") for argument in PLACES[place](text)]
    status = cli._status([*arguments, *(["--json"] if as_json and place != "command" else [])])
    out, err = capsys.readouterr()
    assert shown(out) and shown(err)
    assert status in (0, 2, 3, 4, 6, 7), err
    if as_json and status and place != "command":
        lines = [line for line in err.splitlines() if not line.startswith("warning")]
        assert all("error" in json.loads(line) for line in lines) and lines


@pytest.mark.parametrize("text", ACTING)
@pytest.mark.parametrize("place", ["name", "value", "key", "source"])
def test_a_chips_file_cannot_write_to_the_terminal(place, text, tmp_path):
    path = tmp_path / "my.toml"
    escaped = json.dumps(text)[1:-1]
    keys = {"name": f'name = "{escaped}"', "value": f'flops = "{escaped}"', "key": f'"{escaped}" = 1'}
    path.write_text(keys.get(place, f'source = ["{escaped}"]') + "\n", encoding="utf-8")
    with pytest.raises(ShardcError) as caught:
        from_toml(path)
    assert shown(str(caught.value))


@pytest.mark.parametrize("text", ACTING)
def test_an_error_in_python_is_shown_as_safely(text):
    for call in (lambda: parse(f"A[I{text}W_W] → A[I]"), lambda: plan("A[I] → A[I]", chip=f"v{text}")):
        with pytest.raises(ShardcError) as caught:
            call()
        assert shown(str(caught.value))
    with pytest.raises(ShardcError) as caught:
        parse("A[I_X → A[I]", name=f"{text}.shard")
    assert shown(str(caught.value)) and len(str(caught.value).splitlines()) == 5


@given(st.text())
def test_what_is_spelt_out_is_read_back(text):
    assert shown(in_line(text)) and "\n" not in in_line(text)
    fields = json.dumps({"text": text}, ensure_ascii=False)
    assert json.loads(in_lines(fields)) == json.loads(fields)
    if text.isprintable():
        assert in_line(text) == text


def test_a_fault_of_ours_is_replayed_from_one_line(monkeypatch, capsys):
    def broken(*_arguments, **_options):
        raise ZeroDivisionError("planted\x1b[31m")

    monkeypatch.setattr("shardc.api.plan_with_subaxes", broken)
    text = "A[I_X] → A[I] # it's\n"
    assert cli._status(["plan", text, "--mesh", "X=2", "--memory", "1GB"]) == 70
    _, err = capsys.readouterr()
    assert shown(err) and len(err.splitlines()) == 5
    replay = next(line for line in err.splitlines() if "replay" in line).partition(": ")[2]
    command = ["bash", "-c", f"printf '%s|' {replay}"]
    said = subprocess.run(command, capture_output=True, check=True).stdout.decode()
    assert said == f"shardc|plan|{text}|--mesh|X=2|--memory|1GB|"
