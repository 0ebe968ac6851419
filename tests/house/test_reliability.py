"""Every row of what may go wrong has a test that kills it: by its name, so that one that goes away is missed."""

import ast
from functools import cache
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# What may happen to a run, and how it is tried.
FAULTS = {
    "killed while writing": ["commands/test_cli.py::test_a_kill_while_writing_leaves_the_old_file_or_the_new"],
    "stale temporaries": ["commands/test_cli.py::test_what_a_killed_run_left_is_swept"],
    "many runs, one target": ["commands/test_cli.py::test_many_runs_with_one_target_leave_one_whole_file"],
    "disk full": ["commands/test_cli.py::test_a_full_disk_leaves_the_old_file"],
    "I/O errors, closed pipes": [
        "commands/test_cli.py::test_a_closed_pipe_is_no_traceback",
        "io/test_streams.py::test_a_faulty_stream_loses_what_it_carries_and_no_more",
    ],
    "interrupt while planning": [
        "commands/test_cli.py::test_an_interrupt_ends_with_130_and_no_output",
        "io/test_streams.py::test_an_interrupt_at_any_moment_is_130_and_one_line",
    ],
    "a missing or stuck peer process": [
        "machines/test_processes.py::test_a_process_that_never_starts_is_named_in_bounded_time",
        "machines/test_processes.py::test_a_process_that_fails_midway_is_named_and_the_others_end",
    ],
    "non-finite data": ["simulate/test_tolerance.py::test_what_is_not_finite_must_be_so_in_both"],
    "low precision": [
        "machines/test_run.py::test_small_integers_sum_in_int32",
        "machines/test_run.py::test_narrow_floats_sum_in_f32",
    ],
    "a crash inside": ["commands/test_cli.py::test_a_crash_in_any_stage_ends_with_70_and_a_replay"],
}

# What a user may give, by family; texts stand one by one in notation/test_errors.py.
GIVEN = {
    "syntax, semantics, limits of a text": [
        "notation/test_errors.py::test_code_and_caret",
        "notation/test_errors.py::test_the_command_line_and_python_refuse_it_with_the_same_words",
        "notation/test_errors.py::test_columns_after_a_mark_and_a_carriage_return",
    ],
    "a text that is not UTF-8": ["commands/test_cli.py::test_a_file_that_is_not_utf8_names_the_byte"],
    "an axis that nobody uses": ["commands/test_cli.py::test_check_warns_of_an_axis_that_nobody_uses"],
    "an unbound size": ["notation/test_loops.py::test_a_loop_needs_the_size_of_its_dim"],
    "64-bit without x64": ["emit/test_transforms.py::test_compile_refuses_what_does_not_fit"],
    "the planner's budget": [
        "planner/test_limits.py::test_past_its_budget_a_plan_means_the_program_and_says_how_far_it_may_be"
    ],
    "too few devices": ["emit/test_transforms.py::test_compile_refuses_what_does_not_fit"],
    "a backend that has started, an unsupported JAX": ["commands/test_help.py::test_the_example_of_a_code_raises_it"],
    "an argument of another shape, type or sharding": [
        "emit/test_wrong_arguments.py::test_one_wrong_argument",
        "emit/test_wrong_arguments.py::test_two_wrong_arguments",
    ],
    "another order of devices, other names of axes": [
        "emit/test_transforms.py::test_compile_refuses_what_does_not_fit"
    ],
    "out of memory": ["machines/test_foresight.py::test_a_run_that_does_not_fit_is_refused"],
    "a collective that times out": [
        "machines/test_processes.py::test_a_process_that_fails_midway_is_named_and_the_others_end"
    ],
    "files of every kind": [
        "io/test_files.py::test_every_kind_of_file_is_read_or_refused",
        "io/test_files.py::test_every_kind_of_file_is_written_whole_or_refused",
        "io/test_files.py::test_the_output_is_no_input",
    ],
    "flags and options": [
        "commands/test_cli.py::test_exit_codes",
        "notation/test_errors.py::test_malformed_options",
        "commands/test_cli.py::test_usage_is_told_as_other_errors_are",
    ],
    "names, line breaks, code": ["emit/test_payloads.py::test_a_payload_in_the_place_of_a_name_never_runs"],
}


@cache
def named_in(module: str) -> frozenset[str]:
    tree = ast.parse((TESTS / module).read_text(encoding="utf-8"))
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize(("row", "names"), [*FAULTS.items(), *GIVEN.items()], ids=lambda each: str(each)[:40])
def test_every_row_has_its_tests(row, names):
    missing = [name for name in names if name.split("::")[1] not in named_in(name.split("::")[0])]
    assert names and missing == []
