"""Copies of the project, reproduced at a tiny scale, in which tests run the real tools."""

import os
import re
import shutil
import subprocess
import sys
import time
from glob import glob
from pathlib import Path

import pytest
import yaml
from filelock import FileLock

ROOT = Path(__file__).parents[1]
TARGETS = ("table1", "figure04")
VERBS = {"Training": "train", "Evaluating": "evaluate"}
VERBS |= dict.fromkeys(("Collecting", "Computing", "Building", "Drawing"), "build")
JOB = re.compile(rf"^Job \d+: ({'|'.join(VERBS)}) (\S+)", re.MULTILINE)


class Project:
    """A copy of the project whose scale `paper` is the tiny scale of the tests."""

    def __init__(self, root: Path):
        self.root = root

    def run(self, *command: str, check: bool = True) -> subprocess.CompletedProcess:
        """Run a command in the copy as a user would, both output streams in `stdout`."""
        found = subprocess.run(
            command,
            cwd=self.root,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
        )
        if check and found.returncode:
            raise AssertionError(f"{' '.join(command)}: exit {found.returncode}\n{found.stdout}")
        return found

    def cli(self, *arguments: str, check: bool = True) -> subprocess.CompletedProcess:
        command = (sys.executable, "-m", "inverse_depth", *arguments)
        found = self.run("env", "PYTHONPATH=src", *command, check=check)
        return found

    def jobs(self, *command: str) -> list[str]:
        """The jobs, like `train EXPERIMENT/RUN` or `build table1`, that a command runs."""
        return jobs_in(self.run(*command).stdout)

    def stale(self, *targets: str) -> list[str]:
        """The jobs that Snakemake would run for the targets."""
        return self.jobs("snakemake", "--dry-run", *(targets or TARGETS))

    def snakemake(self, *targets: str) -> list[str]:
        """The jobs that Snakemake runs for the targets."""
        return self.jobs("snakemake", "--cores", "2", *(targets or TARGETS))

    def edit(self, name: str, old: str, new: str) -> None:
        """Replace the first occurrence of a text in a file."""
        path = self.root / name
        text = path.read_text(encoding="utf-8")
        assert old in text, f"{name} does not hold {old!r}"
        path.write_text(text.replace(old, new, 1), encoding="utf-8")

    def set(self, key: str, value: object) -> None:
        """Give a dotted key of scale `paper` a value."""
        path = self.root / "params.yaml"
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        *parents, last = key.split(".")
        section = settings["scales"]["paper"]
        for parent in parents:
            section = section.setdefault(parent, {})
        section[last] = value
        write_yaml(path, settings)

    def commit(self, message: str = "Change") -> None:
        self.run("git", "add", "--all")
        self.run("git", "commit", "--quiet", "--allow-empty", "--message", message)

    def copied(self, root: Path) -> "Project":
        """Another copy with everything that is in the folder."""
        shutil.copytree(self.root, root, symlinks=True)
        return Project(root)

    def cloned(self, root: Path) -> "Project":
        """A clone: what is in git, and no checkpoints."""
        self.run("git", "clone", "--quiet", str(self.root), str(root))
        return Project(root)


def environment() -> dict[str, str]:
    """The user's environment with this Python's tools first, and one thread a process."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("DVC_", "GIT_", "PYTEST_", "SNAKEMAKE_")) and name != "PYTHONPATH"
    }
    person = {
        f"GIT_{role}_{key}": value
        for role in ("AUTHOR", "COMMITTER")
        for key, value in (("NAME", "Test"), ("EMAIL", "test@example.org"))
    }
    bin_folder = Path(sys.executable).parent
    return inherited | person | {"PATH": f"{bin_folder}:{os.environ['PATH']}", "COLUMNS": "200"}


def start(project: Project, *command: str) -> subprocess.Popen:
    """A command in a process group of its own, as in a terminal."""
    return subprocess.Popen(
        command,
        cwd=project.root,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def wait_for(path: Path, process: subprocess.Popen) -> None:
    """Until the file is there, or one that the path matches as a pattern."""
    for _ in range(1200):
        if glob(str(path)):
            return
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    raise AssertionError(f"{path} does not come")


def jobs_in(output: str) -> list[str]:
    """The jobs that an output of Snakemake names, each once."""
    found = [f"{VERBS[verb]} {name}" for verb, name in JOB.findall(output)]
    return sorted(set(found))


def copy_project(root: Path) -> Project:
    """The files of the project that are not ignored, in a git repository of their own."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file() and not name.startswith("results/"):
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, root / name)
    project = Project(root)
    project.run("git", "init", "--quiet", "--initial-branch", "main")
    return project


def write_small_settings(project: Project) -> None:
    """Give scale `paper` two tiny experiments, and a pipeline of just the targets."""
    settings = yaml.safe_load((project.root / "tests/tiny.yaml").read_text(encoding="utf-8"))
    scale = settings["scales"].pop("tiny")
    names = ("nonlinear_easy", "nonlinear_top2")
    scale["experiments"] = {name: scale["experiments"][name] | {"depths": [1]} for name in names}
    settings |= {"scale": "paper", "scales": {"paper": scale}}
    write_yaml(project.root / "params.yaml", settings)
    project.cli("pipeline")
    pipeline = yaml.safe_load((project.root / "dvc.yaml").read_text(encoding="utf-8"))
    kept = ("code", "train", "evaluate", *TARGETS)
    pipeline["stages"] = {name: pipeline["stages"][name] for name in kept}
    write_yaml(project.root / "dvc.yaml", pipeline)


def write_yaml(path: Path, content: dict) -> None:
    path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """A project whose scale `paper` DVC has reproduced, all of it committed; not to be changed.

    It is made once for all workers.
    """
    shared = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        shared = shared.parent
    root, done = shared / "reproduced", shared / "reproduced.done"
    with FileLock(f"{root}.lock"):
        if not done.exists():
            shutil.rmtree(root, ignore_errors=True)
            project = copy_project(root)
            write_small_settings(project)
            code = "src/inverse_depth/train.py"
            project.edit(code, "SNAPSHOT_SECONDS = 30.0", "SNAPSHOT_SECONDS = 0.1")
            project.commit("Settings")
            project.run("dvc", "repro", *TARGETS)
            project.commit("Results")
            done.touch()
    return Project(root)
