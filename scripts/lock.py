"""Write the locks and the conda environments, or check that they are in step.

`python scripts/lock.py` resolves `requirements.in` with pip-compile and writes

    requirements.lock          every package but torch's CUDA libraries
    requirements-cuda.lock     torch's CUDA libraries, used as constraints: they pin what the CUDA
                               build of torch asks for, and install nothing beside the CPU build
    requirements-cluster.lock  the executors for SLURM and Kubernetes
    envs/<name>.yaml           what envs/<name>.in needs, with the versions of requirements.lock

Versions already locked are kept where they still fit; delete a lock to upgrade all of it.

`python scripts/lock.py --check` resolves nothing and needs no network. It reads what the installed
packages say of their own requirements, and fails unless the lock is exactly the closure of
`requirements.in` and every conda environment exactly the closure of its own list.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENTS = {
    "training": "Training, evaluation and theory: everything that computes with torch.",
    "analysis": "Fits, tables, figures and the comparison: no torch.",
}
CUDA = re.compile(r"(cuda-|nvidia-|triton$)")


def read_pins(path: Path) -> dict[str, str]:
    """Versions by canonical name from a lock's `name==version` lines."""
    pins = re.findall(r"^([A-Za-z0-9._-]+)==(\S+)", path.read_text(), flags=re.MULTILINE)
    return {canonicalize_name(name): version for name, version in pins}


def read_requirements(path: Path) -> list[Requirement]:
    """The requirements of a `.in` file and of the files that it names with `-r`."""
    requirements = []
    for line in path.read_text().splitlines():
        line = line.split("#")[0].strip()
        if line.startswith("-r "):
            requirements += read_requirements(path.parent / line.removeprefix("-r ").strip())
        elif line:
            requirements.append(Requirement(line))
    return requirements


def closure(requirements: list[Requirement]) -> set[str]:
    """Names of the installed packages that the requirements need, directly or not.

    Raises ValueError where a package is missing or its version is not the one asked for.
    """
    reached: set[tuple[str, str]] = set()
    todo = [(requirement, "") for requirement in requirements]
    while todo:
        requirement, extra = todo.pop()
        if requirement.marker and not requirement.marker.evaluate({"extra": extra}):
            continue
        try:
            package = metadata.distribution(requirement.name)
        except metadata.PackageNotFoundError:
            raise ValueError(f"{requirement} is not installed: run `make setup`") from None
        version = package.version.split("+")[0]
        if not requirement.specifier.contains(version, prereleases=True):
            raise ValueError(f"{requirement} is asked for, and {version} is installed")
        for extra in ("", *requirement.extras):
            node = (canonicalize_name(requirement.name), extra)
            if node not in reached:
                reached.add(node)
                todo += [(Requirement(line), extra) for line in package.requires or []]
    return {name for name, _ in reached}


def environment_yaml(purpose: str, pins: dict[str, str]) -> str:
    """A conda environment file whose packages, but for Python and pip, come from the lock."""
    lines = [
        f"# {purpose}",
        "# Written by `make lock`: versions from requirements.lock, packages from the .in file.",
        "channels:",
        "  - conda-forge",
        "  - nodefaults",
        "dependencies:",
        "  - python=3.11",
        "  - pip",
        "  - pip:",
    ]
    return "\n".join(lines + [f"      - {name}=={pins[name]}" for name in sorted(pins)]) + "\n"


def compile_pins(source: str, known: list[str], constraint: str | None = None) -> str:
    """The output of pip-compile for one `.in` file, starting from the versions in `known`.

    pip's configuration files and links to local wheels are set aside: the CUDA build of torch has
    to be seen, since only its own metadata names its CUDA libraries. No wheel is downloaded.
    """
    command = [sys.executable, "-m", "piptools", "compile", "--quiet", "--allow-unsafe"]
    command += ["--strip-extras", "--no-header", "--no-emit-index-url", "--no-emit-trusted-host"]
    if constraint:
        command += ["--constraint", constraint]
    environment = {**os.environ, "PIP_CONFIG_FILE": os.devnull}
    environment.pop("PIP_FIND_LINKS", None)
    with tempfile.TemporaryDirectory() as folder:
        output = Path(folder, "lock.txt")
        output.write_text("".join(Path(ROOT, k).read_text() for k in known if (ROOT / k).exists()))
        command += ["--output-file", str(output), source]
        subprocess.run(command, cwd=ROOT, env=environment, check=True)
        return output.read_text()


def split_blocks(lock: str) -> dict[str, str]:
    """The text of each pin, with the comments that follow it, by canonical name."""
    blocks = re.findall(r"^[A-Za-z0-9._-]+==.*\n(?:    #.*\n)*", lock, flags=re.MULTILINE)
    return {canonicalize_name(block.split("==")[0]): block for block in blocks}


def write_locks() -> None:
    """Resolve the requirements and write every lock and conda environment."""
    known = ["requirements.lock", "requirements-cuda.lock"]
    blocks = split_blocks(compile_pins("requirements.in", known))
    cuda = {name: text for name, text in blocks.items() if CUDA.match(name)}
    rest = {name: text for name, text in blocks.items() if name not in cuda}
    write("requirements.lock", "The whole closure of requirements.in for Python 3.11.", rest)
    write(
        "requirements-cuda.lock", "Constraints: what the CUDA build of torch needs besides.", cuda
    )
    cluster = split_blocks(
        compile_pins("requirements-cluster.in", ["requirements-cluster.lock"], "requirements.lock")
    )
    write(
        "requirements-cluster.lock",
        "What requirements-cluster.in needs besides requirements.lock.",
        {name: text for name, text in cluster.items() if name not in rest},
    )
    pins = read_pins(ROOT / "requirements.lock")
    for name, purpose in ENVIRONMENTS.items():
        needed = split_blocks(compile_pins(f"envs/{name}.in", [], "requirements.lock"))
        chosen = {package: pins[package] for package in needed if package not in cuda}
        (ROOT / f"envs/{name}.yaml").write_text(environment_yaml(purpose, chosen))


def write(name: str, purpose: str, blocks: dict[str, str]) -> None:
    """Write one lock in the order of its packages' names."""
    header = f"# {purpose}\n# Written by `make lock`.\n"
    (ROOT / name).write_text(header + "".join(blocks[package] for package in sorted(blocks)))


def check_locks() -> list[str]:
    """What is out of step between the requirements, the locks and the environments, in words."""
    pins = read_pins(ROOT / "requirements.lock")
    cuda = read_pins(ROOT / "requirements-cuda.lock")
    problems = []
    try:
        needed = closure(read_requirements(ROOT / "requirements.in"))
    except ValueError as error:
        return [f"requirements.in: {error}"]
    for name in sorted(needed):
        locked, installed = {**cuda, **pins}.get(name), metadata.version(name).split("+")[0]
        if locked is None:
            problems.append(f"requirements.lock: {name} is needed and has no pin: run `make lock`")
        elif locked != installed:
            problems.append(
                f"requirements.lock: {name} is {locked}, installed is {installed}: run `make setup`"
            )
    for name in sorted(pins.keys() - needed):
        problems.append(f"requirements.lock: nothing needs {name}: run `make lock`")
    for name, purpose in ENVIRONMENTS.items():
        path = ROOT / f"envs/{name}.yaml"
        chosen = closure(read_requirements(path.with_suffix(".in"))) & pins.keys()
        if path.read_text() != environment_yaml(purpose, {p: pins[p] for p in chosen}):
            problems.append(f"envs/{name}.yaml: differs from envs/{name}.in: run `make lock`")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="check, and write nothing")
    if parser.parse_args().check:
        problems = check_locks()
        if problems:
            sys.exit("\n".join(problems))
        print("The locks and the environments are in step with the requirements.")
    else:
        write_locks()


if __name__ == "__main__":
    main()
