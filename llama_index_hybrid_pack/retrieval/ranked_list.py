"""One ranked list that enters a fusion, and the fusion of any number of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from llama_index.core.schema import BaseNode, TextNode

from llama_index_hybrid_pack.metadata import STAGES_KEY, ScoreScale, StageScore
from llama_index_hybrid_pack.scoring.fusion import (
    RRF_K,
    reciprocal_rank_fusion,
    weighted_fusion,
)
from llama_index_hybrid_pack.scoring.normalization import Normalization

FusionMode = Literal["rrf", "weighted"]

#: Lowest score that a scale can give, for theoretical normalisation.
_LOWER_BOUNDS = {ScoreScale.COSINE: -1.0, ScoreScale.BM25: 0.0, ScoreScale.PROBABILITY: 0.0}


@dataclass(frozen=True)
class RankedList:
    """What one leg found for one query.

    Args:
        name: Name of the leg; it labels rank and score in the stage record.
        ids: Node ids, best first, each once.
        scores: One per id; ``None`` = the leg gave none.
        scale: What the scores mean.
        weight: Share in the fusion, above 0.
        nodes: Nodes that the leg built already; empty when they are fetched afterwards.
    """

    name: str
    ids: Sequence[str]
    scores: Sequence[float | None]
    scale: ScoreScale = ScoreScale.UNKNOWN
    weight: float = 1.0
    nodes: dict[str, BaseNode] = field(default_factory=dict)


@dataclass(frozen=True)
class FusionSettings:
    """How ranked lists become one."""

    mode: FusionMode = "weighted"
    normalization: Normalization = "z_score"
    rrf_k: float = RRF_K

    @property
    def scale(self) -> ScoreScale:
        """What the fused scores mean."""
        return ScoreScale.RANK if self.mode == "rrf" else ScoreScale.FUSED


def fuse(lists: Sequence[RankedList], settings: FusionSettings) -> list[tuple[str, float]]:
    """Fuse ranked lists by node id.

    Args:
        lists: Any number of lists; several may come from one leg, for several queries.
        settings: Mode and its constants.

    Returns:
        Ids with fused scores on the scale ``settings.scale``, score descending, then id.

    Example:
        >>> lists = [RankedList("a", ["x", "y"], [0.9, 0.1]), RankedList("b", ["y"], [7.0])]
        >>> [name for name, _ in fuse(lists, FusionSettings(mode="rrf"))]
        ['y', 'x']
    """
    weights = [ranked.weight for ranked in lists]
    if not lists:
        return []
    if settings.mode == "rrf":
        return reciprocal_rank_fusion(
            [ranked.ids for ranked in lists], weights=weights, k=settings.rrf_k
        )
    return weighted_fusion(
        [list(zip(ranked.ids, ranked.scores, strict=True)) for ranked in lists],
        weights=weights,
        normalization=settings.normalization,
        lower_bounds=[_LOWER_BOUNDS.get(ranked.scale) for ranked in lists],
    )


def leg_scores(
    lists: Sequence[RankedList], node_ids: Sequence[str]
) -> dict[str, dict[str, StageScore]]:
    """Return rank and score per leg for these nodes; a node that a leg did not find has no entry.

    Args:
        lists: The lists that were fused. Of several lists of one leg the best rank counts.
        node_ids: Nodes to look up.

    Returns:
        Node id → leg → rank (from 1), score and scale.

    Example:
        >>> leg_scores([RankedList("a", ["x"], [0.9])], ["x"])
        {'x': {'a': {'score': 0.9, 'rank': 1, 'scale': 'unknown'}}}
    """
    found: dict[str, dict[str, StageScore]] = {name: {} for name in node_ids}
    for ranked in lists:
        for rank, (name, score) in enumerate(zip(ranked.ids, ranked.scores, strict=True), start=1):
            entries = found.get(name)
            if entries is None:
                continue
            before = entries.get(ranked.name)
            if before is None or rank < before["rank"]:
                entries[ranked.name] = StageScore(
                    score=None if score is None else float(score),
                    rank=rank,
                    scale=ranked.scale.value,
                )
    return found


def choose_nodes(lists: Sequence[RankedList], node_ids: Sequence[str]) -> dict[str, BaseNode]:
    """Choose one node per id among the legs' copies, whatever the order of the legs.

    The copy with the most metadata wins, then the one whose content comes last in the alphabet:
    legs may know a node under the same id with more or fewer fields.

    Args:
        lists: Lists whose legs built their nodes.
        node_ids: Nodes to choose.

    Returns:
        Node id → node, for the ids that some leg built.
    """
    chosen: dict[str, BaseNode] = {}
    by_leg = [one.nodes for one in sorted(lists, key=lambda one: one.name) if one.nodes]
    for name in node_ids:
        copies = [nodes[name] for nodes in by_leg if name in nodes]
        if copies:
            first, others = copies[0], copies[1:]
            alike = all(other is first or _alike(first, other) for other in others)
            chosen[name] = first if alike else max(copies, key=_richness)
    return chosen


def _alike(node: BaseNode, other: BaseNode) -> bool:
    same = node.metadata == other.metadata or _own_fields(node) == _own_fields(other)
    return same and _text(node) == _text(other)


def _richness(node: BaseNode) -> tuple[int, str, str]:
    fields = _own_fields(node)
    return len(fields), repr(sorted(fields.items())), _text(node)


def _text(node: BaseNode) -> str:
    # get_content() would write out the metadata first.
    return node.text if isinstance(node, TextNode) else node.get_content()


def _own_fields(node: BaseNode) -> dict[str, object]:
    return {key: value for key, value in node.metadata.items() if key != STAGES_KEY}
