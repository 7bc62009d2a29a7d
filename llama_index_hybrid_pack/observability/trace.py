"""What happened to one query: each leg, and each returned node's rank and score at every stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_index_hybrid_pack.metadata import HEADING_KEY, StageScore, stage_scores

_TEXT_WIDTH = 60
_SOURCE_WIDTH = 48


@dataclass(frozen=True)
class LegTrace:
    """One leg of a retrieval.

    Args:
        name: Name of the leg.
        weight: Its share in the fusion.
        hits: Number of hits that it gave.
        latency_ms: Wall time in milliseconds.
        error: Type and message of what it raised, or ``None``.
        queries: Texts that it searched with; none when it was given a vector.
    """

    name: str
    weight: float
    hits: int
    latency_ms: float
    error: str | None = None
    queries: tuple[str, ...] = ()


@dataclass(frozen=True)
class TraceRow:
    """One returned node.

    Args:
        rank: Position in the result, from 1.
        node_id: The node's id.
        source: Document and heading.
        score: Final score, or ``None``.
        stages: Stage → rank, score and scale, in the order in which the stages ran.
        text: The passage; shown only when asked for.
    """

    rank: int
    node_id: str
    source: str
    score: float | None
    stages: dict[str, StageScore]
    text: str


@dataclass(frozen=True)
class RetrievalTrace:
    """The way of one query through retrieval and ranking; prints as a table.

    Args:
        query: The query.
        rows: Returned nodes, best first.
        legs: Legs of the fusion.
        settings: How the lists were fused and ranked.
        latency_ms: Wall time of the whole in milliseconds.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> hit = NodeWithScore(node=TextNode(id_="n1", text="Ten days."), score=0.5)
        >>> print(RetrievalTrace.from_hits("How long?", [hit]))
        Query: How long?
        #  source  score
        -  ------  -----
        1  n1      0.5000
    """

    query: str
    rows: tuple[TraceRow, ...] = ()
    legs: tuple[LegTrace, ...] = ()
    settings: Mapping[str, object] = field(default_factory=dict)
    latency_ms: float | None = None

    @classmethod
    def from_hits(
        cls,
        query: str,
        hits: Sequence[NodeWithScore],
        *,
        legs: Sequence[LegTrace] = (),
        settings: Mapping[str, object] | None = None,
        latency_ms: float | None = None,
    ) -> RetrievalTrace:
        """Read the trace from the stage records of hits.

        Args:
            query: The query.
            hits: Result of the last stage, best first.
            legs: Legs of the fusion, when they are known.
            settings: How the lists were fused and ranked.
            latency_ms: Wall time of the whole in milliseconds.

        Returns:
            The trace.
        """
        return cls(query, _rows(hits), tuple(legs), dict(settings or {}), latency_ms)

    def followed_by(self, hits: Sequence[NodeWithScore], *, latency_ms: float) -> RetrievalTrace:
        """Return the trace after further stages: their hits in place of the candidates.

        Args:
            hits: Result of the last stage, best first.
            latency_ms: Wall time of the whole in milliseconds.

        Returns:
            A new trace that still knows the legs.
        """
        settings = {**self.settings, "Candidates": len(self.rows)}
        return replace(self, rows=_rows(hits), settings=settings, latency_ms=latency_ms)

    @property
    def stage_names(self) -> list[str]:
        """Every stage that some row went through, in the order in which they ran."""
        names: dict[str, None] = {}
        # Legs first: a row that one leg missed must not put that leg behind the fusion.
        names.update(dict.fromkeys(leg.name for leg in self.legs if not leg.error))
        for row in sorted(self.rows, key=lambda row: -len(row.stages)):
            names.update(dict.fromkeys(row.stages))
        return list(names)

    def to_dict(self, *, show_text: bool = False) -> dict[str, object]:
        """Return the trace as JSON-able values.

        Args:
            show_text: Whether the passages' text is among them.
        """
        values = asdict(self)
        if not show_text:
            for row in values["rows"]:
                del row["text"]
        return values

    def to_text(self, *, show_text: bool = False) -> str:
        """Return the trace as a plain-text table.

        Args:
            show_text: Whether the beginning of each passage is shown.
        """
        lines = [f"Query: {self.query}"]
        lines += [f"{name}: {value}" for name, value in self.settings.items()]
        for leg in self.legs:
            outcome = f"failed, {leg.error}" if leg.error else f"{leg.hits} hits"
            lines.append(
                f"Leg {leg.name} (weight {leg.weight:g}): {outcome}, {leg.latency_ms:.1f} ms"
            )
            lines += [f"  asked: {text}" for text in leg.queries if text != self.query]
        if self.latency_ms is not None:
            lines.append(f"Total: {self.latency_ms:.1f} ms")
        if not self.rows:
            return "\n".join([*lines, "No passage was found."])
        header = ["#", "source", *self.stage_names, "score", *(["text"] if show_text else [])]
        cells = [
            [
                str(row.rank),
                _cut(row.source, _SOURCE_WIDTH),
                *(_cell(row.stages.get(name)) for name in self.stage_names),
                _number(row.score),
                *([_cut(" ".join(row.text.split()), _TEXT_WIDTH)] if show_text else []),
            ]
            for row in self.rows
        ]
        return "\n".join([*lines, *_table(header, cells)])

    def __str__(self) -> str:
        return self.to_text()


def _rows(hits: Sequence[NodeWithScore]) -> tuple[TraceRow, ...]:
    return tuple(
        TraceRow(
            rank=rank,
            node_id=hit.node.node_id,
            source=_source(hit.node),
            score=hit.score,
            stages=dict(stage_scores(hit.node)),
            text=hit.node.get_content(),
        )
        for rank, hit in enumerate(hits, start=1)
    )


def _source(node: BaseNode) -> str:
    document = node.metadata.get("file_path") or node.metadata.get("file_name") or node.ref_doc_id
    heading = node.metadata.get(HEADING_KEY)
    parts = [str(part) for part in (document, heading) if part]
    return ", ".join(parts) or node.node_id


def _cut(text: str, width: int) -> str:
    """Shorten in the middle: a source's file and its last heading tell most."""
    if len(text) <= width:
        return text
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _cell(entry: StageScore | None) -> str:
    return "-" if entry is None else f"#{entry['rank']} {_number(entry['score'])}"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * len(name) for name in header], *rows]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]
