"""Small state files of the derived indexes, replaced as a whole."""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_state(path: Path) -> dict[str, Any] | None:
    """Return the state, or ``None`` when it is missing or cannot be read."""
    try:
        state = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return state if isinstance(state, dict) else None


def write_state(path: Path, state: dict[str, Any]) -> None:
    """Replace the state in one step: temporary file, fsync, rename.

    Args:
        path: File to replace; its folder must exist.
        state: JSON-able values.
    """
    temporary = path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        with temporary.open("xb") as file:
            file.write(json.dumps(state, separators=(",", ":")).encode())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def sync_folder(folder: Path) -> None:
    """Make the entries of a folder durable, where the platform lets a folder be synced."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def size_of(paths: Iterable[Path]) -> int:
    """Return the bytes of the files among the paths; one that goes meanwhile counts nothing."""
    size = 0
    for path in paths:
        with contextlib.suppress(OSError):
            size += path.stat().st_size if path.is_file() else 0
    return size
