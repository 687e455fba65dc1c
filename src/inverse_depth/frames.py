"""Evaluations and histories as the pandas frames that tables and figures take."""

import json
import math
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pandas as pd

from inverse_depth.paths import Paths
from inverse_depth.run import Run

EVALUATION_COLUMNS = [
    "experiment",
    "model",
    "task",
    "k",
    "a",
    "b",
    "d",
    "P",
    "N",
    "L",
    "seed",
    "loss",
    "loss_se",
    "shared_error",
    "disagreement",
    "gain",
    "context_scalar",
    "contexts",
    "steps",
    "teacher",
    "init",
    "norm",
    "final_change",
    "converged",
    "device",
    "code",
    "learning_rate",
    "encoder",
    "run",
]


class EvaluationError(ValueError):
    """A file that is no evaluation."""


def read_evaluation(path: Path) -> dict:
    """One evaluation JSON.

    Raises:
        EvaluationError: naming the file, if it is not one.
    """
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise EvaluationError(
            f"evaluation {path} is not valid JSON ({error}); `snakemake --cores all {path}` "
            "makes it again"
        ) from error


class Results:
    """Lazily read frames of some runs of one scale.

    Args:
        runs: the runs whose evaluations exist.
        paths: where they lie.
        convergence_limit: largest relative change over the last quarter of a converged training.
    """

    def __init__(self, runs: Iterable[Run], paths: Paths, convergence_limit: float):
        self.runs = list(runs)
        self.paths = paths
        self.convergence_limit = convergence_limit
        self._evaluated = [(run, read_evaluation(paths.evaluation(run))) for run in self.runs]

    def _keys(self, run: Run) -> dict:
        return {
            "experiment": run.experiment,
            "run": run.name,
            "a": run.data.a,
            "b": run.data.b,
            "k": run.data.k,
            "L": run.architecture.L,
            "seed": run.optimization.seed,
        }

    def evaluations(self) -> pd.DataFrame:
        """A row a run, with the columns of `evaluations.csv`."""
        rows = []
        for run, record in self._evaluated:
            result = record["result"]
            row = asdict(run.data) | asdict(run.architecture) | asdict(run.optimization)
            row |= {key: result[key] for key in EVALUATION_COLUMNS if key in result}
            row |= {
                "experiment": run.experiment,
                "run": run.name,
                "P": math.inf if run.data.P is None else run.data.P,
                "contexts": run.evaluation.contexts,
                "converged": result["final_change"] <= self.convergence_limit,
                "code": record.get("stamp", {}).get("training", ""),
            }
            rows.append(row)
        frame = pd.DataFrame(rows).reindex(columns=EVALUATION_COLUMNS)
        missing = ["shared_error", "disagreement", "context_scalar", "gain"]
        return frame.astype({column: float for column in missing})

    def modes(self) -> pd.DataFrame:
        """Mode-wise losses, a row a run and mode."""
        columns = ["experiment", "run", "a", "b", "L", "seed", "mode", "loss"]
        rows = [
            self._keys(run) | {"mode": mode, "loss": loss}
            for run, record in self._evaluated
            for mode, loss in enumerate(record["result"]["modes"] or [], start=1)
        ]
        return pd.DataFrame(rows, columns=columns)

    def bootstrap(self) -> pd.DataFrame:
        """Bootstrap means of loss and shared error, a row a run and replicate."""
        columns = ["experiment", "run", "a", "b", "L", "seed", "replicate", "loss", "shared_error"]
        rows = []
        for run, record in self._evaluated:
            replicates = record["result"]["bootstrap"]
            shared = replicates.get("shared_error", [math.nan] * len(replicates["loss"]))
            for replicate, (loss, error) in enumerate(zip(replicates["loss"], shared, strict=True)):
                values = {"replicate": replicate, "loss": loss, "shared_error": error}
                rows.append(self._keys(run) | values)
        return pd.DataFrame(rows, columns=columns)

    def selection(self) -> pd.DataFrame:
        """Percentiles of the selection loss (eq 90)."""
        columns = ["experiment", "run", "a", "b", "L", "seed", "percentile", "selection_loss"]
        rows = []
        for run, record in self._evaluated:
            losses = record["result"]["selection"] or []
            for percentile, loss in zip(np.linspace(0, 100, len(losses)), losses, strict=True):
                rows.append(self._keys(run) | {"percentile": percentile, "selection_loss": loss})
        return pd.DataFrame(rows, columns=columns)

    def attention(self) -> pd.DataFrame:
        """Averaged context attention A^1 of two-layer models, a row a matrix element."""
        columns = ["experiment", "run", "k", "row", "column", "weight"]
        rows = []
        for run, record in self._evaluated:
            for i, line in enumerate(record["result"]["attention_map"] or []):
                for j, weight in enumerate(line):
                    rows.append(self._keys(run) | {"row": i, "column": j, "weight": weight})
        return pd.DataFrame(rows, columns=columns)

    def history(self) -> pd.DataFrame:
        """Training histories, a row a run and recorded step."""
        frames = []
        for run in self.runs:
            path = self.paths.history(run)
            if path.exists():
                frames.append(pd.read_csv(path).assign(**self._keys(run)))
        return pd.concat(frames, ignore_index=True) if frames else pd.DataFrame()
