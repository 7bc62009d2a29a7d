"""Late interaction with the token vectors of the embedding model that is loaded already."""

from __future__ import annotations

from typing import Any, ClassVar

from llama_index.core.base.embeddings.base import BaseEmbedding
from pydantic import Field, field_serializer, field_validator

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.embedding import (
    TokenEmbedder,
    as_token_embedder,
    default_embed_model,
)
from llama_index_hybrid_pack.metadata import ScoreScale
from llama_index_hybrid_pack.ranking.base import restore
from llama_index_hybrid_pack.ranking.reranker import BaseReranker
from llama_index_hybrid_pack.scoring.max_sim import max_sim

# Token vectors of so many passages are held at once: 64 of 256 tokens and 384 dimensions = 25 MB.
_PASSAGES_AT_ONCE = 64


class LateInteractionReranker(BaseReranker):
    """Reranks by how well each word of the question is met somewhere in the passage (MaxSim).

    Use it where no cross-encoder can be had: it needs no training and no model beside the
    embedding model. Each token of the question is compared with every token of the passage, so
    it sees details that one vector per passage averages away (ColBERT, Khattab and Zaharia 2020).
    Its own score is a cosine in [-1, 1]; the part of a passage that the model does not read
    (beyond its maximum length) is not judged.

    Args:
        embed_model: ``SentenceTransformerEmbedding``, LlamaIndex's ``HuggingFaceEmbedding``, or a
            class with ``token_embeddings``; the packaged model when left out. Give the one that
            is used for retrieval: it is not loaded a second time.
        top_n: Hits returned.
        blend_weight: Share of this reranker in the final score.

    Raises:
        ConfigError: If an option is out of range, or the model gives no token vectors.
        MissingExtraError: If no model is given and the extra ``models`` is not installed.

    Example:
        >>> LateInteractionReranker(top_n=3, blend_weight=1.0).own_scale.value
        'cosine'
    """

    stage_name: ClassVar[str] = "late_interaction"

    max_candidates: int | None = Field(
        default=30,
        ge=1,
        description=(
            "Hits that are scored, from the top; the rest follow in their order, without a score. "
            "30: each costs as much as embedding it, and that depth is measured "
            "(docs/quality.md). None = all."
        ),
    )
    embed_model: BaseEmbedding | TokenEmbedder = Field(
        default_factory=default_embed_model,
        description="Gives one vector per token; default: the packaged all-MiniLM-L6-v2.",
    )

    @field_validator("embed_model", mode="before")
    @classmethod
    def _check_embed_model(cls, value: object) -> object:
        model = restore(value, BaseEmbedding)
        as_token_embedder(model)
        return model

    @field_serializer("embed_model")
    def _serialize_embed_model(self, value: BaseEmbedding | TokenEmbedder) -> dict[str, Any]:
        if isinstance(value, BaseEmbedding):
            return value.to_dict()
        msg = (
            f"{type(value).__name__} is no LlamaIndex component and cannot be serialised. Make it "
            "a BaseEmbedding."
        )
        raise ConfigError(msg)

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "LateInteractionReranker"

    @property
    def model_label(self) -> str:
        """Name of the embedding model."""
        return str(getattr(self.embed_model, "model_name", type(self.embed_model).__name__))

    @property
    def own_scale(self) -> ScoreScale:
        """Cosine: mean over the question's tokens of the best passage token."""
        return ScoreScale.COSINE

    def score_texts(self, query: str, texts: list[str]) -> list[float]:
        """Return the MaxSim of each text.

        Args:
            query: The user's question.
            texts: Any number of texts.

        Returns:
            One cosine in [-1, 1] per text.
        """
        embedder = as_token_embedder(self.embed_model)
        (tokens,) = embedder.token_embeddings([query], is_query=True)
        scores: list[float] = []
        for start in range(0, len(texts), _PASSAGES_AT_ONCE):
            batch = texts[start : start + _PASSAGES_AT_ONCE]
            passages = embedder.token_embeddings(batch, is_query=False)
            scores.extend(max_sim(tokens, passages).tolist())
        return scores
