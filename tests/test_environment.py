"""The lock, the conda environments, the image and the profiles say the same."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = sorted(path.stem for path in ROOT.glob("envs/*.yaml"))
LOCKS = ["requirements.lock", "requirements-cuda.lock", "requirements-cluster.lock"]


def load_script(path: Path):
    """A script as a module that takes the folder above it for the project."""
    specification = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def locked(name: str) -> dict[str, str]:
    """Versions by package, from a lock whose every line must be an exact pin."""
    pins = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.strip().startswith("#"):
            assert re.fullmatch(r"[a-z0-9-]+==[A-Za-z0-9.]+", line), f"{name}: {line}"
            package, version = line.split("==")
            pins[package] = version
    return pins


def environment(name: str) -> tuple[list[str], dict[str, str]]:
    """The conda packages of an environment, and its pip pins."""
    entries = yaml.safe_load((ROOT / f"envs/{name}.yaml").read_text())["dependencies"]
    pip = next(entry["pip"] for entry in entries if isinstance(entry, dict))
    return [e for e in entries if isinstance(e, str)], dict(pin.split("==") for pin in pip)


@pytest.mark.parametrize("name", LOCKS)
def test_locks_hold_exact_public_versions(name):
    assert locked(name)


def test_locks_share_no_package():
    names = [package for name in LOCKS for package in locked(name)]
    assert len(names) == len(set(names))


def test_cuda_libraries_are_constraints_alone():
    assert not [p for p in locked("requirements.lock") if p.startswith(("nvidia-", "cuda-"))]


def test_there_are_environments():
    assert ENVIRONMENTS == ["analysis", "training"]


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_every_pin_of_an_environment_is_the_locks(name):
    conda, pins = environment(name)
    lock = locked("requirements.lock")
    assert conda == ["python=3.11", "pip"]
    assert pins == {package: lock[package] for package in pins}


@pytest.mark.parametrize("name", ENVIRONMENTS)
def test_an_environment_has_what_its_list_asks_for(name):
    pins = environment(name)[1]
    for line in (ROOT / f"envs/{name}.in").read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            assert requirement.specifier.contains(pins[canonicalize_name(requirement.name)])


def test_analysis_has_no_torch():
    assert "torch" in environment("training")[1]
    assert "torch" not in environment("analysis")[1]


@pytest.fixture
def copy(tmp_path):
    """The check of the locks, on a copy of what it reads."""
    for name in [*LOCKS, "requirements.in"]:
        shutil.copy(ROOT / name, tmp_path)
    for folder in ("envs", "scripts"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def problems(folder: Path) -> str:
    return "\n".join(load_script(folder / "scripts/lock.py").check_locks())


def test_locks_are_in_step(copy):
    assert problems(copy) == ""


def test_check_sees_a_requirement_without_a_pin(copy):
    lock = copy / "requirements.lock"
    lock.write_text(re.sub(r"^pandas==.*\n", "", lock.read_text(), flags=re.MULTILINE))
    assert "pandas is needed and has no pin" in problems(copy)


def test_check_sees_a_pin_that_nothing_needs(copy):
    edit(copy / "requirements.in", "snakefmt\n", "")
    assert "nothing needs snakefmt" in problems(copy)


def test_check_sees_a_requirement_that_the_pin_does_not_meet(copy):
    edit(copy / "envs/analysis.in", "pandas\n", "pandas>=99\n")
    assert "pandas>=99 is asked for" in problems(copy)


def test_check_sees_an_environment_that_lacks_a_package(copy):
    edit(copy / "envs/analysis.in", "pandas\n", "pandas\nsafetensors\n")
    assert "envs/analysis.yaml: differs from envs/analysis.in" in problems(copy)


def test_check_sees_another_version_than_the_installed(copy):
    lock = copy / "requirements.lock"
    lock.write_text(re.sub(r"^tqdm==.*$", "tqdm==4.0", lock.read_text(), flags=re.MULTILINE))
    assert "tqdm is 4.0, installed is" in problems(copy)


def stages() -> list[str]:
    """The Dockerfile, split at its FROM lines; what stands before the first is left out."""
    return re.split(r"^(?=FROM )", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)[1:]


def test_image_installs_the_lock_and_nothing_else():
    lines = re.sub(r"\\\n\s*", "", (ROOT / "Dockerfile").read_text())
    installs = re.findall(r"pip install (.*)", lines)
    assert len(installs) == 1
    assert "--requirement requirements.lock --constraint requirements-cuda.lock" in installs[0]


def test_image_base_is_pinned_by_tag():
    base = re.search(r"^ARG BASE_IMAGE=(\S+)$", (ROOT / "Dockerfile").read_text(), re.MULTILINE)
    assert re.fullmatch(r"[a-z/]+:\d+\.\d+\.\d+-runtime-\w+", base[1])


def test_image_runs_as_an_ordinary_user_without_build_tools():
    final = stages()[-1]
    assert re.findall(r"^USER (\S+)$", final, re.MULTILINE) == ["1000:1000"]
    assert not re.search(r"apt-get|dnf|pip install|gcc", final)


def test_image_leaves_results_and_environments_behind():
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert {".git", ".venv", "results", "snapshots", ".snakemake"} <= set(ignored)


def write_results(folder: Path, loss: str) -> Path:
    (folder / "tables").mkdir(parents=True)
    (folder / "tables/table1.csv").write_text(f"name,loss\nlinear,{loss}\n")
    return folder


@pytest.mark.parametrize(
    ("loss", "found"),
    [("1.5", []), ("1.5000000001", []), ("1.5001", ["1 cells differ"]), ("", ["1 cells differ"])],
)
def test_results_agree_to_rounding(tmp_path, loss, found):
    script = load_script(ROOT / "scripts/compare_results.py")
    expected = write_results(tmp_path / "expected", "1.5")
    actual = write_results(tmp_path / "actual", loss)
    reported = script.differences(expected, actual)
    assert len(reported) == len(found)
    assert all(part in line for part, line in zip(found, reported, strict=True))


def test_results_without_tables_do_not_agree(tmp_path):
    script = load_script(ROOT / "scripts/compare_results.py")
    assert script.differences(tmp_path, tmp_path) == [f"{tmp_path} holds no tables"]


def stand_in(command: str, folder: Path) -> Path:
    """A folder to put on the path, where a command is the stand-in for it, working in `folder`."""
    path = folder / "bin" / command
    path.parent.mkdir(parents=True)
    script = ROOT / f"tests/stand_in_{command}.py"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} {script} {folder} "$@"\n')
    path.chmod(0o755)
    return path.parent


def copy_project(folder: Path) -> Path:
    """What the workflow needs, in a folder of its own."""
    folder.mkdir()
    for name in ("Snakefile", "params.yaml"):
        shutil.copy(ROOT / name, folder)
    for name in ("envs", "profiles", "src", "workflow"):
        shutil.copytree(ROOT / name, folder / name)
    return folder


def snakemake(project: Path, commands: Path, *arguments: str) -> str:
    """What Snakemake says of scale tiny, with a folder of commands before all others."""
    run = subprocess.run(
        [sys.executable, "-m", "snakemake", "--config", f"params={ROOT / 'tests/tiny.yaml'}"]
        + list(arguments),
        cwd=project,
        env={**os.environ, "PATH": f"{commands}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stderr
    return run.stderr


def rules_with_conda() -> dict[str, str]:
    """The environment that each rule of the workflow names."""
    text = "\n".join(path.read_text() for path in (ROOT / "workflow/rules").glob("*.smk"))
    rules = re.split(r"^rule (\w+):$", text, flags=re.MULTILINE)[1:]
    bodies = dict(zip(rules[::2], rules[1::2], strict=True))
    named = {rule: re.search(r'conda:\s+"\S+/envs/(\w+)\.yaml"', bodies[rule]) for rule in bodies}
    return {rule: match[1] for rule, match in named.items() if match}


@pytest.mark.slow
def test_every_rule_runs_with_the_packages_of_its_own_environment(tmp_path):
    commands = stand_in("conda", tmp_path / "conda")
    (commands / "activate").write_text('export PATH="$1/bin:$PATH"\n')
    targets = ["floors", "evaluations", "figure06", "results/tiny/pages/comparison.html"]
    output = snakemake(
        copy_project(tmp_path / "project"), commands, "--cores", "2", "--use-conda", "--", *targets
    )
    rules = rules_with_conda()
    assert sorted(set(rules.values())) == ENVIRONMENTS
    assert [rule for rule in rules if f"Rule: {rule})" not in output] == []


@pytest.mark.slow
def test_kubernetes_profile_runs_jobs_as_pods(tmp_path):
    commands = stand_in("kubectl", tmp_path / "kubernetes")
    # In a pod, `python` is the image's.
    for name in ("python", "python3"):
        (commands / name).write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        (commands / name).chmod(0o755)
    project = copy_project(tmp_path / "project")
    options = ["--profile", "profiles/kubernetes", "--seconds-between-status-checks", "1"]
    snakemake(project, commands, *options, "evaluate_nonlinear_easy")
    assert list(project.glob("results/tiny/evaluations/nonlinear_easy/*.json"))
    manifests = [json.loads(path.read_text()) for path in commands.parent.glob("*.json")]
    [pod, *_] = [manifest["spec"]["template"]["spec"] for manifest in manifests]
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["workingDir"] == str(project)
    assert container["resources"]["requests"] == container["resources"]["limits"]


@pytest.mark.parametrize("name", ["slurm", "kubernetes"])
def test_cluster_profiles_try_again_and_name_rules_that_exist(name):
    profile = yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text())
    assert profile["retries"] > 0
    assert {*profile["groups"], *profile["set-resources"]} <= rules_with_conda().keys()


def test_a_bare_target_takes_all_cores_and_local_runs_share_no_job():
    """The default profile goes before the others: where it names cores, theirs would be ignored."""
    default, *clusters = (
        yaml.safe_load((ROOT / f"profiles/{name}/config.yaml").read_text())
        for name in ("default", "slurm", "kubernetes")
    )
    assert default["cores"] == "all"
    assert not default.keys() & {"groups", "group-components"}
    for profile in clusters:
        assert not profile.keys() & default.keys()
        assert {"short_training", *profile["groups"].values()} == {*profile["group-components"]}


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ([], "running"),
        ([{"type": "Complete", "status": "True"}], "success"),
        ([{"type": "Failed", "status": "True"}], "failed"),
        ([{"type": "Suspended", "status": "True"}], "running"),
        (None, "failed"),
    ],
)
def test_status_of_a_pod(monkeypatch, conditions, expected):
    pods = load_script(ROOT / "profiles/kubernetes/pods.py")
    text = "" if conditions is None else json.dumps({"status": {"conditions": conditions}})
    monkeypatch.setattr(pods, "kubectl", lambda *arguments: text)
    assert pods.status(SimpleNamespace(job="job.batch/inverse-depth-x")) == expected


@pytest.mark.parametrize("gpus", [0, 1])
def test_pods_ask_for_gpus_only_where_a_rule_does(gpus):
    pods = load_script(ROOT / "profiles/kubernetes/pods.py")
    options = SimpleNamespace(
        image="inverse-depth:0.1.0",
        claim="inverse-depth",
        mount="/data",
        cpus=2,
        memory=3000,
        minutes=20,
        gpus=gpus,
        script="job.sh",
    )
    job = pods.manifest(options, Path("/data/project"))
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"].get("nvidia.com/gpu") == ("1" if gpus else None)
    assert job["spec"]["activeDeadlineSeconds"] == 1200
