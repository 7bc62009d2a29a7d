"""Shared machinery of the rerankers: one score per text, blended with the stage before."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from llama_index.core.callbacks import CBEventType, EventPayload
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from pydantic import Field

from llama_index_hybrid_pack.errors import RerankError
from llama_index_hybrid_pack.metadata import ScoreScale, StageScore, annotate
from llama_index_hybrid_pack.observability.events import emit_fallback, stage
from llama_index_hybrid_pack.ranking.base import (
    HybridPostprocessor,
    fall_back,
    fresh,
    judged_text,
    question,
)
from llama_index_hybrid_pack.scoring.blending import BlendNormalization, blend_scores
from llama_index_hybrid_pack.scoring.scatter import scatter_scores, unique_texts

dispatcher = get_dispatcher(__name__)


class BaseReranker(HybridPostprocessor):
    """Base of rerankers that score each text against the question.

    Subclass it for a model or a service of your own: define :meth:`score_texts`,
    :attr:`model_label`, ``stage_name`` and ``score_scale``. The base takes care of the rest:
    equal texts are scored once, blank ones not at all; a hit whose score fails is ranked last and
    recorded; the score is blended with the one of the stage before; the judged question is the
    user's own, never a rewrite.

    The returned hits are new objects. With ``blend_weight`` 1 their score is the reranker's own;
    otherwise it is the blended one (scale ``fused``), and the reranker's own score stays in the
    stage record, where :class:`ScoreThreshold` finds it by ``stage``.
    """

    #: Key of the reranker's own score in the stage record.
    stage_name: ClassVar[str]

    top_n: int | None = Field(
        default=5,
        ge=1,
        description="Hits returned: what fits a prompt well. None = all of them.",
    )
    max_candidates: int | None = Field(
        default=None,
        ge=1,
        description=(
            "Hits that are scored, from the top; the rest follow in their order, without a score. "
            "None = all. Limits the cost of a long list."
        ),
    )
    blend_weight: float = Field(
        default=0.5,
        ge=0.0,
        le=1.0,
        description=(
            "Share of this reranker in the final score; 1 = its score alone, 0 = the score of the "
            "stage before alone. 0.5: measured, replacing a good hybrid's order can lose more than "
            "it wins (docs/quality.md)."
        ),
    )
    blend_normalization: BlendNormalization = Field(
        default="z_score",
        description="Makes the two scores of a query comparable: z_score or min_max.",
    )
    metadata_mode: MetadataMode = Field(
        default=MetadataMode.EMBED,
        description=(
            "Metadata in front of the judged text. embed = what the embedding model saw, so "
            "heading and context count; none = the bare text. The stage record is never judged."
        ),
    )
    on_error: Literal["fallback", "raise"] = Field(
        default="fallback",
        description=(
            "fallback = if scoring fails, the order before stands and an event is emitted; raise "
            "= RerankError. A wrong setup (no such model, missing extra) is raised always."
        ),
    )

    @abstractmethod
    def score_texts(self, query: str, texts: list[str]) -> Sequence[float]:
        """Return one score per text, higher = better; NaN where a text cannot be judged.

        Args:
            query: The user's question.
            texts: Distinct texts, none of them blank, at least one.
        """

    @property
    @abstractmethod
    def model_label(self) -> str:
        """Name of the model, for events."""

    @property
    @abstractmethod
    def own_scale(self) -> ScoreScale:
        """What the reranker's own score means, as it is written into the stage record."""

    def _declared(self, score: float) -> float:
        """Return a raw score on :attr:`own_scale`; must keep the order."""
        return score

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if not nodes:
            return []
        query = question(query_bundle, type(self).__name__)
        top_n = len(nodes) if self.top_n is None else self.top_n
        dispatcher.event(
            ReRankStartEvent(query=query, nodes=nodes, top_n=top_n, model_name=self.model_label)
        )
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: self.model_label,
            EventPayload.QUERY_STR: query,
            EventPayload.TOP_K: top_n,
        }
        with (
            stage(self.stage_name, n_in=len(nodes)) as timer,
            self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event,
        ):
            hits = self._reranked(query, nodes)[:top_n]
            timer.n_out = len(hits)
            event.on_end(payload={EventPayload.NODES: hits})
        dispatcher.event(ReRankEndEvent(nodes=hits))
        return hits

    def _reranked(self, query: str, nodes: list[NodeWithScore]) -> list[NodeWithScore]:
        limit = len(nodes) if self.max_candidates is None else self.max_candidates
        candidates, rest = nodes[:limit], nodes[limit:]
        try:
            scores = self._scores(query, candidates)
        except Exception as error:
            fall_back(self.stage_name, error, self.on_error)
            return fresh(nodes)
        ranked = self._ranked(candidates, scores)
        return ranked + [
            annotate(hit, self.stage_name, score=None, rank=rank, scale=self.own_scale)
            for rank, hit in enumerate(rest, start=limit + 1)
        ]

    def _scores(self, query: str, hits: list[NodeWithScore]) -> list[float | None]:
        sent = unique_texts(judged_text(hit.node, self.metadata_mode) for hit in hits)
        if not sent.texts:
            return [None] * len(hits)
        answer = [float(score) for score in self.score_texts(query, sent.texts)]
        if len(answer) != len(sent.texts):
            msg = f"{self.model_label} gave {len(answer)} scores for {len(sent.texts)} texts."
            raise RerankError(msg)
        scores = scatter_scores(enumerate(answer), sent.positions)
        failed = sum(
            score is None and place is not None
            for score, place in zip(scores, sent.positions, strict=True)
        )
        if failed:
            msg = f"{failed} of {len(hits)} scores of {self.model_label} are no finite numbers."
            error = RerankError(msg)
            if self.on_error == "raise" or failed == sum(p is not None for p in sent.positions):
                raise error
            emit_fallback(self.stage_name, error, fallback="hits without a score are ranked last")
        return scores

    def _ranked(self, hits: list[NodeWithScore], scores: list[float | None]) -> list[NodeWithScore]:
        """Return new hits, best first; those without a score last, in their order before."""
        own = [None if score is None else self._declared(score) for score in scores]
        if self.blend_weight == 1.0:
            return [
                annotate(hits[i], self.stage_name, score=own[i], rank=rank, scale=self.own_scale)
                for rank, i in enumerate(_order(hits, scores), start=1)
            ]
        own_rank = {i: rank for rank, i in enumerate(_order(hits, scores), start=1)}
        blended = blend_scores(
            [hit.score for hit in hits],
            scores,
            weight=self.blend_weight,
            normalization=self.blend_normalization,
        )
        return [
            annotate(
                hits[i],
                f"{self.stage_name}_blend",
                score=blended[i],
                rank=rank,
                scale=ScoreScale.FUSED,
                extra={
                    self.stage_name: StageScore(
                        score=own[i], rank=own_rank[i], scale=self.own_scale.value
                    )
                },
            )
            for rank, i in enumerate(_order(hits, blended), start=1)
        ]


def _order(hits: list[NodeWithScore], scores: list[float | None]) -> list[int]:
    def key(i: int) -> tuple[bool, float, str]:
        score = scores[i]
        if score is None:
            return (True, float(i), "")
        return (False, -score, hits[i].node.node_id)

    return sorted(range(len(hits)), key=key)
