"""Proof that new code gives the results of old code, so that what was published stays fresh.

A sample of the runs that are stale by code alone is made again from scratch with the new code. If
its weights and its evaluation agree with the recorded ones, the ledger says so, and the results
of all runs made by that old code stand for those of the new.
"""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator
from datetime import date
from pathlib import Path

import torch

from inverse_depth import checkpoint
from inverse_depth.code_digest import digest
from inverse_depth.cost import training_minutes
from inverse_depth.evaluate import evaluate
from inverse_depth.freshness import Freshness, stage_code, training_identity
from inverse_depth.paths import Paths
from inverse_depth.restamps import Restamp
from inverse_depth.run import Run
from inverse_depth.settings import trained_as
from inverse_depth.train import train


class RestampError(RuntimeError):
    """Results that new code does not reproduce, or that cannot be compared."""


def restamp(
    freshness: Freshness,
    names: Iterable[str],
    tolerance: float,
    device: torch.device,
    progress: Callable[[Run, int], object],
) -> list[Restamp]:
    """Rows for the ledger that make the runs fresh whose settings are as they were.

    Args:
        names: runs to take as samples, EXPERIMENT/RUN. Old code that none of them was made by
            is represented by its cheapest run of each experiment.
        tolerance: largest relative difference of weights and of measured numbers.
        progress: told the run and the steps that are trained.

    Raises:
        RestampError: if a sample differs, saying which and by how much, or if there is nothing to
            compare with.
    """
    groups: dict[tuple, list[Run]] = {}
    for run in freshness.runs:
        old = freshness.old_code(run)
        if old:
            groups.setdefault((run.experiment, *sorted(old.items())), []).append(run)
    if not groups:
        raise RestampError("no run is stale by its code alone: there is nothing to restamp")
    named = set(names)
    unknown = named - {str(run) for runs in groups.values() for run in runs}
    if unknown:
        raise RestampError(f"not stale by code alone: {', '.join(sorted(unknown))}")
    rows, failures = [], []
    for (experiment, *old), runs in groups.items():
        samples = [run for run in runs if str(run) in named] or [min(runs, key=training_minutes)]
        for sample in samples:
            stages = dict(old)
            weights, measured = _differences(freshness, sample, stages, device, progress)
            if max(weights, measured) > tolerance:
                failures.append(
                    f"{sample}: weights differ by {weights:.2g}, evaluation by {measured:.2g}"
                )
            for stage, code in stages.items():
                rows.append(
                    Restamp(
                        date=date.today().isoformat(),
                        experiment=experiment,
                        stage=stage,
                        old=code,
                        new=digest(stage_code(stage, sample)),
                        run=sample.name,
                        weights=weights,
                        evaluation=measured,
                        tolerance=tolerance,
                    )
                )
    if failures:
        raise RestampError(
            f"the new code does not reproduce these runs to a relative {tolerance:g}; "
            "nothing was changed\n" + "\n".join(failures)
        )
    return rows


def _differences(freshness, run, stages, device, progress) -> tuple[float, float]:
    """Largest relative differences of weights, and of evaluation, of a run made again."""
    paths, trained = freshness.paths, trained_as(run)
    recorded = paths.checkpoint(trained)
    record = json.loads(paths.evaluation(run).read_text(encoding="utf-8"))
    try:
        before = checkpoint.load(recorded)
    except checkpoint.CheckpointError as error:
        raise RestampError(f"{error}; `dvc pull {recorded}` fetches it") from error
    if before.metadata["identity"] != record["stamp"]["training"]:
        raise RestampError(f"{recorded} is not the checkpoint that was evaluated; `dvc checkout`")
    if "training" not in stages:
        return 0.0, _difference(evaluate(run, recorded, trained, device), record)
    with tempfile.TemporaryDirectory() as folder:
        again = Paths(paths.scale, Path(folder))
        train(
            trained,
            training_identity(trained),
            again.checkpoint(trained),
            again.history(trained),
            again.snapshot(trained),
            device,
            lambda step, loss: progress(trained, step),
        )
        after = checkpoint.load(again.checkpoint(trained))
        measured = evaluate(run, again.checkpoint(trained), trained, device)
    if before.tensors.keys() != after.tensors.keys():
        raise RestampError(f"{run} has other weights now: {', '.join(after.tensors)}")
    weights = max(
        float((after.tensors[name] - old).abs().max() / old.abs().max().clamp(min=1e-12))
        for name, old in before.tensors.items()
    )
    return weights, _difference(measured, record)


def _difference(new: dict, old: dict) -> float:
    """Largest difference of measured numbers, relative to each or to the loss if that is larger."""
    loss = abs(old["result"]["loss"])
    pairs = list(_numbers(new["result"], old["result"]))
    return max(abs(a - b) / max(abs(b), loss, 1e-12) for a, b in pairs)


def _numbers(new, old) -> Iterator[tuple[float, float]]:
    if isinstance(old, dict):
        for key in old:
            yield from _numbers(new.get(key), old[key])
    elif isinstance(old, list) and isinstance(new, list) and len(new) == len(old):
        for a, b in zip(new, old, strict=True):
            yield from _numbers(a, b)
    elif isinstance(old, int | float):
        yield (new if isinstance(new, int | float) else float("inf")), old
