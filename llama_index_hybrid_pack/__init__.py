"""Hybrid retrieval for LlamaIndex that holds up in production.

Names are loaded when they are first used, so that ``import llama_index_hybrid_pack`` is cheap.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version

try:
    __version__ = _version("llama-index-hybrid-pack")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

#: Public name → module that defines it.
_LOCATIONS: dict[str, str] = {}

__all__ = sorted(_LOCATIONS)  # noqa: PLE0605


def __getattr__(name: str) -> object:
    """Load a public name from the room that defines it."""
    if name not in _LOCATIONS:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(f"{__name__}.{_LOCATIONS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOCATIONS})
