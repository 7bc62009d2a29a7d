"""Ids of nodes that stay the same as long as document, span and settings do."""

from __future__ import annotations

import hashlib
import json
import sys
import uuid
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.text import DEFAULT_TOKENIZER

_NAMESPACE = uuid.UUID("6f0c3f0e-8a55-5a0b-9d0e-3a4f7a2b9c11")


def fingerprint(settings: Mapping[str, object]) -> str:
    """Return a short digest of settings.

    Args:
        settings: Anything that JSON can hold; the order of keys does not matter.

    Returns:
        16 hexadecimal digits.

    Example:
        >>> fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})
        True
    """
    return _digest(json.dumps(settings, sort_keys=True))[:16]


def tokenizer_identity(name: str) -> str:
    """Return what a tokenizer is, whatever the path that leads to it on this machine.

    Args:
        name: Name as for :func:`llama_index_hybrid_pack.text.get_tokenizer`.

    Returns:
        The name of a built-in tokenizer, or a digest of the tokenizer's file.
    """
    if name == DEFAULT_TOKENIZER:
        return name
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    state = file.stat()
    return _file_digest(str(file), state.st_mtime_ns, state.st_size)


@lru_cache(maxsize=16)
def _file_digest(path: str, _changed: int, _size: int) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()[:16]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _uuid5(name: str) -> str:
    """Return ``str(uuid.uuid5(_NAMESPACE, name))`` for an ASCII name, in a fifth of the time."""
    digest = hashlib.sha1(_NAMESPACE.bytes + name.encode("ascii"), usedforsecurity=False)
    text = digest.hexdigest()
    variant = "89ab"[int(text[16], 16) & 3]
    return f"{text[:8]}-{text[8:12]}-5{text[13:16]}-{variant}{text[17:20]}-{text[20:32]}"


class NodeIds:
    """Gives every node of one run its id.

    Args:
        settings: Digest of the parser's settings.
    """

    def __init__(self, settings: str) -> None:
        self._settings = settings
        self._given: dict[str, int] = {}
        self._digests: dict[str, str] = {}

    def make(self, source_id: str, start: int, end: int) -> str:
        """Return the id of a span; a span that comes twice in one run gets a second id.

        Args:
            source_id: Id of the document.
            start: First character of the span.
            end: One past the last.

        Returns:
            A UUID (version 5) as text.
        """
        source = self._digests.get(source_id)
        if source is None:
            source = self._digests[source_id] = _digest(source_id)
        name = f"{source} {start} {end} {self._settings}"
        times = self._given.get(name, 0)
        self._given[name] = times + 1
        return _uuid5(name if not times else f"{name} {times}")


def function_name(function: Callable[..., object]) -> str:
    """Return the name under which :func:`function_from_name` finds a function again."""
    module = getattr(function, "__module__", "?")
    return f"{module}:{getattr(function, '__qualname__', type(function).__qualname__)}"


def function_from_name(name: str) -> Callable[..., object]:
    """Return a function by the name that it was serialised under.

    Nothing is imported: serialised settings must not run code of their choice.

    Args:
        name: ``module:qualified.name`` of a function in a module that is loaded already.

    Returns:
        The function.

    Raises:
        ConfigError: If there is no such function in a loaded module.
    """
    module, _, path = name.partition(":")
    found: object = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        msg = (
            f"id_func was serialised as {name!r}, which names no function in a loaded module. "
            "Import that module first, or pass id_func= beside the dictionary: "
            "from_dict(data, id_func=...)."
        )
        raise ConfigError(msg)
    return found
