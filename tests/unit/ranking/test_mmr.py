from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from llama_index.core.schema import QueryBundle
from pydantic import PrivateAttr

from llama_index_hybrid_pack.errors import ConfigError, EmbeddingError, RerankError
from llama_index_hybrid_pack.indexing.stores.base import HybridStore
from llama_index_hybrid_pack.metadata import ScoreScale, current_scale, stage_scores
from llama_index_hybrid_pack.ranking.mmr import MMRPostprocessor
from llama_index_hybrid_pack.scoring.mmr import mmr_select
from llama_index_hybrid_pack.testing.fakes import HashEmbedding
from tests.unit.ranking.scripted import hit, ids, recorded_events


class VectorsOnly(HybridStore):
    """A store that gives vectors and counts how often it is asked."""

    _vectors: dict[str, np.ndarray] = PrivateAttr()
    _asked: list[list[str]] = PrivateAttr(default_factory=list)

    def __init__(self, vectors: dict[str, np.ndarray]) -> None:
        super().__init__()
        self._vectors = vectors

    def get_embeddings(self, node_ids: Sequence[str]) -> dict[str, np.ndarray]:
        self._asked.append(list(node_ids))
        return {name: self._vectors[name] for name in node_ids if name in self._vectors}


# MMR needs vectors only; whatever else a store must offer is not used here.
VectorsOnly.__abstractmethods__ = frozenset()


class CountingEmbedding(HashEmbedding):
    _texts: list[str] = PrivateAttr(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "CountingEmbedding"

    def _vector(self, text: str) -> list[float]:
        self._texts.append(text)
        return super()._vector(text)


VECTORS = {"a": [1.0, 0.0], "copy": [1.0, 0.05], "b": [0.0, 1.0]}


def three(*, embedded: bool = True, scores: Sequence[float | None] = (0.9, 0.8, 0.7)) -> list:
    return [
        hit(name, name, score, embedding=VECTORS[name] if embedded else None)
        for name, score in zip(VECTORS, scores, strict=True)
    ]


def test_case_b27_by_the_question(cases_dir: Path) -> None:
    case = json.loads((cases_dir / "B27.json").read_text(encoding="utf-8"))
    hits = [
        hit(name, name, None, embedding=vector) for name, vector in case["input"]["vectors"].items()
    ]
    component = MMRPostprocessor(
        lambda_mult=case["input"]["lambda"], top_n=case["input"]["k"], relevance="query"
    )
    bundle = QueryBundle("q", embedding=[float(x) for x in case["input"]["query"]])
    out = component.postprocess_nodes(hits, query_bundle=bundle)
    assert ids(out) == case["expected"]["picked"]


def test_a_copy_gives_up_its_place_to_something_new() -> None:
    out = MMRPostprocessor(top_n=2, lambda_mult=0.5).postprocess_nodes(three())
    assert ids(out) == ["a", "b"]


def test_lambda_one_keeps_the_order_of_the_scores_and_zero_spreads() -> None:
    hits = three(scores=(0.7, 0.9, 0.8))
    assert ids(MMRPostprocessor(lambda_mult=1).postprocess_nodes(hits)) == ["copy", "b", "a"]
    assert ids(MMRPostprocessor(lambda_mult=0).postprocess_nodes(hits)) == ["copy", "b", "a"]
    only_two = three(scores=(0.95, 0.9, 0.1))
    assert ids(MMRPostprocessor(lambda_mult=1, top_n=2).postprocess_nodes(only_two)) == [
        "a",
        "copy",
    ]
    assert ids(MMRPostprocessor(lambda_mult=0, top_n=2).postprocess_nodes(only_two)) == ["a", "b"]


def test_scores_fall_with_the_rank_so_that_sorting_keeps_the_order() -> None:
    out = MMRPostprocessor(lambda_mult=0.1, top_n=None).postprocess_nodes(three())
    assert [h.score for h in out] == [1.0, 0.5, pytest.approx(1 / 3)]
    assert sorted(out, key=lambda h: -h.score) == out
    assert {current_scale(h.node) for h in out} == {ScoreScale.RANK}


def test_the_decision_stands_in_the_stage_record() -> None:
    out = MMRPostprocessor(lambda_mult=0.75, top_n=3).postprocess_nodes(
        three(scores=(0.9, 0.8, 0.5))
    )
    assert ids(out) == ["a", "b", "copy"] or ids(out) == ["a", "copy", "b"]
    last = next(h for h in out if h.node.node_id == "copy")
    record = stage_scores(last.node)
    assert record["mmr_relevance"]["score"] == pytest.approx(0.75)
    assert record["mmr_similarity"]["score"] == pytest.approx(1 / np.hypot(1, 0.05), abs=1e-6)
    assert record["mmr_value"]["score"] == pytest.approx(
        0.75 * 0.75 - 0.25 * record["mmr_similarity"]["score"], abs=1e-6
    )
    assert list(record)[-1] == "mmr"
    assert {type(entry["score"]) for entry in record.values()} == {float}


def test_the_scale_of_the_scores_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(30, 8)).tolist()
    scores = np.sort(rng.random(30))[::-1]

    def run(scores: np.ndarray) -> list[str]:
        hits = [
            hit(f"{i:02}", "x", float(s), embedding=v)
            for i, (s, v) in enumerate(zip(scores, vectors, strict=True))
        ]
        return ids(MMRPostprocessor(top_n=10).postprocess_nodes(hits))

    assert run(scores) == run(scores * 12 - 7) == run(scores / 1000)


def test_hits_without_scores_take_their_order_as_relevance() -> None:
    hits = three(scores=(None, None, None))
    assert ids(MMRPostprocessor(lambda_mult=1).postprocess_nodes(hits)) == ["a", "copy", "b"]
    some = three(scores=(None, 0.9, 0.8))
    assert ids(MMRPostprocessor(lambda_mult=1).postprocess_nodes(some)) == ["copy", "a", "b"]


def test_vectors_come_from_the_store_and_nothing_stored_is_embedded_again() -> None:
    store = VectorsOnly({k: np.array(v, dtype=np.float32) for k, v in VECTORS.items()})
    embed_model = CountingEmbedding(dimensions=2)
    component = MMRPostprocessor(top_n=2, store=store, embed_model=embed_model)
    with recorded_events() as events:
        assert ids(component.postprocess_nodes(three(embedded=False))) == ["a", "b"]
    assert store._asked == [["a", "copy", "b"]]
    assert embed_model._texts == []
    (event,) = [e for e in events if e.class_name() == "HybridPackStageEndEvent"]
    assert (event.stage, event.n_in, event.n_out, event.cache_hits) == ("mmr", 3, 2, 3)


def test_a_vector_on_the_node_is_not_asked_for() -> None:
    store = VectorsOnly({})
    assert ids(MMRPostprocessor(top_n=2, store=store).postprocess_nodes(three())) == ["a", "b"]
    assert store._asked == []


def test_only_what_neither_node_nor_store_has_is_embedded() -> None:
    embed_model = CountingEmbedding(dimensions=16)
    plain = HashEmbedding(dimensions=16)
    texts = {"n": "refund takes ten days", "s": "gateway error", "m": "refund takes ten days now"}
    vectors = {name: plain.get_text_embedding(text) for name, text in texts.items()}
    store = VectorsOnly({"s": np.array(vectors["s"], dtype=np.float32)})
    hits = [
        hit("n", texts["n"], 0.9, embedding=vectors["n"]),
        hit("s", texts["s"], 0.8),
        hit("m", texts["m"], 0.7, metadata={"heading": "Billing"}),
    ]
    component = MMRPostprocessor(top_n=None, store=store, embed_model=embed_model)
    with recorded_events() as events:
        component.postprocess_nodes(hits)
    assert embed_model._texts == ["heading: Billing\n\n" + texts["m"]]
    assert [e.cache_hits for e in events if e.class_name() == "HybridPackStageEndEvent"] == [2]


def test_missing_vectors_without_a_source_are_a_wrong_setup() -> None:
    with pytest.raises(ConfigError, match=r"3 hits have no vector.*store.*embed_model"):
        MMRPostprocessor().postprocess_nodes(three(embedded=False))


def test_vectors_that_the_store_lost_follow_on_error() -> None:
    store = VectorsOnly({"a": np.ones(2, dtype=np.float32)})
    with recorded_events() as events:
        out = MMRPostprocessor(top_n=2, store=store).postprocess_nodes(three(embedded=False))
    assert [(h.node.node_id, h.score) for h in out] == [("a", 0.9), ("copy", 0.8)]
    (event,) = [e for e in events if e.class_name() == "HybridPackFallbackEvent"]
    assert event.error_type == "EmbeddingError"
    strict = MMRPostprocessor(store=store, on_error="raise")
    with pytest.raises(RerankError, match="2 hits have no vector") as caught:
        strict.postprocess_nodes(three(embedded=False))
    assert isinstance(caught.value.__cause__, EmbeddingError)


@pytest.mark.parametrize("bad", [[1.0, 2.0, 3.0], [float("nan"), 1.0]])
def test_vectors_of_another_model_or_not_finite_follow_on_error(bad: list[float]) -> None:
    hits = [*three(), hit("bad", "bad", 0.1, embedding=bad)]
    assert ids(MMRPostprocessor(top_n=2).postprocess_nodes(hits)) == ["a", "copy"]
    with pytest.raises(RerankError):
        MMRPostprocessor(on_error="raise").postprocess_nodes(hits)


def test_the_questions_vector_is_taken_from_the_bundle_or_embedded_once() -> None:
    embed_model = CountingEmbedding(dimensions=2)
    component = MMRPostprocessor(relevance="query", embed_model=embed_model)
    given = QueryBundle("q", embedding=[0.0, 1.0])
    assert ids(component.postprocess_nodes(three(), query_bundle=given))[0] == "b"
    assert embed_model._texts == []
    component.postprocess_nodes(three(), query_bundle=QueryBundle("q"))
    assert embed_model._texts == ["q"]


def test_a_rewrites_vector_does_not_stand_for_the_question() -> None:
    embed_model = CountingEmbedding(dimensions=2)
    component = MMRPostprocessor(relevance="query", embed_model=embed_model)
    rewritten = QueryBundle("q", custom_embedding_strs=["hypothetical"], embedding=[0.0, 1.0])
    component.postprocess_nodes(three(), query_bundle=rewritten)
    assert embed_model._texts == ["q"]
    # Without a model to embed the question it is the best there is.
    without = MMRPostprocessor(relevance="query")
    assert ids(without.postprocess_nodes(three(), query_bundle=rewritten))[0] == "b"


def test_by_query_without_vector_or_model_says_what_to_give() -> None:
    with pytest.raises(ConfigError, match="embed_model"):
        MMRPostprocessor(relevance="query").postprocess_nodes(three(), query_str="q")
    with pytest.raises(ConfigError, match="question"):
        MMRPostprocessor(relevance="query").postprocess_nodes(three())


def test_a_question_of_another_models_dimension_follows_on_error() -> None:
    bundle = QueryBundle("q", embedding=[1.0, 0.0, 0.0])
    component = MMRPostprocessor(relevance="query", top_n=1)
    assert ids(component.postprocess_nodes(three(), query_bundle=bundle)) == ["a"]


def test_equal_to_the_pure_function() -> None:
    rng = np.random.default_rng(5)
    vectors = rng.normal(size=(60, 12)).astype(np.float32)
    query = rng.normal(size=12)
    hits = [hit(f"{i:02}", "x", None, embedding=v.tolist()) for i, v in enumerate(vectors)]
    out = MMRPostprocessor(lambda_mult=0.3, top_n=10, relevance="query").postprocess_nodes(
        hits, query_bundle=QueryBundle("q", embedding=query.tolist())
    )
    cosines = vectors @ query / np.linalg.norm(vectors, axis=1) / np.linalg.norm(query)
    want = mmr_select(cosines, vectors, lambda_mult=0.3, k=10)
    assert ids(out) == [f"{i:02}" for i in want]


def test_the_store_is_not_serialised_and_the_model_is() -> None:
    component = MMRPostprocessor(
        store=VectorsOnly({}), embed_model=HashEmbedding(dimensions=4), top_n=3
    )
    data = component.to_dict()
    assert "store" not in data
    assert data["embed_model"] == {**HashEmbedding(dimensions=4).to_dict()}
    other = MMRPostprocessor.from_dict(data)
    assert other.store is None
    assert other.embed_model.dimensions == 4


@pytest.mark.parametrize(
    "options",
    [
        {"lambda_mult": -0.1},
        {"lambda_mult": 1.1},
        {"lambda_mult": float("nan")},
        {"top_n": 0},
        {"relevance": "bm25"},
        {"mmr_threshold": 0.5},
    ],
)
def test_wrong_options_are_named(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        MMRPostprocessor(**options)
