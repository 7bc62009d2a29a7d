"""Diversity: near-copies of a passage that is in the context already give up their place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from numpy.typing import NDArray
from pydantic import Field, SerializeAsAny, field_validator

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError
from llama_index_hybrid_pack.indexing.stores.base import HybridStore
from llama_index_hybrid_pack.metadata import ScoreScale, StageScore, annotate
from llama_index_hybrid_pack.observability.events import StageTimer, stage
from llama_index_hybrid_pack.ranking.base import (
    HybridPostprocessor,
    fall_back,
    fresh,
    judged_text,
    question,
    restore,
)
from llama_index_hybrid_pack.scoring.blending import complete_scores
from llama_index_hybrid_pack.scoring.mmr import MMRPick, mmr_rank
from llama_index_hybrid_pack.scoring.normalization import normalize
from llama_index_hybrid_pack.scoring.vectors import Floats, as_matrix

_Vector = Sequence[float] | NDArray[np.float32]


class MMRPostprocessor(HybridPostprocessor):
    """Picks hits that are relevant and unlike *all* picks before them (MMR).

    Use it last in the chain, where near-copies of one passage would fill the prompt. It costs
    recall where near-copies are rare, so it is off in the pack's default.

    Vectors come from the nodes, then from the store, and only what neither has is embedded; the
    stage event counts as ``cache_hits`` what was not. The order of the result is the order of
    picking. Each hit's score becomes ``1 / rank`` (scale ``rank``): marginal values are no
    relevance, and a later component that sorts by score must not undo the order. What the hit
    was picked for stands in the stage record: ``mmr_value``, ``mmr_relevance`` and
    ``mmr_similarity`` (largest cosine to an earlier pick); scores of earlier stages stay there.

    Args:
        lambda_mult: 1 = relevance alone, 0 = diversity alone.
        top_n: Hits returned; ``None`` = all, reordered.
        store: Where stored vectors are read; not serialised.
        embed_model: Embeds what has no stored vector, and the question where it is needed.
        relevance: ``"score"`` or ``"query"``.

    Raises:
        ConfigError: If an option is out of range; when called, if vectors are missing and
            neither store nor embed_model was given, or if a question is needed and there is none.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> vectors = {"a": [1.0, 0.0], "copy of a": [1.0, 0.1], "b": [0.0, 1.0]}
        >>> hits = [
        ...     NodeWithScore(node=TextNode(id_=name, embedding=vector), score=score)
        ...     for (name, vector), score in zip(vectors.items(), [0.9, 0.8, 0.7])
        ... ]
        >>> picked = MMRPostprocessor(lambda_mult=0.5, top_n=2).postprocess_nodes(hits)
        >>> [hit.node.node_id for hit in picked]
        ['a', 'b']
    """

    stage_name: ClassVar[str] = "mmr"

    lambda_mult: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description="Relevance against diversity; 1 = relevance alone, 0 = diversity alone.",
    )
    top_n: int | None = Field(
        default=5, ge=1, description="Hits returned, in the order of picking; None = all."
    )
    relevance: Literal["score", "query"] = Field(
        default="score",
        description=(
            "score = the incoming scores, scaled to [0, 1] over the hits of the query (min-max), "
            "so that a reranker's judgement counts; query = cosine of question and passage."
        ),
    )
    store: HybridStore | None = Field(
        default=None, exclude=True, description="Store that has the vectors of the nodes."
    )
    embed_model: SerializeAsAny[BaseEmbedding] | None = Field(
        default=None, description="Embeds what neither node nor store has a vector for."
    )
    on_error: Literal["fallback", "raise"] = Field(
        default="fallback",
        description=(
            "fallback = if vectors cannot be had, the order before stands and an event is "
            "emitted; raise = RerankError. A wrong setup is raised always."
        ),
    )

    @field_validator("embed_model", mode="before")
    @classmethod
    def _restore_embed_model(cls, value: object) -> object:
        return restore(value, BaseEmbedding)

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "MMRPostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        top_n = len(nodes) if self.top_n is None else self.top_n
        with stage(self.stage_name, n_in=len(nodes)) as timer:
            try:
                vectors = self._vectors(nodes, timer)
                relevance, scale = self._relevance(nodes, vectors, query_bundle)
                picks = mmr_rank(relevance, vectors, lambda_mult=self.lambda_mult, k=top_n)
            except Exception as error:
                fall_back(self.stage_name, error, self.on_error)
                hits = fresh(nodes)[:top_n]
            else:
                hits = [
                    _annotated(nodes[pick.position], pick, rank, scale)
                    for rank, pick in enumerate(picks, start=1)
                ]
            timer.n_out = len(hits)
        return hits

    def _vectors(self, hits: list[NodeWithScore], timer: StageTimer) -> Floats:
        found: dict[str, _Vector] = {
            hit.node.node_id: hit.node.embedding for hit in hits if hit.node.embedding is not None
        }
        if self.store is not None:
            wanted = [hit.node.node_id for hit in hits if hit.node.node_id not in found]
            stored: Mapping[str, _Vector] = self.store.get_embeddings(wanted) if wanted else {}
            found.update(stored)
        timer.cache_hits = sum(hit.node.node_id in found for hit in hits)
        missing = {hit.node.node_id: hit.node for hit in hits if hit.node.node_id not in found}
        if missing:
            found.update(self._embedded(missing))
        rows = [found[hit.node.node_id] for hit in hits]
        sizes = sorted({len(row) for row in rows})
        if len(sizes) > 1:
            msg = f"Vectors of these hits have {sizes} dimensions. They must be of one model."
            raise EmbeddingError(msg)
        return as_matrix(rows)

    def _embedded(self, missing: Mapping[str, Any]) -> dict[str, _Vector]:
        if self.embed_model is not None:
            texts = [judged_text(node, MetadataMode.EMBED) for node in missing.values()]
            vectors = self.embed_model.get_text_embedding_batch(texts)
            return dict(zip(missing, vectors, strict=True))
        names = ", ".join(repr(name) for name in list(missing)[:3])
        problem = f"{len(missing)} hits have no vector ({names} …)"
        if self.store is None:
            msg = f"{problem}. Give MMRPostprocessor the store that has them, or an embed_model."
            raise ConfigError(msg)
        msg = f"{problem}, in the store neither. Give an embed_model to embed them."
        raise EmbeddingError(msg)

    def _relevance(
        self,
        hits: list[NodeWithScore],
        vectors: Floats,
        query_bundle: QueryBundle | None,
    ) -> tuple[NDArray[np.float64], ScoreScale]:
        if self.relevance == "score":
            scores = complete_scores([hit.score for hit in hits])
            return np.array(normalize(scores, "min_max")), ScoreScale.FUSED
        query = np.asarray(self._query_vector(query_bundle), dtype=np.float64)
        if query.shape != vectors.shape[1:]:
            msg = (
                f"The question's vector has {query.size} dimensions and the hits' "
                f"{vectors.shape[1]}. They must be of one model."
            )
            raise EmbeddingError(msg)
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(query)
        cosines: NDArray[np.float64] = (vectors @ query) / np.where(lengths > 0, lengths, np.inf)
        return cosines, ScoreScale.COSINE

    def _query_vector(self, query_bundle: QueryBundle | None) -> Sequence[float]:
        # An embedding that was made from other strings is of a rewrite, not of the question.
        if query_bundle is not None and query_bundle.embedding is not None:
            rewritten = query_bundle.custom_embedding_strs
            if rewritten in (None, [query_bundle.query_str]) or self.embed_model is None:
                return query_bundle.embedding
        text = question(query_bundle, type(self).__name__)
        if self.embed_model is None:
            msg = (
                'relevance="query" needs the question\'s vector. Give MMRPostprocessor an '
                'embed_model, or use relevance="score".'
            )
            raise ConfigError(msg)
        return self.embed_model.get_query_embedding(text)


def _annotated(
    hit: NodeWithScore, pick: MMRPick, rank: int, relevance_scale: ScoreScale
) -> NodeWithScore:
    def entry(score: float, scale: ScoreScale) -> StageScore:
        return StageScore(score=score, rank=rank, scale=scale.value)

    return annotate(
        hit,
        "mmr",
        score=1.0 / rank,
        rank=rank,
        scale=ScoreScale.RANK,
        extra={
            "mmr_relevance": entry(pick.relevance, relevance_scale),
            "mmr_similarity": entry(pick.max_similarity, ScoreScale.COSINE),
            "mmr_value": entry(pick.value, ScoreScale.FUSED),
        },
    )
