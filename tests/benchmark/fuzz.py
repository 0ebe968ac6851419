"""Random and mutated inputs through the command line: what it says, how it ends, how long it takes.

    python tests/benchmark/fuzz.py --inputs 10000 --seed 0

An input is a text of the golden files, the examples and the errors' pages, cut, spliced and misspelt; or words of the
notation, or any characters, at random; with options that are now and then as wrong. Each is run by `shardc check`,
`emit`, `plan` or `grad` in this process, batch by batch in children, whose memory is measured. It must end in a status
that its error's family has, say nothing of a traceback, and take no more than a second of processor time and 500 MB.
"""

from __future__ import annotations

import argparse
import gc
import io
import json
import os
import random
import re
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

ROOT = Path(__file__).parents[2]
FAMILIES = {"0": 2, "1": 3, "2": 4, "3": 5, "4": 6, "5": 7}
MOST_SECONDS, MOST_BYTES, BATCH = 1.0, 500 * 2**20, 250
WORDS = """
    A B C Tmp In W dW I J K D F L X Y Z I_X J_Y I_XY I_? [ ] ( ) { } , ; · ·_J ·_LOCAL * @ → -> = + - / ⊙ | # : {U_X}
    {U_XY} relu softmax_J sum_K max_I where index_I AllGather_X ReduceScatter_{X,J} AllReduce for return mesh dims dtype
    chip topology X=4 Y=2 I=64 bf16 int8 f32 2 0.5 1e-6 inf |D| _ ' W^T Σ_J ∞ \\cdot \\text{In}
"""
OPTIONS = (
    ("--mesh", ("X=4", "X=2,Y=2", "X=3,Y=4,Z=2", "X=", "=4", "X=0", "X=99999999999", "X=4,X=2", "", "a b=2", "{X:4}")),
    ("--dims", ("I=8,J=8,K=8", "I=64", "I=-1", "I=1.5", "I=", "I=9" * 300, "Q=4")),
    ("--dtype", ("f32", "bf16", "int8", "f31", "")),
    ("--chip", ("v5e", "H100", "v9z", "nothing.toml")),
    ("--topology", ("v5e:2x2", "v5p:2x2x1", "v5e:axb", ":")),
    ("--memory", ("1GB", "0", "-1", "1e400")),
    ("--objective", ("bytes", "size")),
    ("--idle", ("keep", "lose")),
)


def corpus() -> list[str]:
    """Texts of the notation: those of the golden files, the examples, and the pages' commands."""
    found = [path.read_text("utf-8") for path in sorted(ROOT.glob("examples/*.shard")) if path.name != "llama.shard"]
    pages = "\n".join(path.read_text("utf-8") for path in sorted(ROOT.glob("examples/guide/*.md")))
    found += re.findall(r'shardc \w+ "([^"\n]+)"', pages)
    for name in ("book", "notation", "pasted"):
        found += strings(json.loads((ROOT / "tests" / "data" / f"{name}.json").read_text("utf-8")))
    return found


def strings(given: object) -> Iterator[str]:
    """Every string of some JSON that has a result."""
    match given:
        case str():
            yield from [given] if re.search("→|->|=", given) else []
        case list():
            yield from (text for each in given for text in strings(each))
        case dict():
            yield from (text for each in given.values() for text in strings(each))


def text(drawn: random.Random, texts: list[str]) -> str:
    kind = drawn.random()
    if kind < 0.15:
        return " ".join(drawn.choice(WORDS.split()) for _ in range(drawn.randint(0, 30)))
    if kind < 0.2:
        return "".join(
            chr(drawn.choice((drawn.randrange(128), drawn.randrange(0xD800)))) for _ in range(drawn.randint(0, 60))
        )
    found = drawn.choice(texts)
    for _ in range(drawn.choice((0, 1, 1, 1, 2, 3, 8))):
        found = mutated(drawn, found, texts)
    return found


def mutated(drawn: random.Random, given: str, texts: list[str]) -> str:
    """One edit: something left out, doubled, exchanged, put in, or another text's end."""
    first, last = sorted(drawn.randint(0, len(given)) for _ in range(2))
    last = min(last, first + drawn.choice((1, 2, 5, 20)))
    part = given[first:last]
    new = drawn.choice(
        ("", part + part, part[::-1], drawn.choice(WORDS.split()), chr(drawn.randrange(0x3000)), part.swapcase())
    )
    if drawn.random() < 0.1:
        return given[:first] + drawn.choice(texts)[-drawn.randint(1, 40) :]
    return given[:first] + new + given[last:]


def arguments(drawn: random.Random, texts: list[str]) -> list[str]:
    found = [drawn.choice(("check", "check", "check", "emit", "plan", "grad"))]
    for name, values in OPTIONS:
        if drawn.random() < (0.9 if name == "--mesh" else 0.25):
            found += [name, values[0] if drawn.random() < 0.95 else drawn.choice(values)]
    if drawn.random() < 0.1:
        found.append(drawn.choice(("--json", "--top", "--strict", "--nonsense", "--prove", "-o")))
    return [*found, "--", text(drawn, texts)]


def ended(status: object, said: str) -> str | None:
    """What is wrong with how a command ended; None if nothing is."""
    codes = re.findall(r"SHC(\d)\d\d", said)
    if "Traceback" in said:
        return "a traceback"
    if status not in (0, 2, 3, 4, 5, 6, 7):
        return f"status {status}"
    if status == 0 or (status == 4 and said.startswith("error: ")):  # a warning, with --strict
        return None
    return None if any(FAMILIES.get(code) == status for code in codes) else f"status {status} of {codes}"


def batch(given: list[list[str]]) -> Iterator[tuple[str, list[str]]]:
    """What is wrong, and with which arguments; nothing for what is fine."""
    from shardc.cli import _status

    for words in given:
        out, err = io.StringIO(), io.StringIO()
        start = time.process_time()
        with redirect_stdout(out), redirect_stderr(err):
            try:
                status: object = _status(words)
            except BaseException as error:
                status = f"{type(error).__name__}: {error}"
        seconds = time.process_time() - start
        wrong = ended(status, err.getvalue())
        yield f"status {status}", []
        if wrong is not None:
            yield wrong, words
        if seconds > MOST_SECONDS:  # a layer may take longer to plan; a refusal may not
            yield ("planned in more than a second", []) if status == 0 else (f"{seconds:.1f} s", words)


def in_child(given: list[list[str]]) -> Iterator[tuple[str, list[str]]]:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        with os.fdopen(write, "w") as pipe:
            json.dump(list(batch(given)), pipe)
        os._exit(0)
    os.close(write)
    with os.fdopen(read) as pipe:
        answer = pipe.read()
    _, _, used = os.wait4(child, 0)
    yield from json.loads(answer) if answer else [("the child died", given[0])]
    peak = used.ru_maxrss * 1024
    yield f"peak {peak // 2**20 // 50 * 50} MB", given[-1] if peak > MOST_BYTES else []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--inputs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    gc.set_threshold(100_000)  # as the command does, `shardc.__main__`
    list(batch([["emit", (ROOT / "examples" / "attention.shard").read_text("utf-8")]]))  # loads all, for every child
    drawn, texts = random.Random(options.seed), corpus()
    every = [arguments(drawn, texts) for _ in range(options.inputs)]
    counted, faults = Counter[str](), 0
    for first in range(0, len(every), BATCH):
        for what, words in in_child(every[first : first + BATCH]):
            counted[what] += 1
            if words:
                faults += 1
                print(f"{what}: shardc {words!r}"[:600], flush=True)
    print(f"{len(every)} inputs, {len(texts)} texts; {resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime:.0f} s")
    for what, count in sorted(counted.items()):
        print(f"{count:7}  {what}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
