"""Writing a file whole or not at all."""

import os
from pathlib import Path


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary name beside `path` and rename; the folder is made where it is missing.

    Raises:
        OSError: if the disk is full or read-only; the file that was there before is kept.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        temporary.write_bytes(content)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
