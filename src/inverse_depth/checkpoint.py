"""Checkpoints and snapshots: safetensors with what they were made from, and a checksum, inside."""

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor


class CheckpointError(RuntimeError):
    """A checkpoint or snapshot that cannot be trusted."""


@dataclass(frozen=True)
class Checkpoint:
    """Named tensors and the plain values stored with them."""

    tensors: dict[str, Tensor]
    metadata: dict


def _checksum(tensors: dict[str, Tensor], metadata: str) -> str:
    digest = hashlib.sha256(metadata.encode())
    for name in sorted(tensors):
        tensor = tensors[name].detach().cpu().contiguous()
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def save(path: Path, tensors: dict[str, Tensor], metadata: dict) -> None:
    """Write to a temporary name beside `path` and rename, so that no reader sees half a file.

    Raises:
        OSError: if the disk is full or read-only; the file that was there before is kept.
    """
    plain = json.dumps(metadata, sort_keys=True)
    tensors = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        save_file(tensors, temporary, {"inverse_depth": plain, "sha256": _checksum(tensors, plain)})
        with temporary.open("rb") as written:
            os.fsync(written.fileno())
        temporary.replace(path)
    except SafetensorError as error:
        raise OSError(f"cannot write {path}: {error}") from error
    finally:
        temporary.unlink(missing_ok=True)


def load(path: Path) -> Checkpoint:
    """Read and verify.

    Raises:
        CheckpointError: naming the file, if it is truncated, altered or not ours.
    """
    try:
        with safe_open(path, framework="pt") as stored:
            header = stored.metadata() or {}
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error
    if "inverse_depth" not in header:
        raise CheckpointError(f"checkpoint {path} was not written by this pipeline")
    if _checksum(tensors, header["inverse_depth"]) != header.get("sha256"):
        raise CheckpointError(f"checkpoint {path} is corrupted: its checksum does not match")
    return Checkpoint(tensors, json.loads(header["inverse_depth"]))
