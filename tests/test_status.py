"""The status of a scale: what is done, running, failed, interrupted and stale, and what is left."""

from pathlib import Path

import pytest
import torch
from filelock import FileLock

from inverse_depth import checkpoint
from inverse_depth.cli import main
from inverse_depth.cost import training_minutes
from inverse_depth.freshness import Freshness, training_identity
from inverse_depth.paths import Paths
from inverse_depth.settings import load_settings, trained_as
from inverse_depth.status import Pace, duration, is_locked, last_error, pace, report, run_status

PARAMS = "tests/tiny.yaml"


def freshness() -> Freshness:
    return Freshness(load_settings(PARAMS), Paths("tiny"))


def unfinished(name: str = "nonlinear_top2/a0-b0-L2-seed0"):
    """Forget a run's results; what the scale says of it then, and the run."""
    state = freshness()
    run = next(run for run in state.runs if str(run) == name)
    state.paths.evaluation(run).unlink()
    state.paths.checkpoint(trained_as(run)).unlink()
    return freshness(), run


def save_snapshot(state: Freshness, run, identity: str) -> None:
    metadata = {"identity": identity, "step": 10, "seconds": 60.0}
    checkpoint.save(state.paths.snapshot(run), {"w": torch.zeros(1)}, metadata)


def test_a_finished_scale_has_nothing_left(project):
    page = report(freshness(), cores=1)
    assert page.startswith("Scale tiny, 7 runs: 7 done\n")
    assert page.endswith("No training is left")


def test_the_command_prints_it(project, capsys):
    assert main(["--params", PARAMS, "status"]) == 0
    assert "7 done" in capsys.readouterr().out


def test_a_run_without_results_is_to_do(project):
    state, run = unfinished()
    assert run_status(state, run).state == "to do"
    assert "Training left: under a minute" in report(state, cores=2)


def test_a_run_whose_lock_is_held_is_running(project):
    state, run = unfinished()
    save_snapshot(state, run, training_identity(run))
    lock = state.paths.snapshot(run).with_suffix(".lock")
    with FileLock(lock):
        found = run_status(state, run)
        assert (found.state, found.detail) == ("running", "step 40 of 40, under a minute left")
        state.paths.history(run).unlink()
        assert run_status(state, run).detail == "step 10 of 40, 3 min left"
        state.paths.snapshot(run).unlink()
        assert run_status(state, run).detail == "just started"
    lock.touch()
    assert not is_locked(lock)


def test_an_unlocked_snapshot_is_an_interrupted_run(project):
    state, run = unfinished()
    save_snapshot(state, run, training_identity(run))
    found = run_status(state, run)
    assert (found.state, found.detail.split(";")[0]) == ("interrupted", "at step 10 of 40")


def test_a_snapshot_of_other_settings_does_not_count(project):
    state, run = unfinished()
    save_snapshot(state, run, "other")
    assert run_status(state, run).state == "to do"


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ("train: 10%\nerror: the loss is nan\n", "the loss is nan"),
        ("Traceback (most recent call last):\n  File x\nKeyError: 'a'\n", "KeyError: 'a'"),
        ("train: 100%\n", ""),
    ],
)
def test_a_failed_run_says_why_and_where_its_log_is(project, log, error):
    state, run = unfinished()
    path = state.paths.log("train", str(run))
    path.parent.mkdir(parents=True)
    path.write_text(log)
    assert last_error(path) == error
    found = run_status(state, run)
    expected = ("failed", f"{error} (log: {path})") if error else ("to do", "")
    assert (found.state, found.detail) == expected


def test_a_failed_product_says_why_and_where_its_log_is(project):
    path = Paths("tiny").log("table", "table1")
    path.parent.mkdir(parents=True)
    path.write_text("error: no space\n")
    Paths("tiny").table("table1").unlink()
    assert f"  table1: no space (log: {path})" in report(freshness(), cores=1)


def test_a_stale_run_says_which_setting_changed(project):
    settings = Path(PARAMS)
    settings.write_text(settings.read_text().replace("steps: 40", "steps: 50"))
    page = report(freshness(), cores=1)
    assert "7 runs: 7 stale" in page
    assert "  nonlinear_top2 (4 runs): optimization.steps: 40 → 50" in page


def test_the_estimate_follows_the_finished_runs(project):
    state = freshness()
    learned = pace(state)
    assert learned.finished == len(state.served)
    run = state.runs[0]
    assert Pace({}).minutes(run) == training_minutes(run)
    assert Pace({"other": [3.0]}).minutes(run) == pytest.approx(3 * training_minutes(run))
    mixed = Pace({"other": [3.0], run.experiment: [1.0, 2.0, 9.0]})
    assert mixed.minutes(run) == pytest.approx(2 * training_minutes(run))


@pytest.mark.parametrize(
    ("minutes", "words"), [(0.2, "under a minute"), (61.2, "61 min"), (150, "2.5 h")]
)
def test_durations_in_words(minutes, words):
    assert duration(minutes) == words
