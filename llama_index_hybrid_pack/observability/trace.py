"""What happened to one query: each leg, and each returned node's rank and score at every stage."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from llama_index.core.schema import BaseNode, NodeWithScore

from llama_index_hybrid_pack.metadata import (
    HEADING_KEY,
    HEADING_PATH_KEY,
    HEADING_SEPARATOR,
    StageScore,
    stage_scores,
)

# Widths of cells and lines, in columns of a terminal.
_DOCUMENT, _HEADING, _NODE, _TEXT, _LINE = 30, 32, 9, 60, 200


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
        document: Path, name or id of the document; empty when the node names none.
        heading: Headings down to the passage; empty when there are none.
        score: Final score, or ``None``.
        stages: Stage → rank, score and scale, in the order in which the stages ran.
        text: The passage; shown only when asked for.
    """

    rank: int
    node_id: str
    document: str
    heading: str
    score: float | None
    stages: dict[str, StageScore]
    text: str = field(repr=False)


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
        #  document  heading  node  score
        -  --------  -------  ----  -----
        1  -         -        n1    0.5000
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
        lines = [f"Query: {_line(self.query)}"]
        lines += [f"{name}: {value}" for name, value in self.settings.items()]
        for leg in self.legs:
            outcome = f"failed, {_line(leg.error)}" if leg.error else f"{leg.hits} hits"
            lines.append(
                f"Leg {leg.name} (weight {leg.weight:g}): {outcome}, {leg.latency_ms:.1f} ms"
            )
            lines += [f"  asked: {_line(text)}" for text in leg.queries if text != self.query]
        if self.latency_ms is not None:
            lines.append(f"Total: {self.latency_ms:.1f} ms")
        if not self.rows:
            return "\n".join([*lines, "No passage was found."])
        stages = self.stage_names
        header = ["#", "document", "heading", "node", *stages, "score"]
        cells = [
            [
                str(row.rank),
                _cut(row.document, _DOCUMENT),
                _cut(row.heading.rpartition(HEADING_SEPARATOR)[2], _HEADING),
                row.node_id if len(row.node_id) <= _NODE else f"{row.node_id[: _NODE - 1]}…",
                *(_cell(row.stages.get(name)) for name in stages),
                _number(row.score),
            ]
            for row in self.rows
        ]
        if show_text:
            header.append("text")
            for line, row in zip(cells, self.rows, strict=True):
                line.append(_cut(row.text, _TEXT))
        return "\n".join([*lines, *_table(header, cells)])

    def __str__(self) -> str:
        return self.to_text()

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.to_text())}</pre>"


def _rows(hits: Sequence[NodeWithScore]) -> tuple[TraceRow, ...]:
    return tuple(
        TraceRow(
            rank=rank,
            node_id=hit.node.node_id,
            document=_document(hit.node),
            heading=_heading(hit.node),
            score=hit.score,
            stages=dict(stage_scores(hit.node)),
            text=hit.node.get_content(),
        )
        for rank, hit in enumerate(hits, start=1)
    )


def _document(node: BaseNode) -> str:
    named = node.metadata.get("file_path") or node.metadata.get("file_name") or node.ref_doc_id
    return str(named or "")


def _heading(node: BaseNode) -> str:
    path = node.metadata.get(HEADING_PATH_KEY)
    joined = HEADING_SEPARATOR.join(map(str, path)) if isinstance(path, list) else ""
    return str(node.metadata.get(HEADING_KEY) or joined)


def _line(text: str) -> str:
    return _cut(text, _LINE)


def _cut(text: str, width: int) -> str:
    """Bring a text on one line and shorten it in the middle: both ends tell most."""
    text = " ".join(text.split())
    if len(text) <= width:
        return text or "-"
    head = (width - 1) // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _cell(entry: StageScore | None) -> str:
    return "-" if entry is None else f"#{entry['rank']} {_number(entry['score'])}"


def _table(header: list[str], rows: list[list[str]]) -> list[str]:
    widths = [max(_columns(row[i]) for row in [header, *rows]) for i in range(len(header))]
    lines = [header, ["-" * _columns(name) for name in header], *rows]
    return ["  ".join(map(_pad, line, widths)).rstrip() for line in lines]


def _pad(text: str, width: int) -> str:
    return text + " " * (width - _columns(text))


def _columns(text: str) -> int:
    """Columns of a terminal: Chinese, Japanese and Korean characters take two."""
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)
