"""What is planned for whoever asks: the best plan step by step, or in a form that takes less, and leaner ones alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from shardc.cost import LinkModel
from shardc.interface.asked import Asked
from shardc.ir.program import Program
from shardc.planner import Front, Idle, Objective, PlannedProgram, or_as_one, otherwise, overlapped, pareto
from shardc.planner.program.others import fastest
from shardc.planner.program.overlap import Search


def chosen(search: Search, asked: Asked) -> PlannedProgram:
    """What a search finds within the limit, with products and collectives as one, or steps in chunks, where they
    gain."""
    program, model, objective, memory = asked.program, asked.model, asked.objective, asked.memory
    found = or_as_one(search, program, model, objective, memory, asked.idle, asked.overlap)
    made = overlapped(found, model, asked.overlap, objective, memory, otherwise(found, model, asked.idle))
    return fastest(made, model, asked.overlap, objective, memory)


def front_of(asked: Asked, most: int, say: Callable[[str], None]) -> Front:
    """Time against memory: what is chosen under every limit up to that asked for."""

    def finished(within: Callable[[int | None], PlannedProgram]) -> Callable[[int | None], PlannedProgram]:
        def search(
            program: Program, model: LinkModel, objective: Objective, memory: int | None, idle: Idle
        ) -> PlannedProgram:
            return within(memory)

        return lambda memory: chosen(search, replace(asked, memory=memory))

    return pareto(asked.program, asked.model, asked.objective, asked.memory, most, asked.idle, say, finished)
