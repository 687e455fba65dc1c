"""Which action makes which tool run what: the table of docs/freshness.md, and its proof.

`UPDATE_DOCS=1 pytest tests/test_freshness_matrix.py` writes what is seen into the page.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from filelock import FileLock
from workspace import ROOT, TARGETS, Project, jobs_in, reproduced, start, wait_for

PAGE = ROOT / "docs/freshness.md"
EASY = "nonlinear_easy/a0-b0-L1-seed0"
RUN = "nonlinear_top2/a0-b0-L1-seed0"
CHECKPOINT = f"results/paper/checkpoints/{RUN}.safetensors"
EVALUATION = f"results/paper/evaluations/{RUN}.json"
TRAINING_CODE = "src/inverse_depth/train.py"

Action = Callable[[Project, Path], Project | None]
ACTIONS: dict[str, Action] = {}


def action(name: str) -> Callable[[Action], Action]:
    """Register an action: it changes the project, or returns another one to look at."""

    def register(function: Action) -> Action:
        ACTIONS[name] = function
        return function

    return register


def edits(name: str, path: str, old: str, new: str) -> None:
    ACTIONS[name] = lambda project, folder: project.edit(path, old, new)


def removes(name: str, path: str) -> None:
    ACTIONS[name] = lambda project, folder: (project.root / path).unlink()


@action("nothing")
def _(project, folder):
    return None


@action("`touch` of every file, in random order")
def _(project, folder):
    files = [path for path in project.root.rglob("*") if ".git" not in path.parts]
    random.Random(0).shuffle(files)
    for time, path in enumerate(files):
        os.utime(path, (1.7e9 + time, 1.7e9 + time))


@action("fresh clone, no checkpoints")
def _(project, folder):
    return project.cloned(folder / "clone")


@action("fresh clone, then `dvc pull`")
def _(project, folder):
    project.run("dvc", "remote", "add", "--default", "store", str(folder / "remote"))
    project.run("dvc", "push", "--quiet")
    project.commit("Remote")
    clone = project.cloned(folder / "clone")
    clone.run("dvc", "pull", "--quiet")
    return clone


@action("unpacked tarball, no checkpoints")
def _(project, folder):
    archive = folder / "project.tar"
    project.run("git", "archive", "--output", str(archive), "HEAD")
    unpacked = folder / "unpacked"
    unpacked.mkdir()
    subprocess.run(["tar", "-xf", archive, "-C", unpacked], check=True)
    return Project(unpacked)


@action("checkpoints removed, then `dvc checkout`")
def _(project, folder):
    shutil.rmtree(project.root / "results/paper/checkpoints")
    project.run("dvc", "checkout", "--quiet")


@action("other branch with other training, made there, and back")
def _(project, folder):
    project.run("git", "checkout", "--quiet", "-b", "other")
    project.set("experiments.nonlinear_top2.training.learning_rate", 4.0e-3)
    project.run("dvc", "repro", "table1")
    project.commit()
    project.run("git", "checkout", "--quiet", "main")


@action("comment in params.yaml")
def _(project, folder):
    path = project.root / "params.yaml"
    path.write_text(f"# A comment.\n{path.read_text(encoding='utf-8')}", encoding="utf-8")


edits(
    "comment, docstring and layout of training code",
    TRAINING_CODE,
    '"""Relative change',
    '# A comment.\n\n    """Change',
)
edits("comment in plotting code", "src/inverse_depth/figures/style.py", "\nimport", "\n# !\nimport")


def sets(name: str, key: str, value: object) -> None:
    ACTIONS[name] = lambda project, folder: project.set(key, value)


TOP2 = "experiments.nonlinear_top2"
sets("learning rate of one experiment", f"{TOP2}.training.learning_rate", 4.0e-3)
sets("steps of every experiment", "training.steps", 44)
sets("depth added", f"{TOP2}.depths", [1, 2])
sets("spectrum removed", f"{TOP2}.spectra", [[0, 0]])
sets("spectrum added", f"{TOP2}.spectra", [[0, 0], [0, 1], [1, 0]])
sets("spectrum added that trains as another", f"{TOP2}.spectra", [[0, 0], [0, 1], [0, 2]])
sets("seed changed", f"{TOP2}.seeds", [1])
sets("evaluation contexts of one experiment", f"{TOP2}.evaluation.contexts", 320)
sets("which depths are fitted", "fits.plateau_from", 2)
sets("a setting that none of the targets reads", "theory.degree", 3)
edits("training code", TRAINING_CODE, "betas=(0.9, 0.999)", "betas=(0.9, 0.99)")
edits("evaluation code", "src/inverse_depth/decomposition.py", "\n\n\n", "\n\n\nUNUSED = 1\n\n\n")
edits("table code", "src/inverse_depth/tables/floors.py", "\n\n\n", "\n\n\nUNUSED = 1\n\n\n")
edits("plotting code", "src/inverse_depth/figures/style.py", "\n\n\n", "\n\n\nUNUSED = 1\n\n\n")
removes("missing checkpoint", CHECKPOINT)
removes("missing evaluation", EVALUATION)
removes("missing table", "results/paper/tables/table1.csv")


@action("missing checkpoint and evaluation")
def _(project, folder):
    (project.root / CHECKPOINT).unlink()
    (project.root / EVALUATION).unlink()


def truncate(path: Path) -> None:
    content = path.read_bytes()
    path.unlink()  # DVC's copy may be linked
    path.write_bytes(content[:-100])


@action("corrupted checkpoint")
def _(project, folder):
    truncate(project.root / CHECKPOINT)


@action("corrupted checkpoint and missing evaluation")
def _(project, folder):
    truncate(project.root / CHECKPOINT)
    (project.root / EVALUATION).unlink()


@action("corrupted evaluation")
def _(project, folder):
    truncate(project.root / EVALUATION)


@action("evaluation with other numbers swapped in")
def _(project, folder):
    path = project.root / EVALUATION
    record = json.loads(path.read_text(encoding="utf-8"))
    record["result"]["loss"] *= 2
    path.write_text(json.dumps(record), encoding="utf-8")


@action("figure edited by hand")
def _(project, folder):
    with (project.root / "results/paper/figures/figure04.pdf").open("ab") as stream:
        stream.write(b"%")


def stopped_by(sign: signal.Signals) -> Action:
    def stop(project, folder):
        project.set("experiments.nonlinear_easy.training.steps", 4000)
        process = start(project, "snakemake", "--cores", "1", "train_nonlinear_easy")
        wait_for(project.root / f"snapshots/paper/{EASY}.safetensors", process)
        os.killpg(process.pid, sign)
        process.communicate()

    return stop


ACTIONS["Ctrl-C while one run is trained anew"] = stopped_by(signal.SIGINT)
ACTIONS["`kill -9` while one run is trained anew"] = stopped_by(signal.SIGKILL)


def described(jobs: list[str]) -> str:
    """Jobs in a few words: trainings and evaluations by experiment, products by name."""
    runs = Counter(tuple(job.split("/")[0].split(" ")) for job in jobs if "/" in job)
    counted = [f"{verb} {experiment} ×{count}" for (verb, experiment), count in runs.items()]
    built = [job.removeprefix("build ") for job in jobs if job.startswith("build ")]
    order = sorted(counted, key=lambda text: (text.startswith("evaluate"), text))
    return "; ".join([*order, *([f"build {', '.join(built)}"] if built else [])]) or "nothing"


def with_snakemake(project: Project) -> str:
    return described(project.stale())


def with_dvc(project: Project) -> str:
    """What `dvc repro` runs; afterwards Snakemake and DVC find everything fresh."""
    if not (project.root / ".git").exists():
        return "needs git"
    found = project.run("dvc", "repro", *TARGETS, check=False)
    jobs = described(jobs_in(found.stdout))
    if found.returncode:
        assert "are fresh, but their checkpoints are not here" in found.stdout
        assert "Traceback" not in found.stdout and jobs == "nothing"
        mended = project.run("dvc", "checkout", check=False).returncode == 0
        project.run("dvc", "repro", *([] if mended else ["--allow-missing"]), *TARGETS)
        jobs = "nothing; asks for `dvc checkout`" if mended else "nothing; asks for `dvc pull`"
    assert described(project.stale()) == "nothing"
    return jobs


TOOLS = {"snakemake": with_snakemake, "dvc repro": with_dvc}
ROW = re.compile(r"^\| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)


def documented() -> dict[str, dict[str, str]]:
    table = PAGE.read_text(encoding="utf-8").partition("<!-- matrix -->")[2]
    rows = ROW.findall(table)
    return {name: dict(zip(TOOLS, cells, strict=True)) for name, *cells in rows}


def write(name: str, tool: str, text: str) -> None:
    """Put a cell into the page's table, whose rows come in the order of the actions."""
    with FileLock(Path(tempfile.gettempdir(), "freshness.md.lock")):
        rows = documented()
        rows.setdefault(name, dict.fromkeys(TOOLS, "?"))[tool] = text
        lines = ["| after | snakemake | dvc repro |", "|---|---|---|"]
        for known in ACTIONS:
            if known in rows:
                cells = " | ".join(rows[known][tool] for tool in TOOLS)
                lines.append(f"| {known} | {cells} |")
        text = PAGE.read_text(encoding="utf-8")
        table = "<!-- matrix -->\n" + "\n".join(lines) + "\n<!-- end -->"
        text = re.sub(r"<!-- matrix -->.*<!-- end -->", lambda _: table, text, flags=re.DOTALL)
        PAGE.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("tool", TOOLS)
@pytest.mark.parametrize("name", ACTIONS)
def test_action(name, tool, tmp_path, tmp_path_factory):
    project = reproduced(tmp_path_factory).copied(tmp_path / "project")
    changed = ACTIONS[name](project, tmp_path) or project
    seen = TOOLS[tool](changed)
    if os.environ.get("UPDATE_DOCS"):
        write(name, tool, seen)
    assert documented()[name][tool] == seen


def test_the_page_knows_every_action_and_no_other():
    assert list(documented()) == ["after", *ACTIONS]
