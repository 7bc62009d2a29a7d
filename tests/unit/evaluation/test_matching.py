"""Matching of hits with relevant nodes, documents and spans."""

from __future__ import annotations

import pytest
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_hybrid_pack.errors import ConfigError, EvaluationError
from llama_index_hybrid_pack.evaluation.golden_set import GoldenQuestion, RelevantSpan
from llama_index_hybrid_pack.evaluation.matching import (
    Matching,
    Ranking,
    rank_items,
    relevant_items,
    score,
)

SPAN = Matching(kind="span")


def chunk(name: str, document: str | None = "d", start: int | None = 0, end: int | None = 100):
    relationships = {}
    if document is not None:
        relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=document)
    node = TextNode(
        id_=name,
        text="x" * 100,
        start_char_idx=start,
        end_char_idx=end,
        relationships=relationships,
    )
    return NodeWithScore(node=node, score=1.0)


def spans(*ends: tuple[int, int] | tuple[int, int, int]) -> GoldenQuestion:
    return GoldenQuestion(
        id="q",
        question="?",
        relevant_spans=tuple(
            RelevantSpan(document="d", start=span[0], end=span[1], grade=(*span, 1)[2])
            for span in ends
        ),
    )


def values(question: GoldenQuestion, hits: list[NodeWithScore], *metrics: str) -> list[float]:
    ranking = rank_items(question, hits, SPAN)
    found = score({"q": relevant_items(question, "span")}, {"q": ranking}, metrics)
    return [found[metric]["q"] for metric in metrics]


def test_nodes_are_matched_by_id_once_each() -> None:
    question = GoldenQuestion(id="q", question="?", relevant_nodes={"b": 2})
    hits = [chunk("a"), chunk("b"), chunk("a"), chunk("c")]
    assert rank_items(question, hits, Matching(kind="node")).items == ("a", "b", "c")
    assert relevant_items(question, "node") == {"b": 2}


def test_a_document_counts_once_at_the_rank_of_its_best_node() -> None:
    question = GoldenQuestion(id="q", question="?", relevant_documents=["e"])
    hits = [chunk("1", "d"), chunk("2", "d"), chunk("3", "e"), chunk("4", "d")]
    assert rank_items(question, hits, Matching(kind="document")).items == ("d", "e")


def test_a_node_without_a_source_is_its_own_document() -> None:
    question = GoldenQuestion(id="q", question="?", relevant_documents=["d"])
    assert rank_items(question, [chunk("d", None)], Matching(kind="document")).items == ("d",)
    whole = chunk("d", None, None, None)
    assert values(spans((40, 60)), [whole], "recall@1") == [1.0]


def test_documents_of_relevant_spans_are_relevant_documents_at_the_best_grade() -> None:
    assert relevant_items(spans((0, 5), (8, 9, 3)), "document") == {"d": 3}


def test_a_second_chunk_of_the_same_span_is_no_new_hit() -> None:
    hits = [chunk("1"), chunk("2"), chunk("3", "other")]
    names = ["recall@1", "recall@3", "precision@1", "precision@2", "map", "mrr", "ndcg@3"]
    assert values(spans((0, 100)), hits, *names) == [1.0, 1.0, 1.0, 0.5, 1.0, 1.0, 1.0]


def test_one_chunk_can_find_several_spans_and_k_counts_chunks() -> None:
    question = spans((0, 10), (20, 30), (500, 510))
    hits = [chunk("1"), chunk("2", "other"), chunk("3", start=480, end=580)]
    names = ["recall@1", "recall@2", "recall@3", "precision@1", "precision@3", "hit_rate@1", "mrr"]
    assert values(question, hits, *names) == pytest.approx([2 / 3, 2 / 3, 1, 1, 2 / 3, 1, 1])


def test_the_first_hit_keeps_its_rank_behind_chunks_that_find_nothing() -> None:
    hits = [chunk("1", "other"), chunk("2", start=300, end=400), chunk("3")]
    assert values(spans((0, 10), (20, 30)), hits, "mrr", "hit_rate@2", "hit_rate@3") == (
        pytest.approx([1 / 3, 0.0, 1.0])
    )


@pytest.mark.parametrize("metric", ["recall@2", "precision@2", "map", "mrr", "ndcg@2", "ndcg@9"])
def test_no_metric_leaves_its_bounds_with_overlapping_spans(metric: str) -> None:
    question = spans((0, 50, 2), (0, 50), (10, 60), (90, 100, 3))
    value = values(question, [chunk("1"), chunk("2"), chunk("1")], metric)[0]
    assert 0.0 <= value <= 1.0


@pytest.mark.parametrize(
    ("matching", "start", "end", "found"),
    [
        # The span is 100:200.
        (Matching(kind="span"), 0, 150, True),  # half of the span
        (Matching(kind="span"), 0, 149, False),
        (Matching(kind="span"), 160, 180, True),  # all of the chunk
        (Matching(kind="span"), 190, 210, True),  # half of the chunk
        (Matching(kind="span"), 191, 211, False),
        (Matching(kind="span", overlap_of="span"), 160, 180, False),
        (Matching(kind="span", overlap_of="span"), 0, 1000, True),
        (Matching(kind="span", overlap_of="chunk"), 0, 1000, False),
        (Matching(kind="span", overlap_of="chunk"), 110, 120, True),
        (Matching(kind="span", min_overlap=1.0), 100, 200, True),
        (Matching(kind="span", min_overlap=1.0), 0, 199, False),
        (Matching(kind="span", min_overlap=0.0), 0, 101, True),
        (Matching(kind="span", min_overlap=0.0), 0, 100, False),  # they only touch
        (Matching(kind="span", min_overlap=0.0), 150, 150, False),  # an empty chunk
    ],
)
def test_how_much_overlap_is_enough(matching: Matching, start: int, end: int, found: bool) -> None:
    ranking = rank_items(spans((100, 200)), [chunk("1", start=start, end=end)], matching)
    assert (ranking.items == ("d[100:200]",)) is found


def test_the_same_offsets_in_another_document_are_no_hit() -> None:
    assert values(spans((0, 100)), [chunk("1", "other")], "recall@5") == [0.0]


def test_hits_without_offsets_are_counted() -> None:
    ranking = rank_items(spans((0, 100)), [chunk("1", start=None), chunk("2")], SPAN)
    assert ranking.unmatchable == 1
    assert ranking.first(1) == ("#0",)


def test_a_hit_that_finds_several_spans_has_the_better_grade_first() -> None:
    ranking = rank_items(spans((0, 10), (20, 30, 3)), [chunk("1")], SPAN)
    assert ranking.items == ("d[20:30]", "d[0:10]")
    assert ranking.one_per_hit() == ("d[20:30]",)


def test_auto_takes_spans_then_nodes_then_documents() -> None:
    span = RelevantSpan(document="d", start=0, end=1)
    fields = {"relevant_documents": ["d"], "relevant_nodes": ["n"], "relevant_spans": (span,)}
    kinds = []
    while fields:
        kinds.append(Matching().kind_for(GoldenQuestion(id="q", question="?", **fields)))
        fields.popitem()
    assert kinds == ["span", "node", "document"]


@pytest.mark.parametrize("kind", ["node", "span"])
def test_a_question_with_nothing_of_that_kind_is_named(kind) -> None:
    question = GoldenQuestion(id="q7", question="?", relevant_documents=["d"])
    with pytest.raises(EvaluationError, match=f"'q7' has nothing relevant by {kind}"):
        relevant_items(question, kind)


def test_an_unanswerable_question_has_nothing_relevant() -> None:
    question = GoldenQuestion(id="q", question="?", answerable=False)
    assert relevant_items(question, "span") == {}


def test_an_empty_ranking_is_one() -> None:
    ranking = rank_items(spans((0, 1)), [], SPAN)
    assert ranking == Ranking()
    assert ranking.first(5) == ()
    assert ranking.one_per_hit() == ()


@pytest.mark.parametrize(
    "options",
    [{"kind": "text"}, {"overlap_of": "node"}, {"min_overlap": 1.1}, {"min_overlap": float("nan")}],
)
def test_options_out_of_range_are_refused(options) -> None:
    with pytest.raises(ConfigError, match=next(iter(options)).replace("kind", "match")):
        Matching(**options)
