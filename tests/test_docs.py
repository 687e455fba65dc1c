"""The documentation is true: commands run, steps work as written, links lead somewhere."""

import os
import re
import shlex
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import nbformat
import pytest
import yaml
from conftest import ROOT, copy_project
from nbclient import NotebookClient

from inverse_depth.cli import parser

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
PROGRAMS = ("make", "snakemake", "python -m inverse_depth")


def blocks(page: Path, language: str) -> list[str]:
    """The fenced blocks of a language, in order."""
    text = page.read_text(encoding="utf-8")
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    """Every command of the documentation that this project defines."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        fenced = "\n".join(re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL))
        indented = "\n".join(re.findall(r"^    (\S.*)$", text, re.MULTILINE))
        prose = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
        inline = "\n".join(re.findall(r"`([^`\n]+)`", prose))
        for line in f"{fenced}\n{indented}\n{inline}".splitlines():
            line = line.split(" #")[0].strip()
            if line.startswith(tuple(f"{program} " for program in PROGRAMS)):
                found.append(line)
    return sorted(set(found))


def is_template(command: str) -> bool:
    """Whether capitals or dots stand for what the reader fills in."""
    return bool(re.search(r"EXPERIMENT|NAME|FILE|/path/to|\.\.\.", command))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_to_files(page):
    for target in re.findall(r"\]\(([^)#]+)", page.read_text(encoding="utf-8")):
        if "://" not in target:
            assert (page.parent / target).exists(), f"{page.name}: {target}"


@pytest.mark.parametrize("command", [c for c in commands() if c.startswith("make ")])
def test_make_targets_exist(command):
    targets = [word for word in shlex.split(command)[1:] if "=" not in word]
    done = subprocess.run(["make", "-n", *targets], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", [c for c in commands() if "inverse_depth" in c])
def test_commands_are_understood(command):
    words = shlex.split(command)
    words = words[words.index("inverse_depth") + 1 :]
    with pytest.raises(SystemExit) if "--help" in words else nullcontext():
        parser().parse_args(words)


def environment() -> dict[str, str]:
    """A shell with `.venv` on its path."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}


def run_block(block: str, folder: Path) -> None:
    """Run a block of commands as a reader would, in one shell that stops at the first failure."""
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", block],
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, f"{block}\n{done.stderr}"


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    return copy_project(tmp_path_factory.mktemp("docs") / "clone")


def test_the_workflow_knows_every_target(clone):
    """One dry run a configuration; clusters and conda are not here."""
    targets: dict[str, list[str]] = {}
    for command in commands():
        elsewhere = re.search("--profile|--report|--unlock", command)
        if command.startswith("snakemake ") and not is_template(command) and not elsewhere:
            words = re.sub(r"--(cores|config) \S+|--\S+| -\w\b", "", command).split()[1:]
            given = re.search(r"--config (\S+)", command)
            targets.setdefault(given[1] if given else "scale=quick", []).extend(words)
    assert "table1" in targets["scale=quick"]
    for given, names in targets.items():
        run_block(f"snakemake -n --config {given} -- {shlex.join(names)}", clone)


@pytest.mark.parametrize("number", range(len(blocks(ROOT / "docs/explore.md", "console"))))
def test_the_commands_of_one_run_by_hand_run_as_written(clone, number):
    run_block(blocks(ROOT / "docs/explore.md", "console")[number], clone)


def test_the_steps_that_extend_work_as_written(tmp_path):
    """Every change of the page in its order, then its commands."""
    project = copy_project(tmp_path / "clone")
    page = ROOT / "docs/extend.md"
    for change in blocks(page, "diff"):
        patched = subprocess.run(
            ["patch", "-p1", "--fuzz=0"], cwd=project, input=change, text=True, capture_output=True
        )
        assert patched.returncode == 0, patched.stdout
    params = project / "params.yaml"
    before, mark, after = params.read_text().partition("    experiments:\n")
    params.write_text(before + mark + "".join(blocks(page, "yaml")) + after)
    assert {"steep", "noisy", "relu"} <= set(
        yaml.safe_load(params.read_text())["scales"]["quick"]["experiments"]
    )
    for block in blocks(page, "console"):
        run_block(block, project)
    assert len(list(project.glob("results/quick/evaluations/*/*.json"))) == 3


def test_the_notebook_runs(project, monkeypatch):
    """On the finished scale tiny, whose settings take the place of the first cell."""
    notebook = nbformat.read(ROOT / "notebooks/explore.ipynb", as_version=4)
    settings = next(cell for cell in notebook.cells if cell.cell_type == "code")
    settings.source = settings.source.replace("params.yaml", "tests/tiny.yaml")
    settings.source = settings.source.replace('"quick"', '"tiny"')
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": project}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 2
    assert any("too few depths" in output.get("text", "") for output in outputs)


def test_the_notebook_is_stored_without_outputs():
    notebook = nbformat.read(ROOT / "notebooks/explore.ipynb", as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells)
