"""Where each run of a scale stands, and how long the rest will take, judged by finished runs."""

import csv
import fcntl
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from inverse_depth import stored
from inverse_depth.cost import training_minutes
from inverse_depth.freshness import Freshness, training_identity
from inverse_depth.run import Run
from inverse_depth.settings import trained_as

State = Literal["done", "running", "failed", "interrupted", "stale", "to do"]
STATES: tuple[State, ...] = ("done", "running", "failed", "interrupted", "stale", "to do")
NOT_EVALUATED = ("not evaluated yet",)
SHOWN = 12  # lines of a state; `why` says the rest


@dataclass(frozen=True)
class RunStatus:
    """A run, its state, and in words what is to be known about it."""

    run: Run
    state: State
    detail: str = ""


@dataclass(frozen=True)
class Pace:
    """How training times relate to the cost model, by experiment, learned from finished runs."""

    ratios: dict[str, list[float]]

    @property
    def finished(self) -> int:
        return sum(map(len, self.ratios.values()))

    def minutes(self, run: Run) -> float:
        """Expected minutes of training; without a finished run those of the cost model."""
        everywhere = [ratio for ratios in self.ratios.values() for ratio in ratios]
        learned = self.ratios.get(run.experiment) or everywhere or [1.0]
        return training_minutes(run) * median(learned)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock on a file; a file left by a dead process is not locked."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@dataclass(frozen=True)
class Progress:
    """How far a training has come: steps done, and the seconds that they took."""

    step: int
    seconds: float

    def minutes_left(self, steps: int) -> float:
        return self.seconds / self.step * (steps - self.step) / 60


def recorded(history: Path) -> Progress | None:
    """The last row of a history; None where there is none after the first step."""
    try:
        with history.open(newline="", encoding="utf-8") as lines:
            row = list(csv.DictReader(lines))[-1]
        progress = Progress(int(row["step"]), float(row["seconds"]))
    except (OSError, IndexError, KeyError, TypeError, ValueError):
        return None
    return progress if progress.step else None


def saved(freshness: Freshness, trained: Run) -> Progress | None:
    """What an unfinished training has saved; None without a snapshot of these settings."""
    try:
        metadata, _ = stored.header(freshness.paths.snapshot(trained))
    except stored.CheckpointError:
        return None
    if metadata["identity"] != training_identity(trained):
        return None
    return Progress(metadata["step"], metadata["seconds"])


def reached(freshness: Freshness, trained: Run) -> Progress | None:
    """How far an unfinished training has come: of a running one, the history may know more."""
    running = is_locked(freshness.paths.snapshot(trained).with_suffix(".lock"))
    history = recorded(freshness.paths.history(trained)) if running else None
    known = [found for found in (saved(freshness, trained), history) if found]
    return max(known, key=lambda progress: progress.step, default=None)


def pace(freshness: Freshness) -> Pace:
    """The pace of the runs that were trained as the settings are now."""
    ratios: dict[str, list[float]] = {}
    for trained, served in freshness.served.items():
        if not all(freshness.evaluation(run) for run in served):
            progress = recorded(freshness.paths.history(trained))
            if progress:
                ratio = progress.seconds / 60 / training_minutes(trained)
                ratios.setdefault(trained.experiment, []).append(ratio)
    return Pace(ratios)


def last_error(log: Path) -> str:
    """The error that a log ends with; empty for a log without one, or none at all."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
    except OSError:
        return ""
    errors = [line for line in lines[-20:] if line.startswith("error: ")]
    if errors:
        return errors[-1].removeprefix("error: ")
    return lines[-1] if "Traceback (most recent call last):" in lines else ""


def run_status(freshness: Freshness, run: Run) -> RunStatus:
    """The state of a run. What is up to date is done, whatever its log says."""
    reasons = freshness.evaluation(run)
    if not reasons:
        return RunStatus(run, "done")
    paths, trained = freshness.paths, trained_as(run)
    progress, steps = reached(freshness, trained), trained.optimization.steps
    if is_locked(paths.snapshot(trained).with_suffix(".lock")):
        if progress is None:
            return RunStatus(run, "running", "just started")
        left = duration(progress.minutes_left(steps))
        return RunStatus(run, "running", f"step {progress.step} of {steps}, {left} left")
    for rule, subject in (("evaluate", run), ("train", trained)):
        log = paths.log(rule, str(subject))
        if error := last_error(log):
            return RunStatus(run, "failed", f"{error} (log: {log})")
    if progress:
        at = f"at step {progress.step} of {steps}"
        return RunStatus(run, "interrupted", f"{at}; the next start continues from there")
    if reasons == NOT_EVALUATED:
        return RunStatus(run, "to do")
    return RunStatus(run, "stale", "; ".join(reasons))


def minutes_left(freshness: Freshness, pace: Pace) -> float:
    """Minutes of training that the stale and missing runs need on one core."""
    total = 0.0
    for trained in freshness.served:
        if freshness.needed(trained) and freshness.checkpoint(trained):
            progress = reached(freshness, trained)
            if progress:
                total += progress.minutes_left(trained.optimization.steps)
            else:
                total += pace.minutes(trained)
    return total


def duration(minutes: float) -> str:
    """Minutes in words, to about two digits."""
    if minutes < 1:
        return "under a minute"
    if minutes < 90:
        return f"{minutes:.0f} min"
    return f"{minutes / 60:.1f} h"


def report(freshness: Freshness, cores: int) -> str:
    """Everything about a scale on one page."""
    runs = [run_status(freshness, run) for run in freshness.runs]
    counts = Counter(status.state for status in runs)
    scale = freshness.paths.scale
    counted = ", ".join(f"{counts[state]} {state}" for state in STATES if counts[state])
    parts = [f"Scale {scale}, {len(runs)} runs: {counted}"]
    for state in ("running", "failed", "interrupted", "stale"):
        chosen = [status for status in runs if status.state == state]
        if chosen:
            parts.append(f"{state}:\n" + "\n".join(_lines(chosen)))
    stale = {p.name: freshness.product(p) for p in freshness.available()}
    fresh = [name for name, reasons in stale.items() if not reasons]
    parts.append(f"{len(fresh)} of {len(stale)} tables, figures and other products are up to date")
    parts += _failed_products(freshness, stale)
    parts.append(_rest(freshness, cores))
    return "\n\n".join(parts)


def _lines(statuses: Iterable[RunStatus]) -> list[str]:
    """A line a run; runs of an experiment with the same detail share one."""
    grouped: dict[tuple[str, str], list[Run]] = {}
    for status in statuses:
        grouped.setdefault((status.run.experiment, status.detail), []).append(status.run)
    lines = []
    for (experiment, detail), runs in grouped.items():
        name = str(runs[0]) if len(runs) == 1 else f"{experiment} ({len(runs)} runs)"
        lines.append(f"  {name}: {detail}")
    if len(lines) > SHOWN:
        more = f"  and {len(lines) - SHOWN} more; `python -m inverse_depth why NAME` tells of each"
        return [*lines[:SHOWN], more]
    return lines


def _failed_products(freshness: Freshness, reasons: dict[str, tuple[str, ...]]) -> list[str]:
    kinds = {product.name: product.kind for product in freshness.available()}
    lines = []
    for name in (name for name in reasons if reasons[name]):
        log = freshness.paths.log(kinds[name], name)
        if error := last_error(log):
            lines.append(f"  {name}: {error} (log: {log})")
    return ["failed products:\n" + "\n".join(lines)] if lines else []


def _rest(freshness: Freshness, cores: int) -> str:
    learned = pace(freshness)
    left = minutes_left(freshness, learned)
    if not left:
        return "No training is left"
    basis = f"{learned.finished} finished runs" if learned.finished else "a rough cost model"
    at_once = f" ({duration(left / cores)} with {cores} at once)" if cores > 1 else ""
    return f"Training left: {duration(left)}, one run at a time{at_once}, judged by {basis}"
