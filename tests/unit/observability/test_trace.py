"""The trace of one query: readable, JSON-able, and silent about the passages unless asked."""

from __future__ import annotations

import dataclasses
import json

import pytest
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_hybrid_pack.metadata import ScoreScale, StageScore, annotate
from llama_index_hybrid_pack.observability.trace import LegTrace, RetrievalTrace


def found(node_id: str = "n1", text: str = "Secret passage.", **metadata) -> NodeWithScore:
    return NodeWithScore(node=TextNode(id_=node_id, text=text, metadata=metadata), score=0.5)


def ranked() -> NodeWithScore:
    """A hit that went through every stage that there is."""
    legs: dict[str, StageScore] = {
        "dense": {"score": 0.71, "rank": 3, "scale": "cosine"},
        "bm25": {"score": 9.5, "rank": 1, "scale": "bm25"},
    }
    hit = annotate(
        found(file_path="billing.md", heading="Billing > Refunds"),
        "fusion",
        score=0.0325,
        rank=2,
        scale=ScoreScale.RANK,
        extra=legs,
    )
    for stage, score, scale in (
        ("late_interaction", 0.8, ScoreScale.COSINE),
        ("cross_encoder", 2.5, ScoreScale.LOGIT),
        ("threshold", 0.9, ScoreScale.PROBABILITY),
        ("mmr", 0.4, ScoreScale.COSINE),
    ):
        hit = annotate(hit, stage, score=score, rank=1, scale=scale)
    return hit


def test_a_row_names_document_heading_and_node() -> None:
    row = RetrievalTrace.from_hits("q", [ranked()]).rows[0]
    assert (row.rank, row.node_id, row.document, row.heading, row.score) == (
        1,
        "n1",
        "billing.md",
        "Billing > Refunds",
        0.4,
    )


@pytest.mark.parametrize(
    ("metadata", "document"),
    [
        ({"file_path": "a/b.md", "file_name": "b.md"}, "a/b.md"),
        ({"file_name": "b.md"}, "b.md"),
        ({}, "doc-1"),
    ],
)
def test_the_document_is_named_by_path_then_name_then_id(metadata, document) -> None:
    hit = found(**metadata)
    hit.node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc-1")
    assert RetrievalTrace.from_hits("q", [hit]).rows[0].document == document


def test_a_heading_path_alone_is_joined() -> None:
    row = RetrievalTrace.from_hits("q", [found(heading_path=["A", "B"])]).rows[0]
    assert row.heading == "A > B"


def test_every_stage_has_a_column_in_the_order_in_which_they_ran() -> None:
    trace = RetrievalTrace.from_hits("refund?", [ranked()])
    names = ["dense", "bm25", "fusion", "late_interaction", "cross_encoder", "threshold", "mmr"]
    assert trace.stage_names == names
    header, _, row = str(trace).splitlines()[-3:]
    assert header.split() == ["#", "document", "heading", "node", *names, "score"]
    assert row.split("  ")[0] == "1"
    for cell in ("#3 0.7100", "#1 9.5000", "#2 0.0325", "#1 2.5000", "Refunds", "billing.md"):
        assert cell in row


def test_columns_line_up_whatever_a_row_lacks() -> None:
    hits = [ranked(), found("n2"), found("n3", heading="天気予報")]
    trace = RetrievalTrace.from_hits("q", hits)
    starts = []
    for line, name in zip(str(trace).splitlines()[3:], ["n1", "n2", "n3"], strict=True):
        before = line[: line.index(name)]
        starts.append(len(before) + sum(char in "天気予報" for char in before))
    assert len(set(starts)) == 1
    assert trace.rows[1].stages == {}


def test_legs_stand_before_fusion_even_when_the_best_row_has_only_one() -> None:
    one_leg: dict[str, StageScore] = {"bm25": {"score": 1.0, "rank": 1, "scale": "bm25"}}
    hit = annotate(found(), "fusion", score=1.0, rank=1, scale=ScoreScale.RANK, extra=one_leg)
    legs = [LegTrace("dense", 0.5, 0, 1.0), LegTrace("bm25", 0.5, 1, 1.0)]
    assert RetrievalTrace.from_hits("q", [hit], legs=legs).stage_names == [
        "dense",
        "bm25",
        "fusion",
    ]


def test_the_passage_shows_only_when_asked_for() -> None:
    trace = RetrievalTrace.from_hits("q", [ranked()])
    for shown in (str(trace), repr(trace), json.dumps(trace.to_dict()), trace._repr_html_()):
        assert "Secret" not in shown
    assert "Secret passage." in trace.to_text(show_text=True)
    assert "Secret passage." in json.dumps(trace.to_dict(show_text=True))


def test_long_cells_and_lines_are_cut_and_stay_on_one_line() -> None:
    hit = found("n" * 40, "word " * 100, file_path="folder/" * 20 + "end.md", heading="H" * 90)
    legs = [LegTrace("dense", 1.0, 0, 1.0, error="Error: " + "x\n" * 500, queries=("y\n" * 500,))]
    text = RetrievalTrace.from_hits("q\n" * 500, [hit], legs=legs).to_text(show_text=True)
    lines = text.splitlines()
    assert len(lines) == 6  # query, leg, what it was asked, header, rule, row
    assert max(map(len, lines)) < 260
    assert "end.md" in text


def test_legs_say_what_they_did_or_why_not() -> None:
    legs = [
        LegTrace("dense", 0.7, 0, 12.34, error="ConnectionError: down"),
        LegTrace("bm25", 0.3, 7, 0.5, queries=("refund", "money back")),
    ]
    text = str(
        RetrievalTrace.from_hits(
            "refund", [], legs=legs, settings={"Fusion": "rrf, k 60"}, latency_ms=15.0
        )
    )
    assert text.splitlines() == [
        "Query: refund",
        "Fusion: rrf, k 60",
        "Leg dense (weight 0.7): failed, ConnectionError: down, 12.3 ms",
        "Leg bm25 (weight 0.3): 7 hits, 0.5 ms",
        "  asked: money back",
        "Total: 15.0 ms",
        "No passage was found.",
    ]


def test_later_stages_take_the_place_of_the_candidates() -> None:
    trace = RetrievalTrace.from_hits("q", [found("a"), found("b")], legs=[LegTrace("x", 1, 2, 1.0)])
    after = trace.followed_by([ranked()], latency_ms=9.0)
    assert [row.node_id for row in after.rows] == ["n1"]
    assert after.legs == trace.legs
    assert after.settings["Candidates"] == 2
    assert after.latency_ms == 9.0
    assert [row.node_id for row in trace.rows] == ["a", "b"]


def test_json_holds_everything_but_the_passage() -> None:
    trace = RetrievalTrace.from_hits("q", [ranked()], legs=[LegTrace("dense", 1.0, 3, 2.0)])
    values = json.loads(json.dumps(trace.to_dict()))
    assert values["query"] == "q"
    assert values["legs"][0]["hits"] == 3
    assert values["rows"][0]["stages"]["mmr"] == {"score": 0.4, "rank": 1, "scale": "cosine"}


def test_a_missing_score_is_shown_as_such() -> None:
    hit = found()
    hit.score = None
    assert str(RetrievalTrace.from_hits("q", [hit])).endswith("none")


def test_html_is_escaped() -> None:
    assert "&lt;b&gt;" in RetrievalTrace.from_hits("<b>", [])._repr_html_()


def test_a_trace_cannot_be_changed() -> None:
    trace = RetrievalTrace.from_hits("q", [])
    with pytest.raises(dataclasses.FrozenInstanceError):
        trace.query = "other"  # type: ignore[misc]
