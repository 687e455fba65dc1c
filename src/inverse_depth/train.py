"""Training one run: deterministic on a machine, resumable to the same bits, honest about time.

Whether a run is stale is decided by its resolved settings and by the modules imported from here.
"""

import csv
import json
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from filelock import FileLock, Timeout

from inverse_depth import checkpoint
from inverse_depth.contexts import Contexts, sample_contexts, stream
from inverse_depth.models import AttentionModel, build
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


def _snapshot_tensors(model, optimizer, generator) -> dict[str, torch.Tensor]:
    tensors = {f"model.{name}": value for name, value in model.state_dict().items()}
    for index, state in optimizer.state_dict()["state"].items():
        tensors |= {f"adam.{index}.{name}": value for name, value in state.items()}
    return tensors | {"generator": generator.get_state()}


def _restore(tensors: dict[str, torch.Tensor], model, optimizer, generator) -> None:
    model.load_state_dict(
        {k.removeprefix("model."): v for k, v in tensors.items() if k.startswith("model.")}
    )
    state: dict[int, dict] = {}
    for key, value in tensors.items():
        if key.startswith("adam."):
            _, index, name = key.split(".")
            state.setdefault(int(index), {})[name] = value
    optimizer.load_state_dict(optimizer.state_dict() | {"state": state})
    generator.set_state(tensors["generator"])


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
    snapshot_path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(snapshot_path.with_suffix(".lock"))
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise TrainingError(f"another process is training {run} right now") from error
    with lock:
        _train(
            run,
            identity,
            checkpoint_path,
            history_path,
            snapshot_path,
            device,
            progress,
            warn,
            snapshot_seconds,
        )


def _train(
    run,
    identity,
    checkpoint_path,
    history_path,
    snapshot_path,
    device,
    progress,
    warn,
    snapshot_seconds,
) -> None:
    optimization, data, depth = run.optimization, run.data, run.architecture.L
    model = build(run.architecture, data.d, stream("weights", optimization.seed)).to(device)
    optimizer = _optimizer(model)
    generator = stream("training", optimization.seed, device)
    tokens = needs_tokens(run)
    validation = list(
        context_blocks(
            data,
            optimization.validation_contexts,
            optimization.teacher,
            stream("validation", optimization.seed, device),
            tokens,
        )
    )
    due = {
        round(i * optimization.steps / optimization.validations)
        for i in range(optimization.validations + 1)
    }
    previous = snapshot_path.with_suffix(".previous")
    start, rows, spent = 0, [], 0.0
    stored = _latest_snapshot([snapshot_path, previous], identity, warn)
    if stored:
        _restore(stored.tensors, model, optimizer, generator)
        start, rows = stored.metadata["step"], stored.metadata["rows"]
        spent = stored.metadata["seconds"]
        recent = torch.tensor(stored.metadata["recent"], dtype=torch.float64, device=device)
        recent_steps = stored.metadata["recent_steps"]
        warn(f"{run} continues from step {start}")
    else:
        recent, recent_steps = torch.zeros((), dtype=torch.float64, device=device), 0
    began = saved = time.monotonic()

    def record(step: int) -> None:
        nonlocal recent, recent_steps
        training_loss = (recent / recent_steps).item() if recent_steps else math.nan
        loss, mass = _validate(model, validation)
        if not math.isfinite(loss) or (recent_steps and not math.isfinite(training_loss)):
            raise TrainingError(
                f"{run} diverged before step {step} of {optimization.steps}: the loss is {loss}; "
                f"a learning rate below {optimization.learning_rate:g} may help"
            )
        scalar = model.context_scalar()
        rows.append(
            {
                "step": step,
                "loss": training_loss,
                "validation_loss": loss,
                "learning_rate": learning_rate(optimization, depth, step),
                "attention_mass": mass,
                "context_scalar": math.nan if scalar is None else scalar,
                "seconds": round(spent + time.monotonic() - began, 3),
            }
        )
        recent, recent_steps = torch.zeros_like(recent), 0
        _write_history(history_path, rows)

    if not rows:
        record(0)
    for step in range(start, optimization.steps):
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(optimization, depth, step)
        contexts = sample_contexts(
            data, optimization.batch, optimization.teacher, generator, tokens
        )
        loss = model.loss(contexts)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        recent, recent_steps = recent + loss.detach(), recent_steps + 1
        if step + 1 in due:
            record(step + 1)
        progress(step + 1, rows[-1]["validation_loss"])
        if time.monotonic() - saved >= snapshot_seconds and step + 1 < optimization.steps:
            if snapshot_path.exists():
                snapshot_path.replace(previous)
            metadata = {
                "identity": identity,
                "step": step + 1,
                "rows": rows,
                "recent": recent.item(),
                "recent_steps": recent_steps,
                "seconds": spent + time.monotonic() - began,
            }
            tensors = _snapshot_tensors(model, optimizer, generator)
            checkpoint.save(snapshot_path, tensors, metadata)
            saved = time.monotonic()
    checkpoint.save(
        checkpoint_path,
        model.state_dict(),
        {
            "identity": identity,
            "settings": run.training(),
            "final_change": final_change(rows, optimization.steps),
            "device": device.type,
        },
    )
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
