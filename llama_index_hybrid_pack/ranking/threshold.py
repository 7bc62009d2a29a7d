"""A cut-off that applies only to the kind of score it was given for."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from llama_index.core.schema import NodeWithScore, QueryBundle
from pydantic import Field, model_validator

from llama_index_hybrid_pack.errors import ConfigError, ScoreScaleError
from llama_index_hybrid_pack.metadata import (
    ScoreScale,
    annotate,
    stage_scores,
)
from llama_index_hybrid_pack.observability.events import stage
from llama_index_hybrid_pack.ranking.base import HybridPostprocessor, score_scale
from llama_index_hybrid_pack.scoring.blending import is_score
from llama_index_hybrid_pack.scoring.probability import logit, sigmoid

_BOUNDS = {ScoreScale.PROBABILITY: (0.0, 1.0), ScoreScale.COSINE: (-1.0, 1.0)}


class ScoreThreshold(HybridPostprocessor):
    """Drops hits below a cut-off, and refuses scores to which that cut-off means nothing.

    Use it to leave weak passages out of the prompt, so that an answer can be "not found". A
    cut-off needs a score with a meaning across queries: a cross-encoder's logit or probability,
    or a cosine. Logits and probabilities are converted into each other. A fused, rank or BM25
    score is comparable within one query only; against such scores a probability or cosine
    cut-off is refused, where a silent comparison would keep nothing or everything.

    Hits keep their order, score and scale. Hits without a score are kept, unless told otherwise.

    Args:
        cutoff: Smallest score that is kept.
        scale: What the cut-off means.
        stage: Name of the stage whose score is compared; ``None`` = the latest.

    Raises:
        ConfigError: If the cut-off lies outside its scale.
        ScoreScaleError: When called, if a score is of another kind than the cut-off.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> hits = [
        ...     NodeWithScore(node=TextNode(id_=str(x)), score=x) for x in (-8.3, -0.2, 4.1, 9.0)
        ... ]
        >>> keep = ScoreThreshold(cutoff=0.5, scale="probability", assume_scale="logit")
        >>> [hit.score for hit in keep.postprocess_nodes(hits)]
        [4.1, 9.0]
    """

    stage_name: ClassVar[str] = "threshold"

    cutoff: float = Field(
        allow_inf_nan=False, description="Smallest score that is kept; unit: see scale."
    )
    scale: ScoreScale = Field(
        description="What the cut-off means: probability, logit, cosine, bm25, rank or fused."
    )
    stage: str | None = Field(
        default=None,
        min_length=1,
        description=(
            "Stage whose score is compared, by its name in the stage record, for example "
            "cross_encoder, whose own score stays there after blending. None = the hit's score."
        ),
    )
    unscored: Literal["keep", "drop"] = Field(
        default="keep",
        description=(
            "What happens to hits without a score. keep: a missing score is not a bad score."
        ),
    )
    assume_scale: ScoreScale | None = Field(
        default=None,
        description=(
            "Scale of scores that a component of someone else has set, which declares none. None = "
            "such hits are refused."
        ),
    )

    @model_validator(mode="after")
    def _check_cutoff(self) -> ScoreThreshold:
        if ScoreScale.UNKNOWN in (self.scale, self.assume_scale):
            msg = "a cut-off on an unknown scale means nothing; say what the scores are"
            raise ConfigError(msg)
        low, high = _BOUNDS.get(self.scale, (-math.inf, math.inf))
        if not low <= self.cutoff <= high:
            msg = f"cutoff is {self.cutoff}; a {self.scale.value} lies in [{low:g}, {high:g}]"
            raise ConfigError(msg)
        return self

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "ScoreThreshold"

    def _postprocess_nodes(
        self,
        nodes: list[NodeWithScore],
        query_bundle: QueryBundle | None = None,  # noqa: ARG002 - LlamaIndex's signature
    ) -> list[NodeWithScore]:
        with stage(self.stage_name, n_in=len(nodes)) as timer:
            kept = [hit for hit in nodes if self._keeps(hit)]
            timer.n_out = len(kept)
        return [
            annotate(
                hit,
                self.stage_name,
                score=hit.score,
                rank=rank,
                scale=score_scale(hit) or self.assume_scale or self.scale,
            )
            for rank, hit in enumerate(kept, start=1)
        ]

    def _keeps(self, hit: NodeWithScore) -> bool:
        score, scale = self._compared(hit)
        if not is_score(score):
            return self.unscored == "keep"
        if scale is None:
            msg = (
                f"Hit {hit.node.node_id!r} has the score {score:.4g}, made by a component that "
                f"does not declare what it means, so a {self.scale.value} cut-off cannot be "
                "applied. Say what it is with assume_scale."
            )
            raise ScoreScaleError(msg)
        return score >= self._cutoff_on(scale, hit)

    def _compared(self, hit: NodeWithScore) -> tuple[float | None, ScoreScale | None]:
        record = stage_scores(hit.node)
        if self.stage is not None:
            entry = record.get(self.stage)
            if entry is None:
                return None, None
            scale = ScoreScale(entry["scale"])
            return entry["score"], self.assume_scale if scale is ScoreScale.UNKNOWN else scale
        return hit.score, score_scale(hit) or self.assume_scale

    def _cutoff_on(self, scale: ScoreScale, hit: NodeWithScore) -> float:
        """Return the cut-off on the scale of the score: exact also where a sigmoid saturates."""
        if scale is self.scale:
            return self.cutoff
        if (scale, self.scale) == (ScoreScale.LOGIT, ScoreScale.PROBABILITY):
            return logit(self.cutoff)
        if (scale, self.scale) == (ScoreScale.PROBABILITY, ScoreScale.LOGIT):
            return sigmoid(self.cutoff)
        usable = [
            name
            for name, entry in stage_scores(hit.node).items()
            if entry["scale"] == self.scale.value
            or {entry["scale"], self.scale.value} == {"logit", "probability"}
        ]
        advice = (
            f"Read a score of that kind with stage={usable[-1]!r}."
            if usable
            else "Put the threshold after a reranker that gives such a score, or give the cut-off "
            f"on the {scale.value} scale if you know what it means there."
        )
        msg = (
            f"The cut-off {self.cutoff:g} is a {self.scale.value}, but hit {hit.node.node_id!r} "
            f"has a {scale.value} score: the two cannot be compared. {advice}"
        )
        raise ScoreScaleError(msg)
