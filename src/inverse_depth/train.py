"""Training one run: deterministic on a machine, resumable to the same bits, honest about time.

Whether a run is stale is decided by its resolved settings and by the modules imported from here.
"""

import csv
import json
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from inverse_depth import checkpoint
from inverse_depth.contexts import Contexts, sample_contexts, stream
from inverse_depth.model import AttentionModel
from inverse_depth.models import build
from inverse_depth.run import Data, Optimization, Run

HISTORY_COLUMNS = (
    "step",
    "loss",
    "validation_loss",
    "learning_rate",
    "attention_mass",
    "context_scalar",
    "seconds",
)
SNAPSHOT_SECONDS = 30.0

Progress = Callable[[int, float], None]


class TrainingError(RuntimeError):
    """Training that cannot go on, in the user's words."""


def select_device(name: str) -> torch.device:
    """`auto` takes CUDA where there is one; published numbers use full float32 everywhere.

    Raises:
        TrainingError: if CUDA is asked for and absent.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise TrainingError("device is 'cuda', but PyTorch finds no CUDA GPU; use 'auto' or 'cpu'")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it to be so
    torch.use_deterministic_algorithms(True)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    return torch.device(name)


def context_block(data: Data) -> int:
    """How many contexts are drawn at once for validation and evaluation.

    It depends on the data alone, so that all depths see the same contexts.
    """
    return max(1, min(256, 2**22 // ((data.P or 1) * data.d)))


def context_blocks(data: Data, count: int, teacher: str, generator: torch.Generator, tokens: bool):
    """Yield `count` contexts in blocks."""
    block = context_block(data)
    for start in range(0, count, block):
        yield sample_contexts(data, min(block, count - start), teacher, generator, tokens)


def needs_tokens(run: Run) -> bool:
    """Linear attention on the easy task meets the context only through its covariance."""
    return not (run.architecture.model == "linear" and run.data.task == "easy")


def learning_rate(optimization: Optimization, depth: int, step: int) -> float:
    """Linear warm-up, plateau, linear decay to zero; `step` counts from 0."""
    peak = optimization.learning_rate / depth**optimization.depth_exponent
    warm = optimization.warmup * optimization.steps
    falling = optimization.decay * optimization.steps
    rise = min(1.0, (step + 1) / warm) if warm else 1.0
    fall = min(1.0, (optimization.steps - step) / falling) if falling else 1.0
    return peak * min(rise, fall)


def _validate(model: AttentionModel, blocks: list[Contexts]) -> tuple[float, float]:
    """Loss, and attention mass on the selected tokens, over the validation contexts."""
    total, mass, count = 0.0, 0.0, 0
    with torch.no_grad():
        for contexts in blocks:
            residual = model.prediction(contexts) - contexts.teacher.labels(contexts.target)
            total += residual.square().sum(dtype=torch.float64).item()
            attention = model.test_attention(contexts)
            if attention is None:
                mass = math.nan
            else:
                mass += attention.gather(1, contexts.selected).sum(dtype=torch.float64).item()
            count += len(residual)
    return total / count, mass / count


def _optimizer(model: AttentionModel) -> torch.optim.Adam:
    trained = [p for p in model.parameters() if p.requires_grad]
    return torch.optim.Adam(trained, betas=(0.9, 0.999), eps=1e-8, fused=True)


def _latest_snapshot(paths: list[Path], identity: str, warn) -> checkpoint.Checkpoint | None:
    """The newest snapshot of this very run; one that is corrupted is named and passed over."""
    for path in paths:
        if not path.exists():
            continue
        try:
            stored = checkpoint.load(path)
        except checkpoint.CheckpointError as error:
            warn(f"{error}; going on from the snapshot before it")
            path.unlink()
            continue
        if stored.metadata["identity"] == identity:
            return stored
        warn(f"snapshot {path} belongs to other settings or code; it is not used")
    return None


def _write_history(path: Path, rows: list[dict]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as stream_:
        writer = csv.DictWriter(stream_, HISTORY_COLUMNS)
        writer.writeheader()
        writer.writerows(rows)


def final_change(rows: list[dict], steps: int) -> float:
    """Relative change of the validation loss over the last quarter of training."""
    earlier = [row for row in rows if row["step"] <= 0.75 * steps]
    before, after = earlier[-1]["validation_loss"], rows[-1]["validation_loss"]
    return abs(before - after) / after if after else 0.0


class _Training:
    """Everything that changes while a run trains, and so everything that a snapshot holds.

    Attributes:
        step: how many steps are done.
        rows: of the history.
        recent, recent_steps: sum of the losses since the last row, and how many.
        seconds: training time of earlier, interrupted attempts.
    """

    def __init__(self, run: Run, device: torch.device):
        optimization, data = run.optimization, run.data
        self.run = run
        model = build(run.architecture, data.d, stream("weights", optimization.seed))
        self.model = model.to(device)
        self.optimizer = _optimizer(self.model)
        self.generator = stream("training", optimization.seed, device)
        self.tokens = needs_tokens(run)
        validation = stream("validation", optimization.seed, device)
        self.validation = list(
            context_blocks(
                data,
                optimization.validation_contexts,
                optimization.teacher,
                validation,
                self.tokens,
            )
        )
        self.step, self.rows, self.seconds = 0, [], 0.0
        self.recent, self.recent_steps = torch.zeros((), dtype=torch.float64, device=device), 0
        self.began = time.monotonic()

    def elapsed(self) -> float:
        """Seconds of training, earlier attempts included."""
        return self.seconds + time.monotonic() - self.began

    def advance(self) -> None:
        """One step on a fresh batch of contexts."""
        run = self.run
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(run.optimization, run.architecture.L, self.step)
        contexts = sample_contexts(
            run.data,
            run.optimization.batch,
            run.optimization.teacher,
            self.generator,
            self.tokens,
        )
        loss = self.model.loss(contexts)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if run.optimization.teacher == "isotropic":
            self.model.average_gradient_over_rotations()
        self.optimizer.step()
        self.recent, self.recent_steps = self.recent + loss.detach(), self.recent_steps + 1
        self.step += 1

    def record(self) -> None:
        """Validate and add a row to the history.

        Raises:
            TrainingError: if the loss is not finite any more.
        """
        run, optimization = self.run, self.run.optimization
        mean = (self.recent / self.recent_steps).item() if self.recent_steps else math.nan
        loss, mass = _validate(self.model, self.validation)
        if not math.isfinite(loss) or (self.recent_steps and not math.isfinite(mean)):
            raise TrainingError(
                f"{run} diverged before step {self.step} of {optimization.steps}: the loss is "
                f"{loss}; a learning rate below {optimization.learning_rate:g} may help"
            )
        scalar = self.model.context_scalar()
        self.rows.append(
            {
                "step": self.step,
                "loss": mean,
                "validation_loss": loss,
                "learning_rate": learning_rate(optimization, run.architecture.L, self.step),
                "attention_mass": mass,
                "context_scalar": math.nan if scalar is None else scalar,
                "seconds": round(self.elapsed(), 3),
            }
        )
        self.recent, self.recent_steps = torch.zeros_like(self.recent), 0

    def save(self, path: Path, identity: str) -> None:
        """Write a snapshot."""
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for index, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"adam.{index}.{name}": value for name, value in state.items()}
        tensors["generator"] = self.generator.get_state()
        metadata = {
            "identity": identity,
            "step": self.step,
            "rows": self.rows,
            "recent": self.recent.item(),
            "recent_steps": self.recent_steps,
            "seconds": self.elapsed(),
        }
        checkpoint.save(path, tensors, metadata)

    def restore(self, stored: checkpoint.Checkpoint) -> None:
        """Go back to where a snapshot was made."""
        model, adam = {}, {}
        for key, value in stored.tensors.items():
            owner, _, name = key.partition(".")
            if owner == "model":
                model[name] = value
            elif owner == "adam":
                index, _, name = name.partition(".")
                adam.setdefault(int(index), {})[name] = value
        self.model.load_state_dict(model)
        self.optimizer.load_state_dict(self.optimizer.state_dict() | {"state": adam})
        self.generator.set_state(stored.tensors["generator"])
        metadata = stored.metadata
        self.step, self.rows = metadata["step"], metadata["rows"]
        self.recent = torch.full_like(self.recent, metadata["recent"])
        self.recent_steps, self.seconds = metadata["recent_steps"], metadata["seconds"]
        self.began = time.monotonic()


@contextmanager
def _alone(run: Run, snapshot_path: Path) -> Iterator[None]:
    """Hold the lock of a run, which one process at a time may train."""
    snapshot_path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(snapshot_path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise TrainingError(f"another process is training {run} right now") from error
    with lock:
        yield


def train(
    run: Run,
    identity: str,
    checkpoint_path: Path,
    history_path: Path,
    snapshot_path: Path,
    device: torch.device,
    progress: Progress = lambda step, loss: None,
    warn: Callable[[str], None] = print,
    snapshot_seconds: float = SNAPSHOT_SECONDS,
) -> None:
    """Train a run and write its checkpoint and history.

    A snapshot goes to `snapshot_path` every `snapshot_seconds`, the one before to its sibling
    `.previous`; both are deleted on success. A later call with the same `identity` continues from
    the newest intact one.

    Raises:
        TrainingError: if the loss diverges, or another process trains this run now.
    """
    steps, validations = run.optimization.steps, run.optimization.validations
    due = {round(i * steps / validations) for i in range(validations + 1)}
    previous = snapshot_path.with_suffix(".previous")
    with _alone(run, snapshot_path):
        training = _Training(run, device)
        stored = _latest_snapshot([snapshot_path, previous], identity, warn)
        if stored:
            training.restore(stored)
            warn(f"{run} continues from step {training.step}")
        else:
            training.record()
        saved = time.monotonic()
        while training.step < steps:
            training.advance()
            if training.step in due:
                training.record()
                _write_history(history_path, training.rows)
            progress(training.step, training.rows[-1]["validation_loss"])
            if time.monotonic() - saved >= snapshot_seconds and training.step < steps:
                if snapshot_path.exists():
                    snapshot_path.replace(previous)
                training.save(snapshot_path, identity)
                saved = time.monotonic()
        metadata = {
            "identity": identity,
            "settings": run.training(),
            "final_change": final_change(training.rows, steps),
            "device": device.type,
        }
        checkpoint.save(checkpoint_path, training.model.state_dict(), metadata)
        snapshot_path.unlink(missing_ok=True)
        previous.unlink(missing_ok=True)


def load_model(path: Path, run: Run, device: torch.device) -> tuple[AttentionModel, dict]:
    """The trained model of a run and its checkpoint's metadata.

    Raises:
        CheckpointError: if the checkpoint is corrupted or holds other settings.
    """
    stored = checkpoint.load(path)
    if stored.metadata["settings"] != json.loads(json.dumps(run.training())):
        raise checkpoint.CheckpointError(f"checkpoint {path} was trained with other settings")
    model = build(run.architecture, run.data.d, stream("weights", run.optimization.seed))
    model.load_state_dict(stored.tensors)
    return model.to(device), stored.metadata
