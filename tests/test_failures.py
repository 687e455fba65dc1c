"""The mistakes that a new user makes: one message that says what to do, and nothing lost."""

import errno
import json
import os
import re
import resource
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
import torch
import yaml
from conftest import PARAMS, ROOT, copy_project
from filelock import FileLock
from workspace import wait_for

import inverse_depth
from inverse_depth.cli import main

RUN = "nonlinear_top2/a0-b0-L2-seed0"
CHECKPOINT = Path(f"results/tiny/checkpoints/{RUN}.safetensors")
EVALUATION = Path(f"results/tiny/evaluations/{RUN}.json")
ENVIRONMENT = {**os.environ, "PYTHONPATH": "src", "OMP_NUM_THREADS": "1"}


def contents(folder: Path) -> dict[str, bytes]:
    """Every result, by path; logs and benchmarks tell of attempts and do not count."""
    files = [path for path in folder.glob("results/tiny/**/*") if path.is_file()]
    return {
        str(path): path.read_bytes()
        for path in files
        if not {"logs", "benchmarks"}.intersection(path.parts)
    }


class Outcome:
    """What a user sees of a command that failed."""

    def __init__(self, code: int, text: str):
        self.code = code
        self.text = text

    def says(self, *parts: str) -> None:
        """It failed, in words that a user understands, all of these among them."""
        assert self.code != 0, self.text
        assert "Traceback (most recent call last)" not in self.text, self.text
        for part in parts:
            assert part in self.text, self.text

    def is_one_message(self, *parts: str) -> None:
        """Beside progress bars it says one thing."""
        self.says(*parts)
        assert len(re.findall("^error: ", self.text, re.MULTILINE)) == 1, self.text


@pytest.fixture
def command(project, capsys):
    """Run a command in this process; what it says if it fails, with every result unharmed."""

    def run(*arguments: str) -> Outcome:
        before = contents(project)
        code = main(["--params", PARAMS, *arguments])
        assert contents(project) == before
        return Outcome(code, capsys.readouterr().err)

    return run


def edited(project: Path, **changes) -> None:
    """Set keys of the experiment nonlinear_top2, or with `scale_` those of the scale."""
    settings = yaml.safe_load((project / PARAMS).read_text())
    scale = settings["scales"]["tiny"]
    for key, value in changes.items():
        if key.startswith("scale_"):
            scale[key.removeprefix("scale_")].update(value)
        else:
            scale["experiments"]["nonlinear_top2"][key] = value
    (project / PARAMS).write_text(yaml.safe_dump(settings))


def shell(*command: str, cwd: Path, **options) -> Outcome:
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env=ENVIRONMENT, timeout=120, **options
    )
    return Outcome(done.returncode, done.stderr + done.stdout)


def snakemake(*arguments: str, cwd: Path, config: str = f"params={PARAMS}") -> Outcome:
    command = [sys.executable, "-m", "snakemake", "--cores", "1", "--config", config, "--"]
    return shell(*command[:-1], *arguments[:-1], "--", arguments[-1], cwd=cwd)


# Settings


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"widht": 4}, "nonlinear_top2.widht: unknown key; check its spelling"),
        ({"model": "transformer"}, "nonlinear_top2.model: is 'transformer'; allowed: context"),
        ({"k": 9}, "nonlinear_top2.k: is 9; it must be at most P = 8"),
        ({"seeds": [-1]}, "nonlinear_top2.seeds.0: is -1; input should be greater than or equal"),
        ({"scale_evaluation": {"contexts": 0}}, "evaluation.contexts: is 0; input should be great"),
        ({"depths": [0]}, "nonlinear_top2.depths.0: is 0; input should be greater than or equal"),
    ],
    ids=["typo", "unknown model", "k > P", "negative seed", "zero contexts", "zero depth"],
)
def test_a_mistake_in_the_settings_is_named(command, project, changes, message):
    edited(project, **changes)
    command("train", RUN).is_one_message(message)


def test_the_workflow_names_a_mistake_in_the_settings_before_anything_runs(project):
    edited(project, widht=4)
    before = contents(project)
    snakemake("table1", cwd=project).is_one_message("nonlinear_top2.widht: unknown key")
    assert contents(project) == before


def test_an_unknown_configuration_key_is_named(project):
    outcome = snakemake("table1", cwd=project, config="sclae=tiny")
    outcome.is_one_message("--config sclae is unknown; allowed are params, scale and device")


def test_a_huge_depth_is_refused_before_it_fills_the_memory(command, project):
    edited(project, depths=[1_000_000_000])
    outcome = command("train", "nonlinear_top2/a0-b0-L1000000000-seed0")
    outcome.is_one_message("L = 1000000000", "of memory, this machine has", "lower one of them")


def test_an_unknown_run_lists_those_that_exist(command):
    command("train", "nonlinear_top2/a0-b0-L3-seed0").is_one_message("no run", RUN)
    command("train", "nonlinear_top3/x").is_one_message("experiments here:", "nonlinear_top2")


def test_a_product_that_the_scale_cannot_fill_says_what_it_needs(command):
    command("figure", "figure_deep").is_one_message("cannot be made at scale tiny", "deep")


# The machine


def test_cuda_that_is_absent(command, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    CHECKPOINT.touch()
    for action in ("train", "evaluate"):
        outcome = command("--device", "cuda", action, RUN)
        outcome.is_one_message("finds no CUDA GPU; use 'auto' or 'cpu'")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: 9 bytes")])
def test_memory_that_runs_out(command, monkeypatch, error):
    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("inverse_depth.evaluate.evaluate", fail)
    command("evaluate", RUN).is_one_message("not enough memory", "--cores 1")


def test_memory_that_really_runs_out(project):
    """A batch beyond the address space that the process is allowed."""
    edited(project, training={"batch": 20_000_000})
    limit = 3 * 2**30

    def limited():
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

    before = contents(project)
    outcome = shell(
        *(sys.executable, "-m", "inverse_depth", "--params", PARAMS, "train", RUN),
        cwd=project,
        preexec_fn=limited,
    )
    outcome.is_one_message("memory")
    kept = contents(project)
    assert kept.pop(f"{project}/results/tiny/history/{RUN}.csv")
    assert before.items() >= kept.items()


def test_wrong_python(monkeypatch, capsys):
    monkeypatch.setattr(sys, "version_info", (3, 9, 2))
    monkeypatch.setattr(sys, "version", "3.9.2 (default)")
    with pytest.raises(SystemExit) as stopped:
        runpy.run_path(str(Path(inverse_depth.__file__).with_name("__main__.py")))
    assert stopped.value.code.startswith("error: Python 3.11 is needed, this is 3.9.2; `make setup")


def test_make_with_the_wrong_python(tmp_path):
    for name in ("Makefile", "requirements.lock", "requirements-cuda.lock"):
        shutil.copy(ROOT / name, tmp_path)
    outcome = shell("make", "setup", "PYTHON=/bin/false", cwd=tmp_path)
    outcome.says("Python 3.11 is needed, and /bin/false is not one", "PYTHON=/path/to/python3.11")
    assert not (tmp_path / ".venv").exists()


def test_conda_that_is_absent(project, monkeypatch, tmp_path):
    empty = tmp_path / "bin"
    empty.mkdir()
    for tool in ("bash", "sh", "env", "git", "cat", "uname"):
        if found := shutil.which(tool):
            (empty / tool).symlink_to(found)
    monkeypatch.setitem(ENVIRONMENT, "PATH", str(empty))
    Path("results/tiny/theory/schematic.csv").unlink()
    snakemake("--use-conda", "schematic", cwd=project).says("Is conda installed and accessible?")


# Files and folders


@pytest.mark.parametrize(
    ("code", "advice"), [(errno.ENOSPC, "free some space"), (errno.EROFS, "make it writable")]
)
def test_a_disk_that_takes_no_more(command, monkeypatch, code, advice):
    def fail(self, *arguments, **options):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(Path, "write_bytes", fail)
    command("table", "table1").is_one_message(os.strerror(code), advice)


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_disk_that_is_really_full(project, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(disk)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        (disk / "filling").write_bytes(bytes(64 * 1024))
        figures = project / "results/tiny/figures"
        shutil.rmtree(figures)
        figures.symlink_to(disk)
        outcome = shell(
            *(sys.executable, "-m", "inverse_depth", "--params", PARAMS, "figure", "figure02"),
            cwd=project,
        )
        outcome.is_one_message("No space left on device; free some space and start again")
        assert [path.name for path in disk.iterdir()] == ["filling"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


@pytest.fixture
def unwritable(project):
    """A finished project on a read-only disk or, for an ordinary user, in read-only folders."""
    if os.geteuid() == 0:
        bind = ["mount", "--bind", str(project), str(project)]
        if subprocess.run(bind, capture_output=True).returncode:
            pytest.skip("mounting is not allowed here")
        subprocess.run(["mount", "-o", "remount,ro,bind", str(project)], check=True)
        yield project
        os.chdir(ROOT)
        subprocess.run(["umount", str(project)], check=True)
    else:
        folders = [project, *(path for path in project.rglob("*") if path.is_dir())]
        for folder in folders:
            folder.chmod(0o555)
        yield project
        for folder in folders:
            folder.chmod(0o755)


@pytest.mark.parametrize("program", ["inverse_depth", "snakemake"])
def test_a_folder_that_cannot_be_written(unwritable, program):
    if program == "inverse_depth":
        arguments = ["--params", PARAMS, "table", "table1"]
    else:
        arguments = ["--cores", "1", "--config", f"params={PARAMS}", "--", "table1"]
    outcome = shell(sys.executable, "-m", program, *arguments, cwd=unwritable)
    outcome.is_one_message("make it writable for this user, or work in a copy of the project")


def test_paths_with_spaces_and_umlauts_and_a_results_folder_on_another_disk(tmp_path):
    """A mistake only elsewhere: here all of this works, through the workflow."""
    project = copy_project(tmp_path / "mit Größe und 空間")
    disk = Path("/dev/shm")
    on_another_disk = disk.is_dir() and disk.stat().st_dev != tmp_path.stat().st_dev
    elsewhere = tempfile.mkdtemp(dir=disk if on_another_disk else None)
    try:
        (project / "results").symlink_to(elsewhere)
        outcome = snakemake("figure02", cwd=project)
        assert outcome.code == 0, outcome.text
        assert (Path(elsewhere) / "tiny/figures/figure02.png").stat().st_size > 10_000
        assert "Nothing to be done" in snakemake("figure02", cwd=project).text
    finally:
        shutil.rmtree(elsewhere)


# What other processes and earlier ones left


@pytest.mark.parametrize("harm", ["cut", "altered", "no checkpoint"])
def test_a_corrupted_checkpoint(command, harm):
    content = CHECKPOINT.read_bytes()
    harmed = {"cut": content[:100], "altered": content[:-1] + b"\x7f", "no checkpoint": b"text"}
    CHECKPOINT.write_bytes(harmed[harm])
    outcome = command("evaluate", RUN)
    outcome.is_one_message(str(CHECKPOINT), f"`snakemake --cores all {CHECKPOINT}` trains it")


def test_a_corrupted_evaluation(command):
    EVALUATION.write_text(EVALUATION.read_text()[:100])
    command("table", "table1").is_one_message(str(EVALUATION), "makes it again")


def test_two_processes_on_one_run(command):
    Path(f"snapshots/tiny/{RUN}.lock").parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"snapshots/tiny/{RUN}.lock"):
        command("train", RUN).is_one_message(f"another process is training {RUN} right now")


def test_a_stale_lock_of_a_dead_training_does_not_matter(project):
    lock = Path(f"snapshots/tiny/{RUN}.lock")
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.write_text("4242")
    CHECKPOINT.unlink()
    assert main(["--params", PARAMS, "train", RUN]) == 0
    assert CHECKPOINT.exists()


def test_two_workflows_in_one_folder(project):
    table = Path("results/tiny/tables/table1.md")
    table.unlink()
    running = project / ".snakemake/running"
    running.parent.mkdir(exist_ok=True)
    running.write_text("4242\n")
    with FileLock(running):
        snakemake("table1", cwd=project).is_one_message(
            "another snakemake", "wait until it is done, or stop it"
        )
        assert not table.exists()
    # What a dead one left does not matter.
    running.write_text("4242\n")
    assert snakemake("table1", cwd=project).code == 0
    assert table.exists()


@pytest.mark.parametrize(
    "sign",
    ["numba/*/*.nbc", f"results/tiny/history/{RUN}.csv"],
    ids=["while loops compile", "in training"],
)
def test_an_interrupted_training_says_that_it_goes_on(project, sign):
    edited(project, training={"steps": 1_000_000, "validations": 1000})
    arguments = ["-m", "inverse_depth", "--params", PARAMS, "train", RUN]
    before = CHECKPOINT.read_bytes()
    Path(f"results/tiny/history/{RUN}.csv").unlink()
    training = subprocess.Popen(
        [sys.executable, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT | {"NUMBA_CACHE_DIR": str(project / "numba")},
    )
    wait_for(project / sign, training)
    training.send_signal(signal.SIGINT)
    text = training.communicate(timeout=60)[0]
    assert any(project.glob("numba/*/*_reflections_product*.nbc"))  # the last: Ctrl-C has waited
    outcome = Outcome(training.returncode, text.replace("\r", "\n"))
    outcome.is_one_message("interrupted; start again, and training goes on where it was")
    assert CHECKPOINT.read_bytes() == before


def test_settings_that_change_while_the_workflow_runs(command):
    outcome = command("train", RUN, "--identity", "0123-4567")
    outcome.is_one_message("changed while the workflow was running", "start the workflow again")


def test_a_remote_that_is_missing(tmp_path):
    """dvc pull in a clone where nobody set up a remote."""
    dvc = [sys.executable, "-m", "dvc"]
    for step in (["git", "init", "-q"], [*dvc, "init", "-q"]):
        assert shell(*step, cwd=tmp_path).code == 0
    pointer = {"outs": [{"md5": "0" * 32, "size": 1, "hash": "md5", "path": "checkpoint"}]}
    (tmp_path / "checkpoint.dvc").write_text(json.dumps(pointer))
    shell(*dvc, "pull", cwd=tmp_path).says("No remote provided and no default remote set")


def test_a_command_without_arguments_shows_how_it_is_used(capsys):
    with pytest.raises(SystemExit) as stopped:
        main([])
    assert stopped.value.code == 2
    assert "usage: inverse_depth" in capsys.readouterr().err
