"""From the frame of evaluations to loss against depth, averaged over training seeds."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

NOT_RUN = "not run at this scale"
# What the runs of one depth curve must have in common.
_SHARED = ["model", "task", "k", "d", "P", "N", "norm"]


@dataclass(frozen=True)
class Curve:
    """One experiment and spectrum by depth; every array is (n,), averaged over seeds.

    The standard error of the loss joins the context error, which the seeds share because they
    are evaluated on common contexts, with the scatter between the S seeds:
    sqrt(mean(se^2) + var(seeds) / S). `seeds` is the smallest S. `d` and `P` are NaN, and the
    arrays empty, where nothing was run.
    """

    depths: np.ndarray
    loss: np.ndarray
    loss_se: np.ndarray
    shared_error: np.ndarray
    disagreement: np.ndarray
    seeds: int
    d: float
    P: float
    unconverged: tuple[int, ...]

    def between(self, first: float, last: float = np.inf) -> "Curve":
        """The curve at depths from first to last, both included."""
        kept = (self.depths >= first) & (self.depths <= last)
        names = ("depths", "loss", "loss_se", "shared_error", "disagreement")
        return replace(
            self,
            **{name: getattr(self, name)[kept] for name in names},
            unconverged=tuple(L for L in self.unconverged if first <= L <= last),
        )

    @property
    def note(self) -> str:
        """What a reader should know about these runs, or nothing."""
        if not len(self.depths):
            return NOT_RUN
        if self.unconverged:
            return f"not converged at L = {', '.join(map(str, self.unconverged))}"
        return ""


def depth_curve(evaluations: pd.DataFrame, experiment: str, **where: float) -> Curve:
    """Loss against depth of an experiment's runs with the given values, such as a=0, b=0.5.

    Raises:
        ValueError: if those runs differ in what a curve must hold fixed, or repeat a seed.
    """
    runs = select(evaluations, experiment=experiment, **where)
    for name in _SHARED:
        if name in runs and runs[name].nunique(dropna=False) > 1:
            values = ", ".join(map(str, runs[name].unique()))
            raise ValueError(f"experiment {experiment} at {where} mixes {name} = {values}")
    if runs.duplicated(["L", "seed"]).any():
        raise ValueError(f"experiment {experiment} at {where} has two runs of one depth and seed")

    by_depth = runs.groupby("L", sort=True)
    seeds = by_depth.size()
    seed_variance = by_depth["loss"].var().fillna(0.0) / seeds
    context_variance = (runs["loss_se"] ** 2).groupby(runs["L"]).mean()
    converged = by_depth["converged"].all()
    return Curve(
        depths=seeds.index.to_numpy(dtype=float),
        loss=by_depth["loss"].mean().to_numpy(dtype=float),
        loss_se=np.sqrt(context_variance + seed_variance).to_numpy(dtype=float),
        shared_error=by_depth["shared_error"].mean().to_numpy(dtype=float),
        disagreement=by_depth["disagreement"].mean().to_numpy(dtype=float),
        seeds=int(seeds.min()) if len(seeds) else 0,
        d=float(runs["d"].iloc[0]) if len(runs) else np.nan,
        P=float(runs["P"].iloc[0]) if len(runs) else np.nan,
        unconverged=tuple(int(L) for L in converged.index[~converged.astype(bool)]),
    )


def replicate_curves(
    bootstrap: pd.DataFrame | None,
    evaluations: pd.DataFrame,
    experiment: str,
    depths: Iterable[float],
    seed: int,
    **where: float,
) -> tuple[np.ndarray, np.ndarray] | None:
    """Bootstrap replicates of loss and shared error at the given depths, each (R, n).

    Contexts are resampled already, alike for all depths; here each replicate also draws its
    training seeds with replacement, independently at each depth, since every run has its own
    training noise. None where some depth has no replicates.

    Args:
        bootstrap: frame experiment, run, replicate, loss, shared_error, or None.
        seed: seeds the draws of training seeds.
        where: as in `depth_curve`.
    """
    if bootstrap is None or bootstrap.empty:
        return None
    rng = np.random.default_rng(seed)
    runs = select(evaluations, experiment=experiment, **where)
    replicates = bootstrap[bootstrap["experiment"] == experiment]
    curves = []
    for L in depths:
        names = runs.loc[runs["L"] == L].sort_values("seed")["run"]
        chosen = replicates[replicates["run"].isin(names)]
        if not len(names) or chosen["run"].nunique() < len(names):
            return None
        # (value, replicate, seed)
        values = np.stack(
            [
                chosen.pivot(index="replicate", columns="run", values=value)[list(names)]
                for value in ("loss", "shared_error")
            ]
        )
        drawn = rng.integers(len(names), size=values.shape[1:])
        curves.append(np.take_along_axis(values, drawn[None], axis=2).mean(axis=2))
    if not curves or len({curve.shape for curve in curves}) > 1:
        return None
    loss, shared_error = np.stack(curves, axis=-1)
    return loss, shared_error


def select(frame: pd.DataFrame, **where: object) -> pd.DataFrame:
    """The rows that have the given values."""
    chosen = np.ones(len(frame), dtype=bool)
    for name, value in where.items():
        chosen &= (frame[name] == value).to_numpy()
    return frame[chosen]


def lookup(frame: pd.DataFrame | None, **where: object) -> dict[str, object]:
    """The one row that has the given values, as a dict; empty if there is none.

    Raises:
        ValueError: if several rows have them.
    """
    if frame is None or frame.empty:
        return {}
    rows = select(frame, **where)
    if len(rows) > 1:
        raise ValueError(f"{len(rows)} rows have {where}; expected one")
    return rows.iloc[0].to_dict() if len(rows) else {}


def keys_of(names: list[str], *frames: pd.DataFrame | None) -> list[dict[str, float]]:
    """The distinct values of the named columns in the frames, in order of appearance."""
    present = [frame[names] for frame in frames if frame is not None and not frame.empty]
    if not present:
        return []
    return pd.concat(present).drop_duplicates().to_dict("records")


def listed(depths: Iterable[float]) -> str:
    """Depths as the tables mark them: "8 16 32"."""
    return " ".join(f"{L:g}" for L in depths)


def joined(*notes: str) -> str:
    """The notes that say something, each once."""
    return "; ".join(dict.fromkeys(note for note in notes if note))
