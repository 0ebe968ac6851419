"""A shell completes what is typed: its own process at a terminal, key by key."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import time

import pytest

BOUND = {
    "bash": (["bash", "--norc", "-i"], 'eval "$(shardc completion bash)"\n'),
    "zsh": (["zsh", "-f", "-i"], 'autoload -Uz compinit; compinit -u -D; eval "$(shardc completion zsh)"\n'),
    "fish": (["fish", "--no-config"], "shardc completion fish | source\n"),
}
QUIET = 0.7  # seconds in which nothing is printed: the shell waits for a key
ANSWERS = {b"\x1b[6n": b"\x1b[1;1R", b"\x1b[c": b"\x1b[?62c", b"\x1b[0c": b"\x1b[?62c"}  # what shells ask terminals


def typed(arguments: list[str], keys: list[str], until: str, seconds: int = 40) -> str:
    """What a terminal shows, less its escapes, after keys that are pressed one group after another."""
    process, ours = pty.fork()
    if not process:
        os.environ.update({"TERM": "xterm", "PS1": "$ "})
        os.execvp(arguments[0], arguments)
    found, left, end, last = b"", list(keys), time.monotonic() + seconds, time.monotonic()
    while time.monotonic() < end and not re.search(until, shown(found)):
        if select.select([ours], [], [], 0.1)[0]:
            part = os.read(ours, 65536)
            for asked, answer in ANSWERS.items():
                if asked in part:
                    os.write(ours, answer)
            found, last = found + part, time.monotonic()
        elif left and time.monotonic() - last > QUIET:
            os.write(ours, left.pop(0).encode())
            last = time.monotonic()
    os.close(ours)  # the shell is hung up on
    os.waitpid(process, 0)
    return shown(found)


def shown(found: bytes) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\x08", "", found.decode(errors="replace"))


@pytest.mark.exhaustive
@pytest.mark.parametrize("shell", BOUND)
def test_a_command_an_option_and_a_choice_are_completed_by_a_key(shell: str) -> None:
    if shutil.which(shell) is None or shutil.which("shardc") is None:
        pytest.skip(f"needs {shell}, and shardc on the path")
    arguments, bind = BOUND[shell]
    until = r"shardc plan\s+--objective\s+bytes" if shell != "fish" else r"--objective bytes"
    assert re.search(until, typed(arguments, [bind, "shardc pl\t", "--obj\t", "by\t"], until))
