"""Token counting shared by all stages.

A tokenizer is known by a name, so that a component that uses one can be serialised:

- ``"cl100k_base"``: the byte-pair encoding that ships inside llama-index-core, for when there
  is no local embedding model;
- a path to a model folder or a ``tokenizer.json``: the embedding model's own tokenizer.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from llama_index_hybrid_pack._optional import require
from llama_index_hybrid_pack.errors import ConfigError, ModelNotFoundError

if TYPE_CHECKING:
    import tiktoken
    import tokenizers

#: Name of the tokenizer that needs no model.
DEFAULT_TOKENIZER = "cl100k_base"


class Tokenizer(ABC):
    """Counts tokens and tells where each one lies in the text; safe to share between threads."""

    name: str

    @abstractmethod
    def spans(self, text: str) -> list[tuple[int, int]]:
        """Return the character span of each token, in order, without special tokens."""

    @abstractmethod
    def count_many(self, texts: Sequence[str]) -> list[int]:
        """Return the number of tokens of each text, without special tokens."""

    def count(self, text: str) -> int:
        """Return the number of tokens of one text, without special tokens."""
        return self.count_many([text])[0]


class _BytePairTokenizer(Tokenizer):
    """tiktoken's encoding from the files that llama-index-core carries."""

    def __init__(self, name: str) -> None:
        from llama_index.core.utils import get_tokenizer as core_tokenizer

        self.name = name
        # Core's helper points tiktoken at the bundled file, so nothing is downloaded.
        core_tokenizer()
        import tiktoken

        self._encoding: tiktoken.Encoding = tiktoken.get_encoding(name)

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [len(self._encoding.encode_ordinary(text)) for text in texts]

    def spans(self, text: str) -> list[tuple[int, int]]:
        tokens = self._encoding.encode_ordinary(text)
        _, starts = self._encoding.decode_with_offsets(tokens)
        ends = [*starts[1:], len(text)][: len(starts)]
        # Several tokens of one multi-byte character share its start; all but the last are empty.
        return list(zip(starts, ends, strict=True))


class _FileTokenizer(Tokenizer):
    """A Hugging Face ``tokenizer.json``, read by the ``tokenizers`` library."""

    def __init__(self, path: Path, name: str) -> None:
        self.name = name
        module = require("tokenizers", extra="models")
        self._tokenizer: tokenizers.Tokenizer = module.Tokenizer.from_file(str(path))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def count_many(self, texts: Sequence[str]) -> list[int]:
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [len(encoding.ids) for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int]]:
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        return [(int(start), int(end)) for start, end in encoding.offsets]


_LOCK = threading.Lock()


def get_tokenizer(name: str = DEFAULT_TOKENIZER) -> Tokenizer:
    """Return the tokenizer of that name, loaded once per process.

    Args:
        name: ``"cl100k_base"``, a model folder that holds a ``tokenizer.json``, or the path of
            such a file.

    Returns:
        A tokenizer that can be shared between threads.

    Raises:
        ModelNotFoundError: If the path does not lead to a ``tokenizer.json``.
        MissingExtraError: If the name is a path and ``tokenizers`` is not installed.

    Example:
        >>> get_tokenizer().count("Refunds take ten days.")
        6
    """
    if not name:
        msg = (
            f"The tokenizer's name is empty. Give {DEFAULT_TOKENIZER!r} or the path of a model "
            "folder that holds a tokenizer.json."
        )
        raise ConfigError(msg)
    with _LOCK:
        return _load(name)


@lru_cache(maxsize=16)
def _load(name: str) -> Tokenizer:
    if name == DEFAULT_TOKENIZER:
        return _BytePairTokenizer(name)
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    if not file.is_file():
        msg = (
            f"No tokenizer at {name!r}. Give {DEFAULT_TOKENIZER!r}, a model folder that holds a "
            "tokenizer.json, or the path of such a file."
        )
        raise ModelNotFoundError(msg)
    return _FileTokenizer(file, name)
