"""Compiles the best few plans of a program in their forms, and the program left to XLA; replays all; keeps the best.

    1  the plans, the first as it is and by
       its steps, and XLA's own program       every one compiled and replayed
    2  of the fastest plan, each product      left to XLA with collectives beside it, one group at a time
    3  of each product the group that gained  all of them at once
    4  of the fastest plan with no chunks     steps in chunks of each likely dim, few and many

What is kept is never slower in replay than XLA's own program, which is one of those tried. Each is proved to be the
program before it is compiled: a form that is wrong is told (SHC900), however fast it may be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from shardc.compiled.compilers import slice_mesh
from shardc.compiled.hlo.text import UnreadableHlo
from shardc.compiled.tune.made import Made, made
from shardc.compiled.tune.plans import XLA, Candidate, as_planned, by_xla, forms, has_chunks, in_chunks, plans, together
from shardc.compiled.tune.tuned import Tried, Tuned
from shardc.cost.model import LinkModel
from shardc.emit import source
from shardc.errors import ShardcError
from shardc.interface.asked import Asked
from shardc.lowering.as_one import may_be_grouped
from shardc.lowering.together import all_of, apart
from shardc.machines.jitted import repeat
from shardc.machines.libtpu import other_libtpu, reading
from shardc.machines.stderr import caught_stderr
from shardc.machines.tpu import lower_schedule
from shardc.planner import Objective, Overlap, PlannedProgram
from shardc.proving import BESIDE_A_COMPILATION, Proof, prove, refuse_wrong

FEW = 4  # plans beside the first
AT_ONCE = 2  # compilations
Say = Callable[[str], None]


def tune(found: PlannedProgram, asked: Asked, few: int = FEW, say: Say = lambda line: None) -> Tuned:
    """What is tried of a plan, and which is the fastest. Needs a slice and libtpu: SHC224, SHC311.

    Raises the compiler's refusal (SHC308) where it refuses every candidate, and SHC900 for one that is wrong.
    """
    trial = _Trial(asked, say)
    whole = [by_xla(found, asked)] if _is_for_xla(found) else []
    steps = list(plans(found, asked, few))
    trial.all([*steps, *as_planned(found), *whole])
    fastest = min(trial.tried[: len(steps)], key=trial.rank)
    if fastest.side is not None and asked.overlap is not Overlap.OFF:
        _in_forms(fastest, trial)
        _in_chunks(trial.tried[: len(steps)], trial)
    best = min(range(len(trial.tried)), key=lambda place: trial.rank(trial.tried[place]))
    if trial.tried[best].side is None:
        assert trial.errors
        raise trial.errors[0]
    notes = [*other_libtpu(), *([] if whole else ["jax.jit has no way to say unreduced: XLA's own is not tried"])]
    open_ = [each.proof.why for each in trial.tried if not each.proof.holds]
    notes += [f"{len(open_)} of {len(trial.tried)} candidates are not proved: {open_[0]}"] if open_ else []
    return Tuned(tuple(trial.tried), best, tuple(notes))


def _is_for_xla(found: PlannedProgram) -> bool:
    return may_be_grouped(found.whole or found.schedule)


def _in_forms(plan: Tried, trial: _Trial) -> None:
    """Each group by itself, then of each product the best of those that gained."""
    alone = list(forms(plan.candidate, trial.asked))
    trial.all([candidate for _, _, candidate in alone if candidate.label not in trial.by_label])
    taken = ((trial.by_label[candidate.label].replayed_s, (ordered, group)) for ordered, group, candidate in alone)
    gaining = sorted((each for each in taken if each[0] < plan.replayed_s), key=lambda each: each[0])
    chosen = [group for _, group in apart(gaining, lambda each: each[1])]
    if len(chosen) > 1:
        trial.all([together(plan.candidate, all_of(plan.candidate.found.schedule, chosen), trial.asked)])


def _in_chunks(plans: Sequence[Tried], trial: _Trial) -> None:
    """Steps of the fastest of these plans that has none in chunks yet."""
    known = [each.candidate.found.schedule for each in trial.tried]
    uncut = sorted((each for each in plans if not has_chunks(each.candidate)), key=trial.rank)
    for plan in uncut[:1]:
        found = in_chunks(plan.candidate, trial.asked)
        trial.all([candidate for candidate in found if candidate.found.schedule not in known])


@dataclass(slots=True)
class _Trial:
    """Compiles and replays, and keeps what came out, in order."""

    asked: Asked
    say: Say
    tried: list[Tried] = field(default_factory=list)
    errors: list[ShardcError] = field(default_factory=list)
    meshes: dict[Any, Any] = field(default_factory=dict)

    @property
    def by_label(self) -> dict[str, Tried]:
        return {each.candidate.label: each for each in self.tried}

    def rank(self, tried: Tried) -> tuple[float, ...]:
        """What is kept has the least of this: what keeps the memory limit before all; of equals one whose steps are
        known, and the first."""
        side, memory = tried.side, self.asked.memory
        if side is None:
            return (float("inf"),)
        over = memory is not None and side.memory is not None and side.memory.total_bytes > memory
        both = (tried.replayed_s, side.wire_bytes)
        ordered = both[::-1] if self.asked.objective is Objective.BYTES else both
        return (over, *ordered, tried.candidate.name == XLA)

    def all(self, candidates: Iterable[Candidate]) -> list[Tried]:
        """Every one of these, some at a time."""
        given = list(candidates)
        proofs = [self._proved(each) for each in given]
        with caught_stderr() as caught, ThreadPoolExecutor(AT_ONCE) as pool:
            started = [pool.submit(made, *self._lowered(each)) for each in given]
            found = list[Tried]()
            for candidate, proof, future in zip(given, proofs, started, strict=True):
                with caught.let_by():
                    self._tell(candidate, len(found), len(given))
                found.append(self._tried(candidate, proof, future.result))
                self.tried.append(found[-1])
        repeat(caught.text)
        return found

    def _tell(self, candidate: Candidate, done: int, count: int) -> None:
        best = min((each.replayed_s for each in self.tried), default=float("inf"))
        so_far = "" if best == float("inf") else f", the best so far {best * 1e6:,.0f} µs"
        self.say(f"compiling {done + 1} of {count}: {candidate.label}{so_far}")

    def _proved(self, candidate: Candidate) -> Proof:
        schedule = candidate.found.schedule
        proof = prove(schedule, source(schedule, self._model(candidate).chip.name), BESIDE_A_COMPILATION)
        refuse_wrong(proof)
        return proof

    def _tried(self, candidate: Candidate, proof: Proof, wait: Callable[[], Made]) -> Tried:
        try:
            with reading(UnreadableHlo):
                return Tried(candidate, proof, wait().side(candidate.label, self._model(candidate)))
        except ShardcError as error:
            self.errors.append(error)
            return Tried(candidate, proof, None, str(error).splitlines()[0])

    def _model(self, candidate: Candidate) -> LinkModel:
        return self.asked.model.on(candidate.found.schedule.by)

    def _lowered(self, candidate: Candidate) -> tuple[Any, Any]:
        schedule, by = candidate.found.schedule, candidate.found.schedule.by
        if by not in self.meshes:
            self.meshes[by] = slice_mesh(schedule.mesh, self._model(candidate))
        return lower_schedule(schedule, self.meshes[by]), self.meshes[by]
