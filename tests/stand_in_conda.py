"""What Snakemake asks of conda, without conda: `stand_in_conda.py PREFIX ARGUMENTS...`.

An environment is a Python that can import the packages that its list pins, linked from the
installation that runs this file, and nothing else.
"""

import json
import sys
from importlib import metadata
from pathlib import Path

import yaml


def create(listing: Path, environment: Path) -> None:
    """Make the environment of one `envs/*.yaml`."""
    packages = environment / "packages"
    packages.mkdir(parents=True)
    for pin in yaml.safe_load(listing.read_text())["dependencies"][-1]["pip"]:
        package = metadata.distribution(pin.split("==")[0])
        for name in {file.parts[0] for file in package.files} - {"..", "__pycache__"}:
            link = packages / name
            if not link.exists():
                link.symlink_to(package.locate_file(name))
    python = environment / "bin/python"
    python.parent.mkdir()
    # -S leaves this installation's own packages out.
    call = f'PYTHONPATH="{packages}:$PYTHONPATH" exec {sys.executable} -S "$@"'
    python.write_text(f"#!/bin/sh\n{call}\n")
    python.chmod(0o755)


def main(prefix: str, *arguments: str) -> None:
    match arguments:
        case ["--version"]:
            print("conda 25.1.0")
        case ["info", "--json"]:
            print(json.dumps({"conda_prefix": prefix, "platform": "linux-64"}))
        case ["config", "--get", "channel_priority", "--json"]:
            print(json.dumps({"get": {"channel_priority": "strict"}}))
        case ["env", "create", *_, "--file", listing, "--prefix", environment]:
            create(Path(listing), Path(environment))
        case ["clean", *_]:
            pass
        case _:
            sys.exit(f"the stand-in for conda knows no {' '.join(arguments)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
