"""One finished run of scale tiny, shared by the tests that need results."""

import os
import shutil
import signal
from pathlib import Path

import pytest
from filelock import FileLock

from inverse_depth.cli import main
from inverse_depth.paths import Paths
from inverse_depth.products import available
from inverse_depth.settings import load_settings, resolve_runs, trained_as

ROOT = Path(__file__).resolve().parent.parent
PARAMS = "tests/tiny.yaml"

# Started in the background, a shell's jobs ignore Ctrl-C, and so would what the tests interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)
COMMANDS = {"data": "collect", "comparison": "compare"}


def copy_project(target: Path) -> Path:
    """What a clone holds of the workflow, without results."""
    target.mkdir(parents=True)
    for name in ("Snakefile", "params.yaml"):
        shutil.copy(ROOT / name, target)
    for name in ("envs", "profiles", "src", "workflow"):
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    (target / "tests").mkdir()
    shutil.copy(ROOT / PARAMS, target / PARAMS)
    return target


def run_everything() -> None:
    """All of scale tiny in the working directory, by the commands that the workflow calls."""
    settings = load_settings(PARAMS)
    runs = resolve_runs(settings)

    def command(*arguments: str) -> None:
        assert main(["--params", PARAMS, *arguments]) == 0, arguments

    for run in dict.fromkeys(map(trained_as, runs)):
        command("train", str(run))
    for run in runs:
        command("evaluate", str(run))
    for product in available(runs):
        names = [] if product.kind == "comparison" else [product.name]
        command(COMMANDS.get(product.kind, product.kind), *names)


@pytest.fixture(scope="session")
def finished(tmp_path_factory) -> Path:
    """A project whose scale tiny is finished, in a folder with a space and an umlaut.

    It is shared by all workers; a test that changes something takes `project`.
    """
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with FileLock(shared / "finished.lock"):
        folder = shared / "zum Prüfen"
        if not (folder / "finished").exists():
            shutil.rmtree(folder, ignore_errors=True)
            copy_project(folder)
            before = Path.cwd()
            os.chdir(folder)
            try:
                run_everything()
            finally:
                os.chdir(before)
            assert Paths("tiny", folder).data("comparison").exists()
            (folder / "finished").touch()
    return folder


@pytest.fixture
def project(finished, tmp_path, monkeypatch) -> Path:
    """A copy of the finished project for one test, which is the working directory."""
    folder = tmp_path / "zum Prüfen"
    shutil.copytree(finished, folder)
    monkeypatch.chdir(folder)
    return folder
