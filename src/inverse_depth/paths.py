"""Where the artifacts of a scale lie, relative to the project's folder."""

from dataclasses import dataclass
from pathlib import Path

from inverse_depth.run import Run


@dataclass(frozen=True)
class Paths:
    """The files of one scale under `results/`, and its snapshots outside of it."""

    scale: str
    root: Path = Path(".")

    @property
    def results(self) -> Path:
        return self.root / "results" / self.scale

    def checkpoint(self, run: Run) -> Path:
        return self.results / "checkpoints" / run.experiment / f"{run.name}.safetensors"

    def history(self, run: Run) -> Path:
        return self.results / "history" / run.experiment / f"{run.name}.csv"

    def evaluation(self, run: Run) -> Path:
        return self.results / "evaluations" / run.experiment / f"{run.name}.json"

    def snapshot(self, run: Run) -> Path:
        """Outside `results/`, where neither Snakemake nor DVC deletes it."""
        return self.root / "snapshots" / self.scale / run.experiment / f"{run.name}.safetensors"

    def theory(self, name: str) -> Path:
        return self.results / "theory" / f"{name}.csv"

    def table(self, name: str, suffix: str = ".csv") -> Path:
        return self.results / "tables" / f"{name}{suffix}"

    def figure(self, name: str, suffix: str = ".png") -> Path:
        return self.results / "figures" / f"{name}{suffix}"

    def data(self, name: str) -> Path:
        return self.results / f"{name}.csv"

    def page(self, name: str) -> Path:
        """A table as the report shows it."""
        return self.results / "pages" / f"{name}.html"

    def stamp(self, product: str) -> Path:
        """What a product was made from."""
        return self.results / "stamps" / f"{product}.json"

    def benchmark(self, rule: str, name: str) -> Path:
        return self.results / "benchmarks" / rule / f"{name}.tsv"

    def log(self, rule: str, name: str) -> Path:
        return self.results / "logs" / rule / f"{name}.log"

    @property
    def ledger(self) -> Path:
        """Code that was shown to give the same results as code before it."""
        return self.results / "restamps.csv"

    @property
    def code(self) -> Path:
        """Digests of the code behind each kind of result."""
        return self.results / "code.json"
