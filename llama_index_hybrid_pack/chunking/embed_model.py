"""What a parser needs to know of an embedding model: its tokenizer and how much it reads."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import NamedTuple, TypeGuard

from llama_index_hybrid_pack.text import DEFAULT_TOKENIZER, get_tokenizer

#: What a tokenizer without a limit says is larger than any text.
_NO_LIMIT = 1_000_000
_TOKENIZER_FILE = "tokenizer.json"


class ModelLimits(NamedTuple):
    """How an embedding model reads text.

    Args:
        tokenizer: Name for :func:`llama_index_hybrid_pack.text.get_tokenizer`.
        max_tokens: Tokens of a text that the model reads, special tokens not counted; ``None``
            when the model does not say.
    """

    tokenizer: str
    max_tokens: int | None


def model_limits(embed_model: object, *, special_tokens: int) -> ModelLimits:
    """Read tokenizer and limit from an embedding model, where it has them.

    Args:
        embed_model: A model with attributes ``tokenizer_name`` and ``max_tokens`` (as
            ``SentenceTransformerEmbedding`` has), LlamaIndex's ``HuggingFaceEmbedding``, or a
            sentence-transformers model.
        special_tokens: Tokens that a sentence-transformers model adds to each text.

    Returns:
        The default tokenizer and no limit for a model that tells neither.
    """
    name = getattr(embed_model, "tokenizer_name", None)
    if isinstance(name, str):
        limit = getattr(embed_model, "max_tokens", None)
        return ModelLimits(name, limit if _is_limit(limit) else None)
    model = embed_model if hasattr(embed_model, "max_seq_length") else None
    model = model or getattr(embed_model, "_model", None)
    tokenizer = _tokenizer_of(getattr(model, "tokenizer", None))
    limit = getattr(model, "max_seq_length", None)
    if not _is_limit(limit):
        return ModelLimits(tokenizer, None)
    instruction = getattr(embed_model, "text_instruction", None)
    before = get_tokenizer(tokenizer).count(instruction) if isinstance(instruction, str) else 0
    return ModelLimits(tokenizer, max(1, limit - special_tokens - before))


def _is_limit(limit: object) -> TypeGuard[int]:
    return isinstance(limit, int) and 0 < limit < _NO_LIMIT


def _tokenizer_of(tokenizer: object) -> str:
    """Return where the file of a Hugging Face tokenizer is on this machine."""
    name = getattr(tokenizer, "name_or_path", None)
    if not isinstance(name, str) or not name:
        return DEFAULT_TOKENIZER
    if (Path(name) / _TOKENIZER_FILE).is_file():
        return name
    if importlib.util.find_spec("huggingface_hub") is None:
        return DEFAULT_TOKENIZER
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(name, _TOKENIZER_FILE)
    except HFValidationError:  # a folder without that file is no name on a hub
        return DEFAULT_TOKENIZER
    return cached if isinstance(cached, str) else DEFAULT_TOKENIZER
