"""Checkpoint files as bytes: what their header says and whether they are intact.

The workflow asks this of many files at its start, so nothing here needs torch.
"""

import hashlib
import json
from pathlib import Path

KEY = "inverse_depth"


class CheckpointError(RuntimeError):
    """A checkpoint or snapshot that cannot be trusted."""


def entries(metadata: dict, content: bytes) -> dict[str, str]:
    """What to store in the header of a safetensors content: metadata with a checksum.

    It is a single entry, since the order of several is not the same in every process.
    """
    plain = json.dumps(metadata, sort_keys=True)
    return {KEY: f"{_checksum(plain, content)} {plain}"}


def _checksum(metadata: str, content: bytes) -> str:
    """SHA-256 of the metadata and of a safetensors content: names, types, shapes and values."""
    tensors, data = _split(content)
    tensors.pop("__metadata__", None)
    described = json.dumps(tensors, sort_keys=True)
    return hashlib.sha256(f"{metadata}\n{described}\n".encode() + data).hexdigest()


def header(path: Path) -> tuple[dict, str]:
    """Metadata and checksum that a checkpoint's header gives, its tensors unread.

    Raises:
        CheckpointError: naming the file, if it cannot be read or is not ours.
    """
    try:
        with path.open("rb") as stream:
            size = stream.read(8)
            length = min(int.from_bytes(size, "little"), path.stat().st_size)
            stored = _split(size + stream.read(length))[0].get("__metadata__", {})
    except OSError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path} cannot be read: {error}") from error
    sha256, _, plain = stored.get(KEY, "").partition(" ")
    try:
        return json.loads(plain), sha256
    except ValueError as error:
        raise CheckpointError(f"checkpoint {path} was not written by this pipeline") from error


def intact(path: Path) -> bytes:
    """The content of a checkpoint whose checksum is right.

    Raises:
        CheckpointError: naming the file, if it is truncated, altered or not ours.
    """
    header(path)
    content = path.read_bytes()
    sha256, _, plain = _split(content)[0]["__metadata__"][KEY].partition(" ")
    if _checksum(plain, content) != sha256:
        raise CheckpointError(f"checkpoint {path} is corrupted: its checksum does not match")
    return content


def _split(content: bytes) -> tuple[dict, bytes]:
    """Header and tensor data of a safetensors content.

    Raises:
        ValueError: if the header is not complete.
    """
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 + length or length < 2:
        raise ValueError("its header is not complete")
    return json.loads(content[8 : 8 + length]), content[8 + length :]
