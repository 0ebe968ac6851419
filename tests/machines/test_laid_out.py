"""What a compiled program takes of a TPU's memory is how far its arrays reach there, not what the analysis adds up."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

import shardc
from shardc.cost import CHIPS
from shardc.machines import tpu
from shardc.machines.laid_out import Compiled, laid_bytes

GIB = 2**30
MEMORY = """Memory Space: default (color=0)
Total bytes: {} (1.00MiB)
  cumulative_size;       size;       offset; used_by_n_values; shapes_list
Memory Space: vmem (color=1)
Total bytes: 99 (99B)
"""


def analysis(argument, output, temporary):
    return SimpleNamespace(argument_size_in_bytes=argument, output_size_in_bytes=output, temp_size_in_bytes=temporary)


def sizes_of(found):
    return found.argument_size_in_bytes, found.output_size_in_bytes, found.temp_size_in_bytes


def test_the_last_report_of_a_folder_says_what_lies_beside_the_chip(tmp_path):
    assert laid_bytes(str(tmp_path)) is None
    for time, total in enumerate((7, 1_000_000, 5)):
        name = f"module_{9 - time}.memory-usage-report.txt"
        (tmp_path / name).write_text(MEMORY.format(total), encoding="utf-8")
        os.utime(tmp_path / name, (time, time))
    assert laid_bytes(str(tmp_path)) == 5
    (tmp_path / "z.memory-usage-report.txt").write_text("nothing of the kind", encoding="utf-8")
    assert laid_bytes(str(tmp_path)) is None


@pytest.mark.parametrize(
    ("laid", "temporary"),
    [
        (None, 40),  # no report: as the analysis has it
        (25, 15 - 10 + 10),  # as it lies
        (100, 40),  # with handles of tuples: without
        (8, 0),  # less than what comes in and goes out, which lie in one place
    ],
)
def test_the_lesser_of_both_is_taken(laid, temporary):
    made = SimpleNamespace(memory_analysis=lambda: analysis(4, 6, 40), as_text=lambda: "HLO")
    found = Compiled(made, laid)
    assert sizes_of(found.memory_analysis()) == (4, 6, temporary) and found.as_text() == "HLO"
    assert Compiled(SimpleNamespace(memory_analysis=lambda: None), laid).memory_analysis() is None


@pytest.mark.long
@pytest.mark.tpu
def test_what_the_analysis_adds_up_would_not_fit_and_the_compiler_takes_it():
    """FSDP with its gradients: by the analysis above the 15.75 GiB that a v5e's compiler allows, 11.1 as it lies. 12.5
    are promised."""
    text = (Path(__file__).parents[2] / "examples" / "fsdp.shard").read_text(encoding="utf-8")
    text = re.sub(r"(?m)^(mesh|dims|chip) .*$", "", text)
    program = shardc.parse(text, mesh={"X": 16}, dims={"B": 40960, "D": 20480, "F": 81920}, topology="v5e:4x4")
    plan = shardc.plan(shardc.grad(program, whole=True))
    mesh = tpu.slice_mesh(plan.schedule.mesh, "v5e", (4, 4), lambda device: divmod(device, 4))
    compiled = tpu.compile_schedule(plan.schedule, mesh)
    assert sum(sizes_of(compiled.made.memory_analysis())) > CHIPS["v5e"].hbm_bytes
    laid = sum(sizes_of(compiled.memory_analysis()))
    assert laid < 15.75 * GIB and laid <= plan.cost.peak_bytes < 1.13 * laid
