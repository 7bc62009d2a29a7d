from __future__ import annotations

import copy
from typing import Any

import pytest
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.ranking.base import detached
from llama_index_hybrid_pack.ranking.chain import PostprocessorChain
from llama_index_hybrid_pack.ranking.threshold import ScoreThreshold
from tests.unit.ranking.scripted import ScriptedReranker, hit, ids, recorded_events


class Vandal(BaseNodePostprocessor):
    """Changes what it is given in every way that LlamaIndex's own postprocessors do."""

    @classmethod
    def class_name(cls) -> str:
        return "Vandal"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        for given in nodes:
            given.score = 42.0
            given.node.metadata["retrieval_score"] = 1
            given.node.metadata["tags"].append("x")
            given.node.set_content("overwritten")
            given.node.excluded_llm_metadata_keys.append("tags")
        nodes.reverse()
        return nodes


class AsyncOnly(BaseNodePostprocessor):
    """Marks which way it was called."""

    @classmethod
    def class_name(cls) -> str:
        return "AsyncOnly"

    def _postprocess_nodes(self, nodes: list[NodeWithScore], query_bundle: Any = None) -> Any:
        return [*nodes, hit("sync", "x", 0.0)]

    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: Any = None
    ) -> Any:
        return [*nodes, hit("async", "x", 0.0)]


def four() -> list[NodeWithScore]:
    return [
        hit(name, f"text of {name}", score, metadata={"tags": ["t"]})
        for name, score in zip("abcd", (0.9, 0.7, 0.4, None), strict=True)
    ]


def scripted(**options: object) -> ScriptedReranker:
    scores = {f"text of {name}": float(i) for i, name in enumerate("abcd")}
    return ScriptedReranker(
        **{"scores": scores, "metadata_mode": "none", "blend_weight": 1.0, **options}
    )


def test_steps_run_in_order_each_on_what_the_last_one_left() -> None:
    chain = PostprocessorChain(
        steps=[
            SimilarityPostprocessor(similarity_cutoff=0.5),
            scripted(top_n=None),
            ScoreThreshold(cutoff=0.5, scale="logit"),
        ]
    )
    out = chain.postprocess_nodes(four(), query_str="q")
    assert [(h.node.node_id, h.score) for h in out] == [("b", 1.0)]
    assert chain.steps[1].calls == [("q", ["text of a", "text of b"])]


def test_a_chain_is_what_its_steps_are_one_after_the_other() -> None:
    steps = [scripted(top_n=3), ScoreThreshold(cutoff=0.0, scale="probability")]
    hits = four()
    for step in steps:
        hits = step.postprocess_nodes(hits, query_str="q")
    chain = PostprocessorChain(steps=steps)
    assert chain.postprocess_nodes(four(), query_str="q") == hits
    nested = PostprocessorChain(
        steps=[PostprocessorChain(steps=steps[:1]), PostprocessorChain(steps=steps[1:])]
    )
    assert nested.postprocess_nodes(four(), query_str="q") == hits


def test_steps_of_someone_else_cannot_change_what_the_caller_has() -> None:
    hits = four()
    before = copy.deepcopy(hits)
    out = PostprocessorChain(steps=[Vandal()]).postprocess_nodes(hits)
    assert hits == before
    assert [h.node.text for h in out] == ["overwritten"] * 4
    assert ids(out) == ["d", "c", "b", "a"]
    # Without the chain's copies the same step does change them: the test sees what it looks for.
    Vandal().postprocess_nodes(hits)
    assert hits != before


def test_nor_what_an_earlier_step_of_ours_returned() -> None:
    kept: list[list[NodeWithScore]] = []

    class Keeper(ScriptedReranker):
        def _postprocess_nodes(self, nodes: Any, query_bundle: Any = None) -> Any:
            out = super()._postprocess_nodes(nodes, query_bundle)
            kept.append((out, copy.deepcopy(out)))
            return out

    keeper = Keeper(scores=scripted().scores, metadata_mode="none")
    PostprocessorChain(steps=[keeper, Vandal()]).postprocess_nodes(four(), query_str="q")
    ((now, then),) = kept
    assert now == then


def test_detached_hits_share_nothing_that_can_be_changed() -> None:
    hits = four()
    before = copy.deepcopy(hits)
    Vandal().postprocess_nodes(detached(hits))
    assert hits == before


async def test_async_steps_are_awaited_and_sync_ones_called() -> None:
    chain = PostprocessorChain(steps=[AsyncOnly()])
    assert ids(chain.postprocess_nodes(four()))[-1] == "sync"
    assert ids(await chain.apostprocess_nodes(four()))[-1] == "async"


def test_each_step_emits_its_own_event() -> None:
    chain = PostprocessorChain(
        steps=[SimilarityPostprocessor(similarity_cutoff=0.5), scripted(top_n=1)]
    )
    with recorded_events() as events:
        chain.postprocess_nodes(four(), query_str="q")
    stages = [
        (e.stage, e.n_in, e.n_out) for e in events if e.class_name() == "HybridPackStageEndEvent"
    ]
    assert stages == [
        ("chain.0.SimilarityPostprocessor", 4, 2),
        ("scripted", 2, 1),
        ("chain.1.ScriptedReranker", 2, 1),
    ]


def test_a_step_that_leaves_nothing_ends_the_chain() -> None:
    last = scripted()
    chain = PostprocessorChain(steps=[SimilarityPostprocessor(similarity_cutoff=9.0), last])
    assert chain.postprocess_nodes(four(), query_str="q") == []
    assert last.calls == []


def test_no_steps_change_nothing_but_the_hits_are_new() -> None:
    hits = four()
    out = PostprocessorChain().postprocess_nodes(hits)
    assert out == hits
    assert out[0] is not hits[0]


def test_the_callback_manager_reaches_every_step() -> None:
    inner = PostprocessorChain(steps=[scripted()])
    chain = PostprocessorChain(steps=[inner, SimilarityPostprocessor(similarity_cutoff=0.1)])
    manager = CallbackManager()
    chain.callback_manager = manager
    assert inner.steps[0].callback_manager is manager
    assert chain.steps[1].callback_manager is manager


def test_a_nested_chain_with_foreign_steps_survives_serialising() -> None:
    chain = PostprocessorChain(
        steps=[
            SimilarityPostprocessor(similarity_cutoff=0.3),
            PostprocessorChain(steps=[scripted(top_n=2), ScoreThreshold(cutoff=0, scale="logit")]),
        ]
    )
    data = chain.to_dict()
    assert data["steps"][0] == {"similarity_cutoff": 0.3, "class_name": "SimilarityPostprocessor"}
    for other in (
        PostprocessorChain.from_dict(data),
        PostprocessorChain.from_json(chain.to_json()),
    ):
        assert other.to_dict() == data
        assert isinstance(other.steps[1].steps[0], ScriptedReranker)
        want = chain.postprocess_nodes(four(), query_str="q")
        assert other.postprocess_nodes(four(), query_str="q") == want


@pytest.mark.parametrize("steps", ["reranker", [1], [None], [{"top_n": 1}], 5])
def test_what_is_no_postprocessor_is_refused(steps: object) -> None:
    with pytest.raises(ConfigError, match="steps"):
        PostprocessorChain(steps=steps)


def test_an_unknown_step_in_serialised_data_is_explained() -> None:
    with pytest.raises(ConfigError, match="Import the module that defines it"):
        PostprocessorChain(steps=[{"class_name": "NeverSeen"}])


def test_two_classes_of_one_name_are_not_guessed_between() -> None:
    class First(ScriptedReranker):
        @classmethod
        def class_name(cls) -> str:
            return "Twin"

    class Second(ScriptedReranker):
        @classmethod
        def class_name(cls) -> str:
            return "Twin"

    with pytest.raises(ConfigError, match="2 imported classes have the class_name 'Twin'"):
        PostprocessorChain(steps=[First().to_dict()])
    assert Second is not First
