"""Which hits answer a question: by node, by document, or by span of the document's text.

The result is in the terms of the field: *qrels* (relevant items with grades) and a *run* (items
in ranked order).

- **node**: an item is a node. A repeated node counts once.
- **document**: an item is a document. It counts once, at the rank of its best node, so k counts
  documents.
- **span**: an item is a relevant span, and k counts hits. A hit finds a span when the two overlap
  enough. Each span is found once: a second chunk of the same span is no new hit, and one chunk
  can find several spans. So chunkers can be compared on one golden set.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore, TextNode

from llama_index_hybrid_pack.errors import ConfigError, EvaluationError
from llama_index_hybrid_pack.evaluation.golden_set import GoldenQuestion, RelevantSpan
from llama_index_hybrid_pack.evaluation.metrics import parse_metric, score_rankings

MatchKind = Literal["node", "document", "span"]
#: ``auto`` = by span where a question has spans, else by node, else by document.
Match = Literal["auto", "node", "document", "span"]
#: Of what an overlap is a share; ``either`` = the larger of both shares.
OverlapOf = Literal["either", "span", "chunk"]


@dataclass(frozen=True)
class Matching:
    """How hits and relevant items are brought together.

    Args:
        kind: ``"auto"``, ``"node"``, ``"document"`` or ``"span"``.
        min_overlap: Share that must overlap, 0 to 1; 0 = one character is enough. 0.5 asks for
            half of the span, or for half of the chunk when the span is longer than the chunk.
        overlap_of: Share of the span, of the chunk, or the larger of the two.

    Raises:
        ConfigError: If an option is out of range.

    Example:
        >>> Matching(kind="span", min_overlap=0.8).overlap_of
        'either'
    """

    kind: Match = "auto"
    min_overlap: float = 0.5
    overlap_of: OverlapOf = "either"

    def __post_init__(self) -> None:
        if self.kind not in get_args(Match):
            msg = f"match is {self.kind!r}. It is one of {list(get_args(Match))}."
            raise ConfigError(msg)
        if self.overlap_of not in get_args(OverlapOf):
            msg = f"overlap_of is {self.overlap_of!r}. It is one of {list(get_args(OverlapOf))}."
            raise ConfigError(msg)
        if not 0.0 <= self.min_overlap <= 1.0:
            msg = f"min_overlap is {self.min_overlap!r}. It is a share between 0 and 1."
            raise ConfigError(msg)

    def kind_for(self, question: GoldenQuestion) -> MatchKind:
        """Return by what a question is matched.

        Args:
            question: The question.

        Returns:
            The kind asked for, or with ``auto`` the first that the question has.
        """
        if self.kind != "auto":
            return self.kind
        if question.relevant_spans:
            return "span"
        return "node" if question.relevant_nodes else "document"


@dataclass(frozen=True)
class Ranking:
    """What one question's hits are in terms of items.

    Args:
        items: Items in ranked order; of spans that one hit finds the better grade first. A hit
            without a relevant span is an item of its own.
        ends: For each hit, how many items it and the hits before it have brought.
        unmatchable: Hits that cannot be matched, because they name no offsets.
    """

    items: tuple[str, ...] = ()
    ends: tuple[int, ...] = ()
    unmatchable: int = 0

    def first(self, k: int | None) -> tuple[str, ...]:
        """Return the items of the first k hits; all when k is ``None``."""
        if k is None or k >= len(self.ends):
            return self.items
        return self.items[: self.ends[k - 1]]

    def one_per_hit(self) -> tuple[str, ...]:
        """Return one item per hit, a relevant one where there is one."""
        return tuple(self.items[start] for start in (0, *self.ends[:-1])) if self.ends else ()

    @property
    def is_plain(self) -> bool:
        """Whether each hit is one item."""
        return len(self.items) == len(self.ends)


def relevant_items(question: GoldenQuestion, kind: MatchKind) -> dict[str, int]:
    """Return the qrels of one question: relevant item → grade.

    Args:
        question: The question.
        kind: What an item is. Documents include those of the relevant spans.

    Returns:
        Empty for an unanswerable question.

    Raises:
        EvaluationError: If the question has no relevant item of that kind.

    Example:
        >>> question = GoldenQuestion(id="q", question="?", relevant_documents=["a.md"])
        >>> relevant_items(question, "document")
        {'a.md': 1}
    """
    if not question.answerable:
        return {}
    items: dict[str, int] = {}
    if kind == "node":
        items.update(question.relevant_nodes)
    elif kind == "document":
        items.update(question.relevant_documents)
        for span in question.relevant_spans:
            items[span.document] = max(span.grade, items.get(span.document, 0))
    else:
        for span in question.relevant_spans:
            name = _span_name(span)
            items[name] = max(span.grade, items.get(name, 0))
    if not items:
        msg = (
            f"Question {question.id!r} has nothing relevant by {kind}. Add relevant_{kind}s to the "
            "golden set, or match by something else."
        )
        raise EvaluationError(msg)
    return items


def rank_items(
    question: GoldenQuestion, hits: Sequence[NodeWithScore], matching: Matching
) -> Ranking:
    """Return the run of one question: its hits as ranked items.

    Args:
        question: The question.
        hits: What was retrieved, best first; the given order is the rank.
        matching: How hits are matched.

    Returns:
        The items in order.
    """
    kind = matching.kind_for(question)
    first: dict[str, BaseNode] = {}
    for hit in hits:
        first.setdefault(hit.node.node_id, hit.node)
    nodes = list(first.values())
    if kind == "node":
        return _plain([node.node_id for node in nodes])
    if kind == "document":
        return _plain(list(dict.fromkeys(_document(node) for node in nodes)))
    items: list[str] = []
    ends: list[int] = []
    unmatchable = 0
    found: set[str] = set()
    for place, node in enumerate(nodes):
        offsets = _offsets(node)
        unmatchable += offsets is None
        new = [
            name
            for name in _spans_in(node, offsets, question.relevant_spans, matching)
            if name not in found
        ]
        found.update(new)
        items.extend(new or [f"#{place}"])
        ends.append(len(items))
    return Ranking(items=tuple(items), ends=tuple(ends), unmatchable=unmatchable)


def score(
    qrels: Mapping[str, Mapping[str, int]],
    rankings: Mapping[str, Ranking],
    metrics: Sequence[str],
) -> dict[str, dict[str, float]]:
    """Score rankings with k counting hits, also where one hit finds several spans.

    Args:
        qrels: Question id → relevant item → grade.
        rankings: Question id → ranking; a missing one counts as empty.
        metrics: Names such as ``"recall@5"``.

    Returns:
        Metric → question id → value; questions without relevant items are left out. In nDCG and
        MAP a hit that finds several spans takes as many places.

    Raises:
        EvaluationError: If there is no such metric.
    """
    if all(ranking.is_plain for ranking in rankings.values()):
        run = {name: ranking.items for name, ranking in rankings.items()}
        return score_rankings(qrels, run, metrics)
    longest = max((len(ranking.items) for ranking in rankings.values()), default=1)
    scores: dict[str, dict[str, float]] = {}
    for metric in metrics:
        base, k = parse_metric(metric)
        if base == "precision":
            run = {name: ranking.one_per_hit() for name, ranking in rankings.items()}
            asked = metric
        else:
            run = {name: ranking.first(k) for name, ranking in rankings.items()}
            asked = f"{base}@{longest}" if base in {"recall", "hit_rate"} else metric
        scores[metric] = score_rankings(qrels, run, [asked])[asked]
    return scores


def _plain(items: Sequence[str]) -> Ranking:
    return Ranking(items=tuple(items), ends=tuple(range(1, len(items) + 1)))


def _document(node: BaseNode) -> str:
    """Return the document of a node; one without a source is its own document."""
    return node.ref_doc_id or node.node_id


def _offsets(node: BaseNode) -> tuple[int, int] | None:
    if node.ref_doc_id is None:
        return 0, len(node.get_content(metadata_mode=MetadataMode.NONE))
    if not isinstance(node, TextNode) or node.start_char_idx is None or node.end_char_idx is None:
        return None
    return node.start_char_idx, node.end_char_idx


def _spans_in(
    node: BaseNode,
    offsets: tuple[int, int] | None,
    spans: Sequence[RelevantSpan],
    matching: Matching,
) -> Iterator[str]:
    """Yield the spans that a node overlaps enough, better grades first."""
    if offsets is None:
        return
    start, end = offsets
    document = _document(node)
    for span in sorted(spans, key=lambda span: -span.grade):
        overlap = min(end, span.end) - max(start, span.start)
        if document != span.document or overlap <= 0:
            continue
        of_span, of_chunk = overlap / (span.end - span.start), overlap / (end - start)
        shares = {"span": of_span, "chunk": of_chunk, "either": max(of_span, of_chunk)}
        if shares[matching.overlap_of] >= matching.min_overlap:
            yield _span_name(span)


def _span_name(span: RelevantSpan) -> str:
    return f"{span.document}[{span.start}:{span.end}]"
