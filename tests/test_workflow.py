"""The real tools, from a reproduced copy of the project: interruption, clones, DVC, restamping."""

import csv
import hashlib
import json
import os
import signal
import time
from contextlib import suppress

import pytest
from workspace import ROOT, TARGETS, Project, copy_project, jobs_in, reproduced, start, wait_for

EASY = "nonlinear_easy/a0-b0-L1-seed0"
CHECKPOINT = f"results/paper/checkpoints/{EASY}.safetensors"
SNAPSHOT = f"snapshots/paper/{EASY}.safetensors"
TRAIN_CODE = "src/inverse_depth/train.py"


@pytest.fixture
def project(tmp_path, tmp_path_factory) -> Project:
    return reproduced(tmp_path_factory).copied(tmp_path / "project")


def digests(project: Project, pattern: str) -> dict[str, str]:
    """SHA-256 of the files that match, by path."""
    return {
        path.relative_to(project.root).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(project.root.glob(pattern))
        if path.is_file()
    }


@pytest.fixture
def long(project) -> Project:
    """A project in which one run is to be trained, for seconds and many snapshots."""
    project.set("experiments.nonlinear_easy.training.steps", 4000)
    return project


@pytest.mark.parametrize(
    ("stop", "command"),
    [
        (signal.SIGINT, ("dvc", "repro", "train@nonlinear_easy")),
        (signal.SIGKILL, ("snakemake", "--cores", "1", "train_nonlinear_easy")),
    ],
    ids=["Ctrl-C of dvc repro", "kill -9 of snakemake"],
)
def test_an_interrupted_workflow_resumes_to_the_same_bits(long, tmp_path, stop, command):
    whole = long.copied(tmp_path / "whole")
    whole.cli("train", EASY)
    newest = long.root / SNAPSHOT
    process = start(long, *command)
    wait_for(newest.with_suffix(".previous"), process)
    os.killpg(process.pid, stop)
    process.communicate()
    assert not (long.root / CHECKPOINT).exists()
    damaged = stop == signal.SIGKILL and newest.exists()
    if damaged:
        newest.write_bytes(newest.read_bytes()[:-1])
    found = long.run(*command)
    assert f"{EASY} continues from step" in found.stdout
    if damaged:
        assert f"{newest.relative_to(long.root)} is corrupted" in found.stdout
    assert digests(long, CHECKPOINT) == digests(whole, CHECKPOINT)
    assert not newest.exists()


def time_of_snapshot(project, process) -> int:
    """When the newest snapshot was taken; while the next is written, there is none for a moment."""
    while True:
        wait_for(project.root / SNAPSHOT, process)
        with suppress(FileNotFoundError):
            return (project.root / SNAPSHOT).stat().st_mtime_ns


def test_a_second_process_stops_and_the_first_goes_on(long):
    long.set("experiments.nonlinear_easy.training.steps", 1_000_000)
    first = start(long, "dvc", "repro", "train@nonlinear_easy")
    wait_for(long.root / SNAPSHOT, first)
    second = long.run("snakemake", "--cores", "1", "train_nonlinear_easy", check=False)
    assert second.returncode and "error: another snakemake (process" in second.stdout
    third = long.run("dvc", "repro", check=False)
    assert third.returncode and "lock" in third.stdout and "Traceback" not in third.stdout
    fourth = long.cli("train", EASY, check=False)
    assert fourth.returncode and f"another process is training {EASY}" in fourth.stdout
    before = time_of_snapshot(long, first)
    for _ in range(200):
        if time_of_snapshot(long, first) > before:
            break
        time.sleep(0.05)
    else:
        raise AssertionError("the first process stopped taking snapshots")
    assert first.poll() is None
    os.killpg(first.pid, signal.SIGINT)
    first.communicate()


def test_settings_edited_during_the_workflow_fail_its_jobs(long):
    process = start(long, "snakemake", "--cores", "1", f"results/paper/evaluations/{EASY}.json")
    wait_for(long.root / SNAPSHOT, process)
    long.set("evaluation.contexts", 320)
    output, _ = process.communicate()
    assert process.returncode and "settings or code changed while the workflow" in output
    assert not (long.root / f"results/paper/evaluations/{EASY}.json").exists()
    assert long.stale("evaluate_nonlinear_easy") == [f"evaluate {EASY}"]


def test_checkpoints_come_back_through_a_remote_byte_by_byte(project, tmp_path):
    project.run("dvc", "remote", "add", "--default", "store", str(tmp_path / "store"))
    project.run("dvc", "push")
    project.commit("Remote")
    clone = project.cloned(tmp_path / "clone")
    assert digests(clone, "**/*.safetensors") == {} != digests(project, "**/*.safetensors")
    clone.run("dvc", "pull")
    assert digests(clone, "results/**/*") == digests(
        project, "results/paper/[!lb]*/**/*"
    ) | digests(project, "results/paper/*.json")
    assert clone.stale("train", *TARGETS) == []
    assert clone.run("dvc", "status").stdout.strip() == "Data and pipelines are up to date."


def test_a_clone_without_remote_rebuilds_from_the_committed_evaluations(project, tmp_path):
    clone = project.cloned(tmp_path / "mit Leerzeichen ü")
    table = clone.root / "results/paper/tables/table1.csv"
    before = table.read_bytes()
    table.unlink()
    (clone.root / "results/paper/figures/figure04.pdf").unlink()
    assert clone.snakemake() == ["build figure04", "build table1"]
    assert table.read_bytes() == before
    assert clone.run("git", "status", "--short", "results/paper/tables").stdout == ""


def test_an_experiment_of_dvc_retrains_what_it_changes(project):
    key = "scales.paper.experiments.nonlinear_top2.N"
    found = project.run("dvc", "exp", "run", "--set-param", f"{key}=5", *TARGETS)
    trained = [job for job in jobs_in(found.stdout) if job.startswith("train")]
    assert trained == ["train nonlinear_top2/a0-b0-L1-seed0"]
    shown = project.run("dvc", "params", "diff", "HEAD", "--json").stdout
    assert json.loads(shown)["params.yaml"] == {key: {"old": 4, "new": 5, "diff": 1}}
    assert key in project.run("dvc", "exp", "show", "--csv").stdout
    assert project.stale() == []


def test_dvc_shows_the_headline_and_the_depth_curves(finished, tmp_path):
    project = copy_project(tmp_path / "project")
    (project.root / "results").mkdir(exist_ok=True)
    for name in ("comparison.json", "evaluations.csv"):
        target = project.root / "results/paper" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes((finished / "results/tiny" / name).read_bytes())
    shown = json.loads(project.run("dvc", "metrics", "show", "--json").stdout)
    assert shown[""]["data"]["results/paper/comparison.json"]["data"]["total"] > 0
    project.run("dvc", "plots", "show", "--out", "plots")
    page = (project.root / "plots/index.html").read_text(encoding="utf-8")
    assert "Loss against depth" in page and "nonlinear_top2" in page


def test_dvc_yaml_is_in_step_with_the_settings(tmp_path):
    project = copy_project(tmp_path / "project")
    project.cli("pipeline")
    changed = project.root / "dvc.yaml"
    assert changed.read_bytes() == (ROOT / "dvc.yaml").read_bytes(), (
        "run `python -m inverse_depth pipeline`"
    )


def refactor(project: Project) -> None:
    """Other code in training and evaluation that computes the same."""
    project.edit(TRAIN_CODE, "peak * min(rise, fall)", "min(rise, fall) * peak")
    project.edit("src/inverse_depth/decomposition.py", "\n\n\n", "\n\n\nUNUSED = 1\n\n\n")


def test_restamping_after_a_refactor_proves_it_and_keeps_the_results(project):
    refactor(project)
    assert any(job.startswith("train") for job in project.stale())
    found = project.cli("restamp", "--sample", "nonlinear_top2/a0-b1-L1-seed0")
    assert "shown on a0-b1-L1-seed0 (weights differ by 0" in found.stdout
    with (project.root / "results/paper/restamps.csv").open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert {(row["experiment"], row["stage"]) for row in rows} == {
        (experiment, stage)
        for experiment in ("nonlinear_easy", "nonlinear_top2")
        for stage in ("training", "evaluation")
    }
    assert all(row["old"] != row["new"] and float(row["weights"]) == 0 for row in rows)
    assert project.stale() == []
    changed = project.run("git", "status", "--short", "results").stdout
    assert changed.split() == ["??", "results/paper/restamps.csv"]
    assert jobs_in(project.run("dvc", "repro", *TARGETS).stdout) == []
    assert project.cli("restamp", check=False).stdout.startswith("error: no run is stale by its")


def test_restamping_is_refused_where_results_differ(project):
    project.edit(TRAIN_CODE, "betas=(0.9, 0.999)", "betas=(0.9, 0.99)")
    before = digests(project, "results/**/*")
    found = project.cli("restamp", check=False)
    assert found.returncode == 1 and "Traceback" not in found.stdout
    for experiment in ("nonlinear_easy", "nonlinear_top2"):
        assert f"{experiment}/a0-b0-L1-seed0: weights differ by" in found.stdout
    assert digests(project, "results/**/*") == before
    (project.root / CHECKPOINT).unlink()
    found = project.cli("restamp", "--sample", EASY, check=False)
    assert found.returncode == 1 and f"`dvc pull {CHECKPOINT}` fetches it" in found.stdout


def test_the_whole_tiny_workflow(tmp_path):
    project = copy_project(tmp_path / "project")
    tiny = ("--config", "params=tests/tiny.yaml", "--cores", "all")
    project.run("snakemake", *tiny)
    results = project.root / "results/tiny"
    for name in ("comparison.md", "tables/table1.csv", "figures/figure06.png", "evaluations.csv"):
        assert (results / name).stat().st_size > 0
    assert jobs_in(project.run("snakemake", *tiny).stdout) == []
    (results / "figures/figure06.png").unlink()
    assert jobs_in(project.run("snakemake", *tiny, "figure6").stdout) == ["build figure06"]
