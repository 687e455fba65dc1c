"""The benchmarks on small sizes, and what is concluded from them."""

import math
from dataclasses import replace

import pandas as pd
import pytest
import torch
from workspace import ROOT

from inverse_depth import bench
from inverse_depth.process import as_in_a_job
from inverse_depth.settings import load_settings, resolve_runs

SMALL = bench.Data(task="top_k", k=2, a=1.0, b=0.0, d=4, P=8)


def test_jobs_run_at_once_on_one_thread_each():
    threads = torch.get_num_threads()
    times = bench.in_jobs(2, "gradient", SMALL, 2, duration=0.1)
    assert len(times) == 2
    assert all(0 < value < 1 for value in times)
    assert torch.get_num_threads() == threads


def test_the_estimate_grows_with_steps_and_validations():
    run = resolve_runs(load_settings(ROOT / "tests/tiny.yaml"))[0]
    optimization = replace(run.optimization, steps=50, validations=1, validation_contexts=64)

    def estimated(**changes):
        return bench.run_seconds(replace(run, optimization=replace(optimization, **changes)))

    base = estimated()
    assert estimated(steps=5_000) > 10 * base
    assert estimated(validations=5_000) > 10 * base
    frame = bench.estimate([run, replace(run, name="again")])
    assert frame["runs"].tolist() == [2]


def measured(contexts, gradient):
    """The benchmarks' CSV with round numbers, and these parts of a step."""
    steps = {"literal": 1.0, "in use": 0.008, "a job a core": 0.006, "roofline": 0.003}
    rows = [("training step", "L=64", form, value, math.nan) for form, value in steps.items()]
    rows += [("shares", "d=16 a=0", "contexts", contexts, math.nan)]
    rows += [("shares", "d=16 a=0", "gradient", gradient, math.nan)]
    rows += [("sharing", f"jobs={n}", "jobs", s, math.nan) for n, s in ((1, 1.0), (2, 1.0), (4, 2))]
    rows += [("depth scaling", f"L={L}", "in use", L, L**0.5) for L in (16, 64, 256, 1024)]
    frame = pd.DataFrame(rows, columns=["benchmark", "case", "form", "seconds", "peak_mb"])
    return frame.assign(threads=2)


def test_goals_are_judged_by_what_was_measured():
    frame = measured(contexts=1.0, gradient=9.0)
    table = bench.goals(frame, {"quick": 0.1, "paper": 4.0}).set_index("goal")
    assert table["met"].all()
    assert table.loc["gradient, L=64: literal to in use", "measured"] == pytest.approx(125)
    assert table.loc["gradient, L=64: a job a core to roofline", "measured"] == pytest.approx(2)
    assert table.loc["step, L=64, d=16 a=0: share of contexts", "measured"] == pytest.approx(0.1)
    assert table.loc["memory against L=16...1024: slope", "measured"] == pytest.approx(0.5)
    assert table.loc["scale quick: minutes on these cores", "measured"] == pytest.approx(3)
    assert table.loc["scale paper: hours on these cores", "measured"] == pytest.approx(2)


def test_a_goal_that_is_missed_is_said_to_be():
    frame = measured(contexts=3.0, gradient=7.0)
    table = bench.goals(frame, {"quick": 0.1, "paper": 13.0}).set_index("goal")
    missed = table.index[~table["met"]].tolist()
    assert missed == [
        "step, L=64, d=16 a=0: share of contexts",
        "scale paper: hours on these cores",
    ]


@pytest.mark.parametrize(("environment", "threads"), [(None, 1), ("2", 2)])
def test_what_runs_by_hand_has_the_threads_of_a_job(environment, threads, monkeypatch):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    if environment:
        monkeypatch.setenv("OMP_NUM_THREADS", environment)
    as_in_a_job()
    assert torch.get_num_threads() == threads
    torch.set_num_threads(before)
