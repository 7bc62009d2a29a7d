"""Import of optional dependencies with an error that says which extra to install."""

from __future__ import annotations

import importlib
from types import ModuleType

from llama_index_hybrid_pack.errors import MissingExtraError


def require(module: str, *, extra: str) -> ModuleType:
    """Import ``module``, or name the extra that brings it.

    Args:
        module: Dotted name of the module to import, for example ``"sentence_transformers"``.
        extra: Name of this package's extra that installs it.

    Returns:
        The imported module.

    Raises:
        MissingExtraError: If the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != module.split(".", maxsplit=1)[0]:
            raise
        msg = (
            f"{module!r} is not installed. It comes with the extra {extra!r}: "
            f"pip install 'llama-index-hybrid-pack[{extra}]'"
        )
        raise MissingExtraError(msg, name=module) from error
