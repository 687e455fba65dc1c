"""What the report says beside the results: captions, labels, headline, provenance, runtimes."""

import platform
import subprocess
from collections import Counter
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import yaml

from inverse_depth.freshness import Freshness
from inverse_depth.products import PRODUCTS, Product, product_runs
from inverse_depth.run import Run
from inverse_depth.settings import trained_as
from inverse_depth.status import duration, recorded

PACKAGES = ("torch", "numpy", "scipy", "pandas", "matplotlib", "snakemake")
SHOWN_SPECTRA = 4


@dataclass(frozen=True)
class Runtime:
    """Training time of one experiment, in words."""

    experiment: str
    runs: int
    model: str
    time: str


class Report:
    """The words of one scale's report.

    Args:
        captions: title, section and caption of each figure and table, by name.
        settings_file: the file that the settings came from.
    """

    def __init__(self, freshness: Freshness, captions: dict[str, dict], settings_file: Path):
        self.freshness = freshness
        self.captions = captions
        self.settings_file = settings_file

    @property
    def scale(self) -> str:
        return self.freshness.paths.scale

    def section(self, name: str) -> str:
        return self.captions[name]["section"]

    def caption(self, name: str) -> str:
        return self.captions[name]["caption"]

    def labels(self, name: str) -> dict[str, str]:
        """What a result shows, in the columns of the report's menu."""
        runs = self._runs(PRODUCTS[name])
        without = (
            "theory" if PRODUCTS[name].theory and not PRODUCTS[name].experiments else "not run"
        )
        models = dict.fromkeys(run.architecture.model.replace("_", " ") for run in runs)
        tasks = dict.fromkeys(map(_task, runs))
        return {
            "result": _numbered(name),
            "title": self.captions[name]["title"],
            "model": ", ".join(models) or without,
            "task": ", ".join(tasks) or without,
            "spectra (a, b)": _spectra(runs),
        }

    def _runs(self, product: Product) -> list[Run]:
        """The runs behind a product, through the tables that it is made from where it has none."""
        if product.experiments == ():
            return [run for name in product.tables for run in self._runs(PRODUCTS[name])]
        return product_runs(product, self.freshness.runs)

    def headline(self) -> str:
        """The comparison in one sentence."""
        import pandas as pd

        from inverse_depth.comparison import headline_sentence

        return headline_sentence(pd.read_csv(self.freshness.paths.data("comparison")))

    def provenance(self) -> dict[str, str]:
        """Settings, code, versions and machines."""
        from inverse_depth.frames import read_evaluation

        packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
        devices = Counter(
            read_evaluation(self.freshness.paths.evaluation(run))["result"]["device"]
            for run in self.freshness.runs
        )
        trained_on = ", ".join(f"{count} runs on {name}" for name, count in devices.items())
        return {
            "Settings": f"scale {self.scale} of {self.settings_file.name}, whole in 8 Provenance",
            "Code": _commit(),
            "Versions": f"Python {platform.python_version()}, {packages}",
            "Trained": trained_on,
            "Report made on": f"{platform.system()} {platform.machine()}",
        }

    def runtimes(self) -> list[Runtime]:
        """Training time by experiment, from the histories; a shared training counts once."""
        found = []
        for experiment in dict.fromkeys(run.experiment for run in self.freshness.runs):
            runs = [run for run in self.freshness.served if run.experiment == experiment]
            known = [recorded(self.freshness.paths.history(trained_as(run))) for run in runs]
            seconds = sum(progress.seconds for progress in known if progress)
            model = runs[0].architecture.model.replace("_", " ")
            found.append(Runtime(experiment, len(runs), model, duration(seconds / 60)))
        return found


def read_captions(path: Path) -> dict[str, dict]:
    """Captions by name."""
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def _numbered(name: str) -> str:
    """figure06 → Figure 6, figure_deep → Figure, table1_matched → Table, as readers call them."""
    kind = "Figure" if PRODUCTS[name].kind == "figure" else "Table"
    digits = name.removeprefix(kind.lower())
    return f"{kind} {int(digits)}" if digits.isdigit() else kind


def _task(run: Run) -> str:
    return "easy" if run.data.task == "easy" else f"top-{run.data.k}"


def _spectra(runs: list[Run]) -> str:
    """All spectra, or how many there are where the list would be long."""
    spectra = list(dict.fromkeys(f"({run.data.a:g}, {run.data.b:g})" for run in runs))
    if len(spectra) > SHOWN_SPECTRA:
        return f"{len(spectra)} spectra"
    return " ".join(spectra) or "–"


def _commit() -> str:
    """The commit of the code, with a word where files differ from it."""
    describe = ["git", "describe", "--always", "--abbrev=12", "--dirty= and local changes"]
    try:
        found = subprocess.run(describe, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "not in a git repository"
    return f"commit {found.stdout.strip()}"
