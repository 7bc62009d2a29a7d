"""HybridFusionRetriever over retrievers with fixed answers: what is fused, and how."""

from __future__ import annotations

import copy
import json
import math
import pickle
import threading

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.prompts import PromptTemplate
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import IndexNode, MetadataMode, NodeWithScore, QueryBundle, TextNode
from llama_index.core.settings import Settings

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.metadata import STAGES_KEY, ScoreScale, current_scale, stage_scores
from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
from tests.unit.retrieval.static import AsyncStatic, Static, hit, ids, ranked


def fusion(*retrievers, **options):
    return HybridFusionRetriever(retrievers, **{"mode": "rrf", **options})


def scores(hits, digits=4):
    return [(found.node_id, round(found.score, digits)) for found in hits]


# -- ranks


def test_worked_example() -> None:
    hits = fusion(ranked("d1", "d2", "d4"), ranked("d2", "d4", "d1")).retrieve("q")
    assert scores(hits) == [("d2", 0.0325), ("d1", 0.0323), ("d4", 0.032)]


def test_rank_2_beside_ranks_1_and_3() -> None:
    hits = fusion(ranked("x", "d"), ranked("d"), ranked("y", "z", "d")).retrieve("q")
    assert hits[0].node_id == "d"
    assert hits[0].score == pytest.approx(1 / 62 + 1 / 61 + 1 / 63)


def test_one_retriever_keeps_its_order_from_rank_1() -> None:  # F09
    hits = fusion(ranked("b", "a")).retrieve("q")
    assert [(found.node_id, found.score) for found in hits] == [("b", 1 / 61), ("a", 1 / 62)]


def test_the_given_order_is_the_rank_whatever_the_scores_say() -> None:  # F15
    mmr = Static([hit("m1", 0.4), hit("m2", -0.1), hit("m3", 0.05)])
    assert ids(fusion(mmr).retrieve("q")) == ["m1", "m2", "m3"]
    distances = Static([hit("near", 0.1), hit("far", 3.0)])
    assert ids(fusion(distances).retrieve("q")) == ["near", "far"]


def test_rrf_k_is_an_option() -> None:
    assert fusion(ranked("a"), rrf_k=0).retrieve("q")[0].score == 1.0


@pytest.mark.parametrize("mode", ["rrf", "weighted"])
def test_weights_decide_the_order(mode) -> None:  # F08
    def order(weights):
        legs = [Static([hit("a", 1.0)]), Static([hit("b", 1.0)])]
        return ids(fusion(*legs, mode=mode, weights=weights).retrieve("q"))

    assert order([0.9, 0.1]) == ["a", "b"]
    assert order([0.1, 0.9]) == ["b", "a"]


@pytest.mark.parametrize("mode", ["rrf", "weighted"])
async def test_a_retriever_of_weight_0_is_not_asked_at_all(mode, cases_dir) -> None:
    case = json.loads((cases_dir / "B16.json").read_text())
    legs = [ranked(*names) for names in case["input"]["lists"]]
    retriever = fusion(*legs, mode=mode, weights=case["input"]["weights"])
    for hits in (retriever.retrieve("q"), await retriever.aretrieve("q")):
        assert ids(hits) == [case["expected"]["first"]]
    assert legs[0].queries == []
    assert len(legs[1].queries) == 2


# -- scores


def test_weighted_mode_normalises_each_list() -> None:
    bm25 = Static([hit("a", 12.0), hit("b", 3.0)])
    dense = Static([hit("b", 0.9), hit("c", 0.5), hit("a", 0.1)])
    hits = fusion(bm25, dense, mode="weighted", normalization="min_max", weights=[1, 3]).retrieve(
        "q"
    )
    assert scores(hits) == [("b", 0.75), ("c", 0.375), ("a", 0.25)]


@pytest.mark.parametrize("normalization", ["min_max", "z_score", "dist_based", "none"])
def test_hits_without_a_score_are_kept(normalization, cases_dir) -> None:
    case = json.loads((cases_dir / "B17.json").read_text())
    legs = [Static([hit(name, s) for name, s in hits]) for hits in case["input"]["lists"]]
    hits = fusion(*legs, mode="weighted", normalization=normalization).retrieve("q")
    assert ("B" in ids(hits)) is case["expected"]["B_kept"]
    assert sorted(ids(hits)) == ["A", "B"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_score_that_is_no_number_counts_as_missing(value) -> None:
    leg = Static([hit("broken", value), hit("good", 0.9), hit("worst", 0.1)])
    hits = fusion(leg, mode="weighted", normalization="min_max").retrieve("q")
    assert scores(hits) == [("good", 1.0), ("broken", 0.0), ("worst", 0.0)]
    assert stage_scores(hits[1].node)["Static"]["score"] is None


def test_negative_cosines_are_hits_like_any_other() -> None:
    hits = fusion(
        Static([hit("a", -0.1), hit("b", -0.4)]), mode="weighted", normalization="min_max"
    ).retrieve("q")
    assert scores(hits) == [("a", 1.0), ("b", 0.0)]


@pytest.mark.parametrize("mode", ["rrf", "weighted"])
def test_no_hits_are_no_error(mode) -> None:
    assert fusion(Static([]), Static([]), mode=mode).retrieve("q") == []


def test_the_number_of_hits_is_bounded() -> None:
    assert len(fusion(ranked(*"abcdef"), similarity_top_k=4).retrieve("q")) == 4


def test_the_scale_of_the_fused_score_is_declared() -> None:
    for mode, scale in (("rrf", ScoreScale.RANK), ("weighted", ScoreScale.FUSED)):
        found = fusion(Static([hit("a", 1.0)]), mode=mode).retrieve("q")[0]
        assert current_scale(found.node) is scale


# -- identity


def test_two_nodes_of_equal_text_stay_two() -> None:  # F11
    leg = Static([hit("1", 1.0, "same"), hit("2", 1.0, "same")])
    assert scores(fusion(leg).retrieve("q")) == [("1", 0.0164), ("2", 0.0161)]


def test_one_node_with_other_metadata_per_leg_is_fused() -> None:  # F12
    legs = [Static([hit("1", 1.0, "t", s=name)]) for name in "xy"]
    assert [found.score for found in fusion(*legs).retrieve("q")] == [2 / 61]


def test_the_payload_does_not_depend_on_the_order_of_the_lists(cases_dir) -> None:
    case = json.loads((cases_dir / "B20.json").read_text())
    legs = [
        Static([hit(h["id"], 1.0, **h["meta"]) for h in hits]) for hits in case["input"]["lists"]
    ]
    results = [fusion(*order).retrieve("q") for order in (legs, legs[::-1])]
    for hits in results:
        assert ids(hits) == case["expected"]["results"]
        assert hits[0].score == 2 / 61
        assert hits[0].metadata["retrieval"] == "x"  # the copy that knows more


def test_of_two_copies_that_know_as_much_the_same_is_taken_either_way() -> None:
    legs = [Static([hit("1", 1.0, "t", s=name)]) for name in "xy"]
    payloads = {fusion(*order).retrieve("q")[0].metadata["s"] for order in (legs, legs[::-1])}
    assert len(payloads) == 1


def test_an_id_repeated_in_one_list_counts_once() -> None:
    leg = Static([hit("a", 0.9), hit("a", 0.9), hit("b", 0.1)])
    assert scores(fusion(leg).retrieve("q")) == [("a", 0.0164), ("b", 0.0161)]


def test_equal_scores_are_ordered_by_id() -> None:
    assert ids(fusion(ranked("b"), ranked("a")).retrieve("q")) == ["a", "b"]


# -- inputs stay as they are


@pytest.mark.parametrize("mode", ["rrf", "weighted"])
async def test_hits_of_the_retrievers_are_not_changed(mode) -> None:  # F10
    legs = [Static([hit("a", 0.9, x=1), hit("b", 0.8)]), AsyncStatic([hit("b", 12.0)])]
    before = copy.deepcopy([leg.hits for leg in legs])
    retriever = fusion(*legs, mode=mode)
    first = retriever.retrieve("q")
    second = await retriever.aretrieve("q")
    assert [leg.hits for leg in legs] == before
    assert [(f.node_id, f.score, f.metadata) for f in first] == [
        (f.node_id, f.score, f.metadata) for f in second
    ]
    assert all(STAGES_KEY not in found.node.metadata for leg in legs for found in leg.hits)


def test_a_retriever_that_writes_into_its_query_does_not_reach_the_callers() -> None:  # F38
    class Writing(Static):
        def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
            query_bundle.embedding = [1.0]
            return super()._retrieve(query_bundle)

    bundle = QueryBundle("q", custom_embedding_strs=["x"])
    legs = [Writing([hit("a")]), Static([hit("a")])]
    fusion(*legs).retrieve(bundle)
    assert bundle == QueryBundle("q", custom_embedding_strs=["x"])
    assert legs[1].queries[0].embedding is None


# -- the stage record


def test_rank_and_score_of_every_leg_stay_with_the_node() -> None:
    legs = [Static([hit("a", 12.0), hit("b", 3.0)]), Static([hit("b", 0.9)])]
    hits = fusion(*legs, names=["words", "vectors"]).retrieve("q")
    record = stage_scores(hits[0].node)
    assert list(record) == ["words", "vectors", "fusion"]
    assert record["words"] == {"score": 3.0, "rank": 2, "scale": "unknown"}
    assert record["vectors"] == {"score": 0.9, "rank": 1, "scale": "unknown"}
    assert record["fusion"] == {"score": hits[0].score, "rank": 1, "scale": "rank"}
    assert "vectors" not in stage_scores(hits[1].node)


def test_the_record_is_hidden_from_embedding_and_llm() -> None:
    node = fusion(Static([hit("a", 1.0, page=3)])).retrieve("q")[0].node
    for mode in (MetadataMode.EMBED, MetadataMode.LLM):
        assert node.get_content(mode) == "page: 3\n\na"


def test_scores_are_plain_floats_that_json_takes() -> None:
    import numpy as np

    leg = Static([hit("a", 0.5), hit("b", 0.25)])
    for found in leg.hits:
        found.score = np.float32(found.score)
    for mode in ("rrf", "weighted"):
        for found in fusion(leg, mode=mode).retrieve("q"):
            assert type(found.score) is float
            json.dumps(stage_scores(found.node))


def test_a_fusion_can_be_a_leg_of_a_fusion() -> None:
    inner = fusion(ranked("a", "b"), ranked("b"), names=["x", "y"])
    hits = fusion(inner, ranked("a")).retrieve("q")
    assert ids(hits) == ["a", "b"]
    record = stage_scores(hits[0].node)
    assert record["hybrid"]["scale"] == "rank"
    assert list(record)[-1] == "fusion"
    assert record["fusion"]["score"] == pytest.approx(1 / 62 + 1 / 61)


# -- construction


def test_no_llm_is_needed(monkeypatch) -> None:
    monkeypatch.setattr(Settings, "_llm", None)
    monkeypatch.setattr(Settings, "_embed_model", None)
    fusion(ranked("a")).retrieve("q")
    assert Settings._llm is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"weights": [1.0]}, "1 weights were given for 2"),
        ({"weights": [0, 0]}, "All weights are 0"),
        ({"weights": [-1, 1]}, "at least 0"),
        ({"mode": "simple"}, "'simple'"),
        ({"normalization": "softmax"}, "'softmax'"),
        ({"on_error": "ignore"}, "'ignore'"),
        ({"rrf_k": -1}, "at least 0"),
        ({"rrf_k": math.nan}, "at least 0"),
        ({"similarity_top_k": 0}, "at least 1"),
        ({"names": ["a"]}, "name of its own"),
        ({"names": ["a", "a"]}, "name of its own"),
        ({"names": ["a", ""]}, "name of its own"),
        ({"names": "ab"}, "name of its own"),
        ({"names": ["a", "b:c"]}, "colon"),
        ({"names": ["a", "fusion"]}, "later stages"),
    ],
)
def test_options_that_cannot_work_are_refused_at_once(options, message) -> None:
    with pytest.raises(ConfigError, match=message):
        fusion(ranked("a"), ranked("b"), **options)


def test_no_retrievers_are_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="at least one"):
        HybridFusionRetriever([])


def test_legs_get_names_by_kind_each_its_own() -> None:
    retriever = fusion(ranked("a"), ranked("b"), AsyncStatic([]))
    assert [leg.name for leg in retriever.legs] == ["Static", "Static_2", "AsyncStatic"]


# -- LlamaIndex


def test_prompts_of_the_retrievers_can_be_reached() -> None:
    class Prompted(Static):
        prompt = PromptTemplate("old {query}")

        def _get_prompts(self):
            return {"ask": self.prompt}

        def _update_prompts(self, prompts) -> None:
            self.prompt = prompts.get("ask", self.prompt)

    leg = Prompted([])
    retriever = fusion(leg, ranked("a"), names=["first", "second"])
    assert list(retriever.get_prompts()) == ["first:ask"]
    retriever.update_prompts({"first:ask": PromptTemplate("new {query}")})
    assert leg.prompt.template == "new {query}"


def test_index_nodes_are_followed_as_llama_index_does() -> None:
    inner = ranked("inside")
    pointer = NodeWithScore(node=IndexNode(id_="p", text="p", index_id="p", obj=inner), score=1.0)
    assert ids(fusion(Static([pointer])).retrieve("q")) == ["inside"]
    plain = NodeWithScore(node=IndexNode(id_="p", text="p", index_id="there"), score=1.0)
    retriever = fusion(Static([plain]), object_map={"there": TextNode(id_="t", text="t")})
    assert ids(retriever.retrieve("q")) == ["t"]


async def test_it_works_under_a_query_engine() -> None:
    from llama_index_hybrid_pack.testing.fakes import ScriptedLLM

    engine = RetrieverQueryEngine.from_args(
        fusion(ranked("a", "b")), llm=ScriptedLLM(answers=["Yes."])
    )
    assert str(engine.query("q")) == str(await engine.aquery("q")) == "Yes."


def test_events_of_llama_index_and_ours_are_emitted(events) -> None:
    fusion(ranked("a"), ranked("b")).retrieve("q")
    names = [event.class_name() for event in events]
    assert names.count("RetrievalEndEvent") == 3  # two legs and the fusion
    ours = next(event for event in events if getattr(event, "stage", "") == "fusion")
    assert (ours.n_in, ours.n_out) == (2, 2)


async def test_the_async_path_has_a_span(monkeypatch) -> None:
    from llama_index_instrumentation import get_dispatcher
    from llama_index_instrumentation.span_handlers import NullSpanHandler

    seen = []

    class Spans(NullSpanHandler):
        def span_enter(self, id_, *args, **kwargs) -> None:
            seen.append(id_)

    root = get_dispatcher("root")
    handler = Spans()
    root.add_span_handler(handler)
    try:
        await fusion(ranked("a")).aretrieve("q")
    finally:
        root.span_handlers.remove(handler)
    assert any(name.startswith("HybridFusionRetriever._aretrieve") for name in seen)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda r: pickle.loads(pickle.dumps(r))])
def test_copies_find_the_same(copied) -> None:
    retriever = fusion(ranked("a", "b"), ranked("b"), weights=[0.3, 0.7])
    assert scores(copied(retriever).retrieve("q")) == scores(retriever.retrieve("q"))
    assert HybridFusionRetriever.class_name() == "HybridFusionRetriever"


def test_many_threads_may_share_it() -> None:
    retriever = fusion(
        ranked("a", "b", "c"), ranked("c", "b"), mode="weighted", normalization="min_max"
    )
    expected = scores(retriever.retrieve("q"))
    found: list[object] = []

    def work() -> None:
        found.extend(scores(retriever.retrieve("q")) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 40


async def test_sync_works_inside_a_running_event_loop() -> None:
    assert ids(fusion(ranked("a"), AsyncStatic([hit("b")])).retrieve("q")) == ["a", "b"]


def test_it_is_a_retriever() -> None:
    assert issubclass(HybridFusionRetriever, BaseRetriever)
