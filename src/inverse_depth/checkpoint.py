"""Checkpoints and snapshots: safetensors with what they were made from, and a checksum, inside."""

import os
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load as from_bytes
from safetensors.torch import save as to_bytes
from safetensors.torch import save_file
from torch import Tensor

from inverse_depth import stored
from inverse_depth.stored import CheckpointError

__all__ = ["Checkpoint", "CheckpointError", "load", "save"]


@dataclass(frozen=True)
class Checkpoint:
    """Named tensors and the plain values stored with them."""

    tensors: dict[str, Tensor]
    metadata: dict


def save(path: Path, tensors: dict[str, Tensor], metadata: dict) -> None:
    """Write to a temporary name beside `path` and rename, so that no reader sees half a file.

    Raises:
        OSError: if the disk is full or read-only; the file that was there before is kept.
    """
    tensors = {name: t.detach().cpu().contiguous() for name, t in tensors.items()}
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        save_file(tensors, temporary, stored.entries(metadata, to_bytes(tensors)))
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
    content = stored.intact(path)
    metadata, _ = stored.header(path)
    return Checkpoint(from_bytes(content), metadata)
