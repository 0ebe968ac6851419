"""Every plan of a front runs on simulated devices, and is equal to NumPy on every shard."""

import subprocess
import sys

import pytest

import shardc
from shardc.machines.run import run

pytestmark = pytest.mark.devices

CUBE = "X=2,Y=2,Z=2"
FRONTS = [
    ("A[I_Y, J_X] · B[J, K_YX] → C[I, K_Y]", "X=4,Y=2", "I=64,J=64,K=64", "time"),
    ("A[I_Y, J_XZ] · B[J_Y, K_XZ] → C[I_Z, K_XY]", CUBE, "I=512,J=512,K=512", "time"),
    ("A[I_X, J] · B[J_?, K_?] → C[I, K_X]", "X=4,Y=2", "I=64,J=512,K=512", "bytes"),
    ("T = In[B_X, D_Y] · W[D_X, F_Y]; Out[B_X, D_Y] = relu(T) · V[F_Y, D_X]", "X=4,Y=2", "B=512,D=256,F=1024", "time"),
]


@pytest.mark.parametrize(("text", "mesh", "dims", "objective"), FRONTS)
def test_every_plan_of_a_front_runs(text, mesh, dims, objective):
    front = shardc.plan(text, mesh=mesh, dims=dims, dtype="f32", chip="v5p", objective=objective).pareto()
    assert len(front) > 1
    for point in front:
        report = run(point.schedule)
        assert report.ok, f"{report}\n\n{point}"


@pytest.mark.exhaustive
def test_the_memory_of_a_row_runs_that_plan():
    """What the table of `plan --pareto` says: its number, given to another command."""
    text, mesh, dims, _ = FRONTS[0]
    program = [text, "--mesh", mesh, "--dims", dims, "--dtype", "f32"]
    leanest = shardc.plan(text, mesh=mesh, dims=dims, dtype="f32").pareto()[-1]
    command = [sys.executable, "-m", "shardc", "run", *program, "--memory", str(leanest.cost.peak_bytes)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert found.returncode == 0, found.stderr
    assert found.stdout.startswith(leanest.table(1)) and "equal to NumPy" in found.stdout
