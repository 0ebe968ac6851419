"""Exchanges in pieces of unequal sizes: their rounds, replayed cell by cell, against a count made device by device."""

import math
from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from shardc.ir import uneven
from shardc.ir.collectives import UnevenExchange, apply, uneven_exchange
from shardc.ir.exchange import moved, tails
from shardc.ir.mesh import Mesh
from shardc.ir.operations import IllegalMove
from shardc.ir.sharding import Sharding
from shardc.ir.uneven import cells, timetable
from shardc.rules.placements import placements
from shardc.testing import needed_bytes

SIZES = [(2, 3), (2, 3, 4), (4, 6), (6, 4), (3, 4, 2), (12, 18), (4, 4, 6), (2, 4), (5, 1, 3), (2, 2, 2)]


@st.composite
def pairs(draw, sizes=SIZES):
    """Two shardings of an array of rank 1 to 3; axes that neither uses are idle."""
    mesh = Mesh.of(zip("WXYZ", draw(st.sampled_from(sizes)), strict=False))
    every = list(placements(mesh.names, draw(st.integers(1, 3))))
    source, target = (Sharding(draw(st.sampled_from(every))) for _ in range(2))
    return mesh, source, target


def least_shape(mesh, source, target):
    return tuple(map(math.lcm, source.blocks(mesh), target.blocks(mesh)))


def blocks_of(sharding, whole, mesh, axes):
    """The block of each device, counted over `axes` in the order of the mesh; the others at 0."""
    found = []
    for place in product(*(range(mesh.size(axis)) for axis in axes)):
        index = sharding.block_of(dict.fromkeys(mesh.names, 0) | dict(zip(axes, place, strict=True)), mesh)
        local = sharding.local_shape(whole.shape, mesh)
        found.append(whole[tuple(slice(n * size, (n + 1) * size) for n, size in zip(index, local, strict=True))])
    return found


@settings(max_examples=200, deadline=None)
@given(pairs())
def test_every_device_ends_with_its_block_and_received_no_more_than_the_busiest_needs(case):
    """The rounds are replayed on arrays in which each cell is one number of its own.

    It tells apart: a cell sent that is not held, a device that sends or receives twice in a round, a cell laid
    elsewhere, and one cell more than the count of `needed_bytes`, which looks at all devices and at no cells.
    """
    mesh, source, target = case
    found = timetable(source.dims, target.dims, mesh)
    assume(found is not None)
    shape = least_shape(mesh, source, target)
    whole = np.arange(math.prod(shape)).reshape(shape)
    axes = moved(tails(source.dims, target.dims, mesh), mesh)
    # Axes that stay where they are cut alike before and after: the blocks of one group are those of all.
    mine = [list(block.ravel()) for block in blocks_of(source, whole, mesh, axes)]
    for each in found.rounds:
        senders, receivers = zip(*each.pairs, strict=True)
        assert max(Counter(senders).values()) == max(Counter(receivers).values()) == 1
        assert all(sender != receiver for sender, receiver in each.pairs)
        sent = {sender: [mine[sender][cell] for cell in each.cells[sender]] for sender in senders}
        assert {len(row) for row in each.cells} == {len(each.cells[0])}
        arrived = {receiver: sent[sender] for sender, receiver in each.pairs}
        mine = [held + arrived.get(device, [None] * len(each.cells[0])) for device, held in enumerate(mine)]
    for held, laid, wanted in zip(mine, found.laid, blocks_of(target, whole, mesh, axes), strict=True):
        assert [held[number] for number in laid] == list(wanted.ravel())
    assert sum(len(each.cells[0]) for each in found.rounds) == needed_bytes(mesh, shape, source, target, 1)


@settings(max_examples=200, deadline=None)
@given(pairs(), st.integers(1, 3))
def test_what_it_brings_is_what_some_device_needs_and_does_not_hold(case, times):
    mesh, source, target = case
    move = uneven_exchange(source, target.dims, mesh)
    assume(move is not None)
    shape = tuple(size * times for size in least_shape(mesh, source, target))
    local = math.prod(source.local_shape(shape, mesh)) * 4
    assert move.wire_bytes(source, mesh, local) == needed_bytes(mesh, shape, source, target, 4)
    assert apply(move, source, mesh) == target


def test_one_worked_by_hand():
    """`A[I_X] → A[I_Y]`, X=2, Y=3: device (x, y), number 3x + y, has cells 3x.. of 6 and wants 2y, 2y + 1.

    (0, 2) wants 4 and 5, (1, 0) wants 0 and 1, of which they have none; so two cells, in two rounds or in one of two.
    """
    mesh = Mesh.of({"X": 2, "Y": 3})
    grid = cells(tails((("X",),), (("Y",),), mesh))
    assert (grid.block, grid.wanted, grid.asked) == (3, (2,), 2)
    found = timetable((("X",),), (("Y",),), mesh)
    received = Counter()
    for each in found.rounds:
        received.update({receiver: len(each.cells[0]) for _, receiver in each.pairs})
    assert received[2] == received[3] == 2 and 0 not in received and 5 not in received


@pytest.mark.instant
@pytest.mark.parametrize(
    "change",
    [{"rounds": (6,)}, {"rounds": (1,) * 6}, {"cells": 5}, {"axes": ("Y",)}, {"dims": (("X",), ("Y",))}],
    ids=lambda change: next(iter(change)),
)
def test_what_it_refuses(change):
    mesh = Mesh.of({"X": 2, "Y": 3})
    source = Sharding.of(["X", "Y"])
    good = uneven_exchange(source, (("Y",), ("X",)), mesh)
    assert apply(good, source, mesh).dims == good.dims
    fields = {name: getattr(good, name) for name in ("axes", "dims", "cells", "rounds")}
    with pytest.raises(IllegalMove):
        apply(UnevenExchange(**(fields | change)), source, mesh)
    with pytest.raises(IllegalMove):
        apply(good, Sharding.of(["X", "Y"], "Z"), Mesh.of({"X": 2, "Y": 3, "Z": 2}))


def test_none_that_is_too_long_to_write(monkeypatch):
    mesh = Mesh.of({"X": 2, "Y": 3})
    dims = (("X",), ("Y",)), (("Y",), ("X",))
    assert timetable(*dims, mesh) is not None
    monkeypatch.setattr(uneven, "MAX_NUMBERS", 6 * 12 - 1)
    assert timetable(*dims, mesh) is None
    assert timetable(dims[0], dims[0], mesh) is None  # nothing moves
