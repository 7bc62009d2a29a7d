"""Every metadata key that this package writes, named once, and the record of stage scores.

A stage never changes the node it was given: :func:`annotate` returns a new
``NodeWithScore`` whose node carries one more entry under :data:`STAGES_KEY`. That key is
excluded from the embedding text and from the LLM's text.
"""

from __future__ import annotations

import copy
from enum import Enum
from typing import Any, TypedDict, cast

from llama_index.core.schema import BaseNode, NodeWithScore

#: Headings from the document's title down to the chunk's own, as a list of strings.
HEADING_PATH_KEY = "heading_path"
#: The same path for people and for the embedding text: ``Billing > Refunds``.
HEADING_KEY = "heading"
#: Kind of the blocks in the chunk, for example ``paragraph`` or ``table``.
BLOCK_KIND_KEY = "block_kind"
#: Text repeated from elsewhere in the document so that the chunk can be understood alone.
CONTEXT_KEY = "context"
#: Header rows of a table whose later rows are in this chunk.
TABLE_HEADER_KEY = "table_header"
#: Record of what each retrieval stage thought of the node; see :func:`annotate`.
STAGES_KEY = "hybrid_pack_stages"
#: Separator of :data:`HEADING_KEY`.
HEADING_SEPARATOR = " > "


class ScoreScale(str, Enum):
    """What a score means, so that a cut-off is never applied to another kind of number."""

    RANK = "rank"
    """Reciprocal-rank sums: comparable within one query only; no confidence."""
    COSINE = "cosine"
    """Cosine similarity in [-1, 1]; mean of best token cosines for late interaction."""
    BM25 = "bm25"
    """Unbounded, above 0; comparable within one query only."""
    LOGIT = "logit"
    """Raw output of a cross-encoder; unbounded."""
    PROBABILITY = "probability"
    """In [0, 1]."""
    FUSED = "fused"
    """Weighted sum of normalised scores: comparable within one query only."""
    UNKNOWN = "unknown"
    """Given by a component of someone else that does not say."""


class StageScore(TypedDict):
    """What one stage thought of one node."""

    score: float | None
    rank: int
    scale: str


class _Recorded(dict[str, Any]):
    """Metadata with a stage record, which its text form leaves out.

    LlamaIndex's fusion knows a node by a hash of its text and of ``str(metadata)``: with the
    record in it, the hits of two legs would be two nodes and would never be merged.
    """

    def __repr__(self) -> str:
        return repr({key: value for key, value in self.items() if key != STAGES_KEY})


def annotate(
    hit: NodeWithScore,
    stage: str,
    *,
    score: float | None,
    rank: int,
    scale: ScoreScale,
    extra: dict[str, StageScore] | None = None,
) -> NodeWithScore:
    """Return a new hit with ``score`` as its score and one more entry in the stage record.

    Args:
        hit: The hit to start from; neither it nor its node is changed.
        stage: Name of the stage, for example ``"dense"`` or ``"cross_encoder"``.
        score: The stage's score as a plain float, or ``None`` when it gave none.
        rank: Position in the stage's output, from 1.
        scale: What the score means.
        extra: Further entries to record, for example one per leg of a fusion.

    Returns:
        A new ``NodeWithScore`` around a shallow copy of the node.
    """
    node = copy.copy(hit.node)
    value = None if score is None else float(score)
    stages = {**stage_scores(node), **(extra or {})}
    stages.pop(stage, None)  # the latest stage stands last: the current scale is read from there
    stages[stage] = {"score": value, "rank": int(rank), "scale": scale.value}
    # Past pydantic's assignment, which validates the whole node anew and takes half of the time.
    values = vars(node)
    values["metadata"] = _Recorded({**node.metadata, STAGES_KEY: stages})
    for name in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys"):
        if STAGES_KEY not in values[name]:
            values[name] = [*values[name], STAGES_KEY]
    return NodeWithScore(node=node, score=value)


def stage_scores(node: BaseNode) -> dict[str, StageScore]:
    """Return the stage record of a node, in the order in which the stages ran.

    Args:
        node: Any node.

    Returns:
        Stage name → score, rank and scale; empty when no stage of ours saw the node.
    """
    return cast("dict[str, StageScore]", node.metadata.get(STAGES_KEY) or {})


def current_scale(node: BaseNode) -> ScoreScale | None:
    """Return the scale of the score that the last stage gave, or ``None`` when unknown.

    Args:
        node: Any node.

    Returns:
        The declared scale, or ``None`` for nodes that came from a component of someone else.
    """
    stages = stage_scores(node)
    if not stages:
        return None
    return ScoreScale(next(reversed(stages.values()))["scale"])
