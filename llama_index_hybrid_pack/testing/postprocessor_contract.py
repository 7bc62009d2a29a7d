"""What every postprocessor must do, as a suite that you can run on your own.

::

    class TestMyReranker(PostprocessorContract):
        @pytest.fixture
        def postprocessor(self) -> BaseNodePostprocessor:
            return MyReranker(top_n=3)

Needs pytest and pytest-asyncio.
"""

from __future__ import annotations

import copy
import json
import math
import pickle
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

import pytest
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks import CallbackManager
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import (
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    TextNode,
)

from llama_index_hybrid_pack.answering.passages import PassageSynthesizer
from llama_index_hybrid_pack.metadata import ScoreScale, annotate
from llama_index_hybrid_pack.testing.fakes import HashEmbedding

_TEXTS = {
    "n1": "A refund takes ten days after the parcel is back.",
    "n2": "Error E-504 means that the gateway did not answer in time.",
    "n3": "Refunds of a subscription are paid within a month.",
    "n4": "A refund takes ten days after the parcel is back.",
    "n5": "Reset the password on the login page.",
    "n6": "Shipping abroad costs nine euros.",
}


def fused_hits() -> list[NodeWithScore]:
    """Return hits of a fused search: two with equal texts, one without a score."""
    embedding = HashEmbedding(dimensions=16)
    scores = [0.031, 0.030, 0.029, 0.028, 0.016, None]
    hits = []
    for rank, ((node_id, text), score) in enumerate(
        zip(_TEXTS.items(), scores, strict=True), start=1
    ):
        node = TextNode(
            id_=node_id,
            text=text,
            metadata={"heading": "Help", "tags": ["a", "b"]},
            embedding=embedding.get_text_embedding(text),
        )
        source = TextNode(id_=f"document of {node_id}").as_related_node_info()
        node.relationships = {NodeRelationship.SOURCE: source}
        hit = NodeWithScore(node=node)
        hits.append(annotate(hit, "fusion", score=score, rank=rank, scale=ScoreScale.RANK))
    return hits


class PostprocessorContract:
    """Inherit it and define the fixture ``postprocessor``; ``hits`` can be replaced too."""

    #: The user's question.
    query: ClassVar[str] = "How long does a refund take?"
    #: Whether the postprocessor cannot work without a question; then it must say so.
    needs_query: ClassVar[bool] = True
    #: Whether it may return nodes that it was not given, such as parents or neighbours.
    adds_nodes: ClassVar[bool] = False

    @pytest.fixture
    def postprocessor(self) -> BaseNodePostprocessor:
        """Return the component to be tested."""
        raise NotImplementedError

    @pytest.fixture
    def hits(self) -> list[NodeWithScore]:
        """Return the hits that the component is given."""
        return fused_hits()

    def run(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> list[NodeWithScore]:
        """Call the component as a query engine does."""
        return postprocessor.postprocess_nodes(hits, query_bundle=QueryBundle(self.query))

    def test_inputs_stay_as_they_were(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """Callers and caches keep the hits that they passed in."""
        bundle = QueryBundle(self.query)
        given = list(hits)
        before = copy.deepcopy((hits, bundle))
        out = postprocessor.postprocess_nodes(hits, query_bundle=bundle)
        assert _plain(hits) == _plain(before[0])
        assert all(hit is old for hit, old in zip(hits, given, strict=True))
        assert bundle == before[1]
        for hit in out:  # nor may the caller reach the input through the output
            assert not any(hit is old for old in given)
            hit.score = -1.0
        assert _plain(hits) == _plain(before[0])

    def test_scores_are_plain_floats(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """Scores go into JSON; numpy's own types do not."""
        out = self.run(postprocessor, hits)
        assert out
        for hit in out:
            assert hit.score is None or type(hit.score) is float
            assert hit.score is None or math.isfinite(hit.score)
        json.dumps([(hit.node.node_id, hit.score, hit.node.metadata) for hit in out])

    def test_metadata_for_models_is_not_widened(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """What a component records must not reach the prompt."""
        given = {hit.node.node_id: hit for hit in hits}
        for hit in self.run(postprocessor, hits):
            if hit.node.node_id in given:
                old = given[hit.node.node_id].node
                for mode in (MetadataMode.LLM, MetadataMode.EMBED):
                    assert hit.node.get_metadata_str(mode) == old.get_metadata_str(mode)

    def test_returns_each_hit_at_most_once_and_none_of_its_own(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """A reranker orders and drops; it does not repeat or invent."""
        out = Counter(hit.node.node_id for hit in self.run(postprocessor, hits))
        assert max(out.values(), default=1) == 1
        if not self.adds_nodes:
            assert set(out) <= {hit.node.node_id for hit in hits}

    def test_same_call_same_result(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """No hidden state changes the order."""
        first = self.run(postprocessor, hits)
        assert _plain(self.run(postprocessor, hits)) == _plain(first)

    async def test_async_gives_the_same(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """Also when the sync method is called inside a running event loop."""
        sync = self.run(postprocessor, hits)
        out = await postprocessor.apostprocess_nodes(hits, query_bundle=QueryBundle(self.query))
        assert _plain(out) == _plain(sync)

    async def test_no_hits_give_no_hits(self, postprocessor: BaseNodePostprocessor) -> None:
        """An empty retrieval is normal, with or without a question."""
        assert self.run(postprocessor, []) == []
        assert postprocessor.postprocess_nodes([]) == []
        assert await postprocessor.apostprocess_nodes([], query_str=self.query) == []

    def test_without_a_question_it_works_or_says_why_not(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """No AttributeError from somewhere inside."""
        if not self.needs_query:
            assert postprocessor.postprocess_nodes(hits)
            return
        for bundle in (None, QueryBundle("  ")):
            with pytest.raises(ValueError, match="question"):
                postprocessor.postprocess_nodes(hits, query_bundle=bundle)

    def test_copies_give_the_same(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """Worker pools pickle components; pipelines copy them."""
        want = _plain(self.run(postprocessor, hits))
        for other in (pickle.loads(pickle.dumps(postprocessor)), copy.deepcopy(postprocessor)):  # noqa: S301
            assert type(other) is type(postprocessor)
            assert _plain(self.run(other, hits)) == want

    def test_survives_serialising(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """``to_dict``, JSON and back make the same component."""
        want = _plain(self.run(postprocessor, hits))
        cls = type(postprocessor)
        for other in (
            cls.from_dict(postprocessor.to_dict()),
            cls.from_json(postprocessor.to_json()),
        ):
            assert other.to_dict() == postprocessor.to_dict()
            assert _plain(self.run(other, hits)) == want

    def test_has_a_class_name_of_its_own(self, postprocessor: BaseNodePostprocessor) -> None:
        """It is the identity when serialising."""
        name = postprocessor.class_name()
        assert name == postprocessor.to_dict()["class_name"]
        assert name not in {"BaseNodePostprocessor", "base_component"}

    def test_eight_threads_get_what_one_gets(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """Servers share one component between requests."""
        want = _plain(self.run(postprocessor, hits))
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda _: self.run(postprocessor, hits), range(24)))
        assert all(_plain(out) == want for out in results)

    def test_works_in_a_query_engine(
        self, postprocessor: BaseNodePostprocessor, hits: list[NodeWithScore]
    ) -> None:
        """The engine assigns its callback manager and calls the component after retrieval."""
        want = [hit.node.node_id for hit in self.run(postprocessor, hits)]
        manager = CallbackManager()
        engine = RetrieverQueryEngine(
            retriever=_Given(hits),
            response_synthesizer=PassageSynthesizer(),
            node_postprocessors=[postprocessor],
            callback_manager=manager,
        )
        assert postprocessor.callback_manager is manager
        response = engine.query(self.query)
        assert [hit.node.node_id for hit in response.source_nodes] == want


class _Given(BaseRetriever):
    def __init__(self, hits: list[NodeWithScore]) -> None:
        super().__init__()
        self._hits = hits

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return list(self._hits)


def _plain(hits: list[NodeWithScore]) -> list[tuple[str, float | None, str]]:
    return [
        (hit.node.node_id, hit.score, json.dumps(hit.node.to_dict(), sort_keys=True, default=str))
        for hit in hits
    ]
