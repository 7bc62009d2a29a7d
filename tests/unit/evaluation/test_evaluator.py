"""The evaluator with fakes: failures, empty results, async, postprocessors, interruption."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import threading
import time
from pathlib import Path

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

from llama_index_hybrid_pack.errors import ConfigError, EvaluationError
from llama_index_hybrid_pack.evaluation.evaluator import RetrievalEvaluator
from llama_index_hybrid_pack.evaluation.golden_set import GoldenQuestion, GoldenSet, RelevantSpan
from llama_index_hybrid_pack.evaluation.results import RetrievalReport
from llama_index_hybrid_pack.testing.fakes import HashEmbedding

FOUND = {"one": ["a", "b"], "two": ["b", "a"], "three": [], "none": ["a"]}
GOLDEN = GoldenSet(
    [
        GoldenQuestion(id="q1", question="one", relevant_nodes=["a"], tags=("first", "both")),
        GoldenQuestion(id="q2", question="two", relevant_nodes=["a"], tags=("both",)),
        GoldenQuestion(id="q3", question="three", relevant_nodes=["a"]),
        GoldenQuestion(id="q4", question="broken", relevant_nodes=["a"]),
        GoldenQuestion(id="q5", question="none", answerable=False, tags=("unanswerable",)),
    ]
)


class Fake(BaseRetriever):
    """Knows the answers; raises where it does not."""

    def __init__(self, answers: dict[str, list[str]] = FOUND, delay: float = 0.0) -> None:
        super().__init__()
        self.answers, self.delay = answers, delay
        self.bundles: list[QueryBundle] = []
        self.running = self.most = 0
        self.lock = threading.Lock()

    def _hits(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self.bundles.append(query_bundle)
        if query_bundle.query_str not in self.answers:
            raise ConnectionError(f"no route to {query_bundle.query_str}")
        return [
            NodeWithScore(node=TextNode(id_=name, text=name), score=0.5)
            for name in self.answers[query_bundle.query_str]
        ]

    def _enter(self) -> None:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)

    def _leave(self) -> None:
        with self.lock:
            self.running -= 1

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self._enter()
        try:
            time.sleep(self.delay)
            return self._hits(query_bundle)
        finally:
            self._leave()

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        self._enter()
        try:
            await asyncio.sleep(self.delay)
            return self._hits(query_bundle)
        finally:
            self._leave()


class Reverse(BaseNodePostprocessor):
    def _postprocess_nodes(self, nodes, query_bundle=None):
        assert query_bundle is not None
        return nodes[::-1]


def means(report: RetrievalReport) -> dict[str, float]:
    return {name: found.mean for name, found in report.metrics.items()}


def test_failures_and_empty_results_count_as_zero_and_unanswerable_ones_are_left_out() -> None:
    report = RetrievalEvaluator(GOLDEN, k_values=(1, 5)).evaluate(Fake(), name="fake")
    assert report.n_scored == 4
    assert report.n_unanswerable == 1
    assert report.n_unanswerable_empty == 0
    assert report.n_failed == 1
    assert report.failures == {"ConnectionError": 1}
    assert means(report) == pytest.approx(
        {
            "hit_rate@1": 1 / 4,
            "recall@1": 1 / 4,
            "precision@1": 1 / 4,
            "ndcg@1": 1 / 4,
            "hit_rate@5": 2 / 4,
            "recall@5": 2 / 4,
            "precision@5": (1 / 5 + 1 / 5) / 4,
            "ndcg@5": (1 + 0.63093) / 4,
            "mrr": (1 + 1 / 2) / 4,
            "map": (1 + 1 / 2) / 4,
        },
        abs=1e-5,
    )
    assert {found.n for found in report.metrics.values()} == {4}
    assert all(0 <= found.low <= found.mean <= found.high <= 1 for found in report.metrics.values())


def test_the_table_of_questions_holds_all_of_them_with_their_error() -> None:
    report = RetrievalEvaluator(GOLDEN, k_values=(5,)).evaluate(Fake())
    assert report.name == "Fake"
    assert [item.id for item in report.questions] == ["q1", "q2", "q3", "q4", "q5"]
    assert [item.n_hits for item in report.questions] == [2, 2, 0, 0, 1]
    assert [item.error for item in report.questions][3] == "ConnectionError: no route to broken"
    assert report.questions[4].metrics == {}
    assert report.values("recall@5") == {"q1": 1.0, "q2": 1.0, "q3": 0.0, "q4": 0.0}
    assert report.questions[1].items == ("b", "a")


def test_means_per_tag() -> None:
    report = RetrievalEvaluator(GOLDEN, k_values=(1,)).evaluate(Fake())
    assert {tag: found["recall@1"].mean for tag, found in report.tags.items()} == {
        "first": 1.0,
        "both": 0.5,
    }
    assert report.tags["both"]["mrr"].n == 2


@pytest.mark.parametrize("workers", [1, 3])
async def test_async_gives_the_same_as_sync(workers: int) -> None:
    evaluator = RetrievalEvaluator(GOLDEN, k_values=(1, 5), workers=workers)
    postprocessors = [Reverse()]
    sync = evaluator.evaluate(Fake(), postprocessors=postprocessors)
    other = await evaluator.aevaluate(Fake(), postprocessors=postprocessors)
    assert other.metrics == sync.metrics
    assert other.tags == sync.tags
    assert other.failures == sync.failures
    assert [item.items for item in other.questions] == [item.items for item in sync.questions]
    assert [item.error for item in other.questions] == [item.error for item in sync.questions]
    assert other.notes == sync.notes


def test_postprocessors_are_applied_in_order() -> None:
    evaluator = RetrievalEvaluator(GOLDEN, k_values=(1,))
    assert evaluator.evaluate(Fake(), postprocessors=[Reverse()]).questions[0].items == ("b", "a")
    twice = evaluator.evaluate(Fake(), postprocessors=[Reverse(), Reverse()])
    assert twice.questions[0].items == ("a", "b")


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_no_more_questions_at_once_than_asked_for(workers: int) -> None:
    retriever = Fake(delay=0.02)
    RetrievalEvaluator(GOLDEN, workers=workers).evaluate(retriever)
    assert retriever.most == workers
    assert len(retriever.bundles) == 5


async def test_no_more_questions_at_once_than_asked_for_async() -> None:
    retriever = Fake(delay=0.02)
    await RetrievalEvaluator(GOLDEN, workers=2).aevaluate(retriever)
    assert retriever.most == 2


def test_latency_is_per_question() -> None:
    report = RetrievalEvaluator(GOLDEN, workers=5).evaluate(Fake(delay=0.03))
    assert 25 <= report.latency_p50_ms <= report.latency_p95_ms < 5_000
    assert all(item.latency_ms >= 25 for item in report.questions)


def test_each_question_is_a_query_of_its_own_with_the_vector_that_is_known() -> None:
    class Writing(Fake):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            hits = super()._retrieve(query_bundle)
            query_bundle.embedding = [9.0]
            return hits

    vectors = {"q1": (1.0, 2.0)}
    evaluator = RetrievalEvaluator(GOLDEN, query_embeddings=vectors)
    for _ in range(2):
        retriever = Fake()
        evaluator.evaluate(Writing())
        evaluator.evaluate(retriever)
        assert [bundle.embedding for bundle in retriever.bundles] == [[1.0, 2.0], *[None] * 4]
    assert vectors == {"q1": (1.0, 2.0)}


@pytest.mark.parametrize("workers", [1, 2])
def test_an_interruption_ends_it_and_the_next_evaluation_is_whole(workers: int) -> None:
    class Interrupted(Fake):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            if query_bundle.query_str == "two":
                raise KeyboardInterrupt
            return super()._retrieve(query_bundle)

    many = GoldenSet(
        [
            *list(GOLDEN)[:2],
            *(GoldenQuestion(id=f"x{i}", question="one", relevant_nodes=["a"]) for i in range(500)),
        ]
    )
    evaluator = RetrievalEvaluator(many, workers=workers)
    retriever = Interrupted(delay=0.002)
    with pytest.raises(KeyboardInterrupt):
        evaluator.evaluate(retriever)
    assert len(retriever.bundles) < 100
    assert evaluator.evaluate(Fake()).n_scored == 502


async def test_a_cancelled_evaluation_asks_no_further_question() -> None:
    retriever = Fake(delay=0.02)
    task = asyncio.ensure_future(RetrievalEvaluator(GOLDEN).aevaluate(retriever))
    await asyncio.sleep(0.03)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    asked = len(retriever.bundles)
    await asyncio.sleep(0.05)
    assert asked == len(retriever.bundles) < 5


def test_lists_shorter_than_the_largest_k_are_noted() -> None:
    report = RetrievalEvaluator(GOLDEN, k_values=(1, 50)).evaluate(Fake())
    assert any("more than 2 hits" in note and "top k to 50" in note for note in report.notes)
    assert RetrievalEvaluator(GOLDEN, k_values=(1, 2)).evaluate(Fake()).notes == ()


def test_hits_without_offsets_cannot_be_matched_by_span() -> None:
    question = GoldenQuestion(
        id="q",
        question="one",
        relevant_spans=(RelevantSpan(document="d", start=0, end=1),),
    )

    class Sourceless(Fake):
        def _hits(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            hits = super()._hits(query_bundle)
            for hit in hits[: self.spoiled]:
                hit.node.relationships = {"1": {"node_id": "d"}}  # a source without offsets
                hit.node = TextNode.from_dict(hit.node.to_dict())
            return hits

    retriever = Sourceless()
    retriever.spoiled = 2
    evaluator = RetrievalEvaluator(GoldenSet([question]), k_values=(1,))
    with pytest.raises(EvaluationError, match="None of the 2 hits has offsets"):
        evaluator.evaluate(retriever)
    retriever.spoiled = 1
    assert evaluator.evaluate(retriever).notes == (
        "1 of 2 hits have no offsets and count as misses.",
    )


def test_a_report_survives_json(tmp_path: Path) -> None:
    report = RetrievalEvaluator(GOLDEN, k_values=(1,)).evaluate(Fake())
    again = RetrievalReport.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again == report
    assert report.to_dict()["n_scored"] == 4
    with pytest.raises(EvaluationError, match="no report"):
        RetrievalReport.from_dict({"name": "x"})


def test_a_report_can_be_read() -> None:
    report = RetrievalEvaluator(GOLDEN, k_values=(1,)).evaluate(Fake(), name="fake")
    text = str(report)
    assert text.startswith(
        "fake: 4 questions scored by node, 1 unanswerable left out, 1 failed; latency p50"
    )
    assert "recall@1     0.250  [0.000, 0.750]" in text
    assert "Failures, each counted as 0: 1 x ConnectionError." in text
    assert "| recall@1 | 0.250 | [0.000, 0.750] |" in report.to_markdown()
    assert "| both | 2 | 0.500 |" in report.to_markdown()


def test_the_evaluator_can_be_copied_and_pickled() -> None:
    evaluator = RetrievalEvaluator(GOLDEN, k_values=(1,))
    expected = evaluator.evaluate(Fake()).metrics
    for other in (copy.deepcopy(evaluator), pickle.loads(pickle.dumps(evaluator))):
        assert other.evaluate(Fake()).metrics == expected


@pytest.mark.parametrize(
    "options",
    [
        {"k_values": (0,)},
        {"k_values": ()},
        {"k_values": (True,)},
        {"k_values": (2.5,)},
        {"workers": 0},
        {"match": "text"},
        {"min_overlap": -0.1},
    ],
)
def test_options_out_of_range_are_refused(options) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        RetrievalEvaluator(GOLDEN, **options)


def test_a_set_that_cannot_be_matched_or_scored_is_refused_before_the_run() -> None:
    with pytest.raises(EvaluationError, match="'q1' has nothing relevant by span"):
        RetrievalEvaluator(GOLDEN, match="span")
    unanswerable = GoldenSet([GoldenQuestion(id="q", question="?", answerable=False)])
    with pytest.raises(EvaluationError, match="No question is answerable"):
        RetrievalEvaluator(unanswerable)


def test_llama_index_retrievers_are_measured_as_they_are() -> None:
    from llama_index.core import VectorStoreIndex

    texts = {"a": "how to refund an invoice", "b": "battery of the probe", "c": "single sign-on"}
    index = VectorStoreIndex(
        [TextNode(id_=name, text=text) for name, text in texts.items()],
        embed_model=HashEmbedding(),
    )
    golden = GoldenSet(
        [
            GoldenQuestion(id=name, question=text, relevant_nodes=[name])
            for name, text in texts.items()
        ]
    )
    report = RetrievalEvaluator(golden, k_values=(1, 3)).evaluate(
        index.as_retriever(similarity_top_k=3)
    )
    assert report.name == "VectorIndexRetriever"
    assert report.metrics["recall@1"].mean == 1.0
    assert report.n_failed == 0
