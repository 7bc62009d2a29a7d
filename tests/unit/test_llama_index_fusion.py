"""Our retrievers inside LlamaIndex's own fusion, which knows nodes by a hash."""

from __future__ import annotations

import copy
import json
import pickle

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, TextNode

from llama_index_hybrid_pack.metadata import STAGES_KEY, ScoreScale, annotate, stage_scores
from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever
from llama_index_hybrid_pack.testing.fakes import HashEmbedding

TEXTS = {"a": "refund in ten days", "b": "refund refund policy", "c": "shipping"}
NODES = [TextNode(id_=name, text=text, metadata={"page": 1}) for name, text in TEXTS.items()]


@pytest.mark.parametrize("mode", ["reciprocal_rerank", "relative_score", "dist_based_score"])
def test_hits_of_both_legs_are_merged(mode: str) -> None:
    def fused(*legs) -> list[tuple[str, float]]:
        hits = QueryFusionRetriever(
            list(legs), llm=MockLLM(), mode=mode, num_queries=1, use_async=False, similarity_top_k=9
        ).retrieve("refund")
        return [(hit.node_id, pytest.approx(hit.score)) for hit in hits]

    dense = VectorStoreIndex(NODES, embed_model=HashEmbedding()).as_retriever(similarity_top_k=2)

    class Plain(IdentifierBM25Retriever):
        """Gives the same hits without our record."""

        def _retrieve(self, query_bundle):
            bare = {node.node_id: node for node in NODES}
            return [
                NodeWithScore(node=bare[hit.node_id], score=hit.score)
                for hit in super()._retrieve(query_bundle)
            ]

    ours = IdentifierBM25Retriever(NODES, similarity_top_k=3)
    assert fused(dense, ours) == fused(dense, Plain(NODES, similarity_top_k=3))


def test_the_record_does_not_change_what_llama_index_takes_for_a_node() -> None:
    node = NODES[0]
    hit = NodeWithScore(node=node, score=1.0)
    once = annotate(hit, "dense", score=0.5, rank=1, scale=ScoreScale.COSINE)
    twice = annotate(once, "bm25", score=7.0, rank=2, scale=ScoreScale.BM25)
    assert node.hash == once.node.hash == twice.node.hash
    assert copy.deepcopy(twice.node).hash == node.hash
    assert stage_scores(pickle.loads(pickle.dumps(twice.node))) == stage_scores(twice.node)
    other = TextNode(text=node.text, metadata={"page": 2})
    assert annotate(
        NodeWithScore(node=other), "d", score=1.0, rank=1, scale=ScoreScale.RANK
    ).node.hash != (once.node.hash)


def test_the_record_is_still_there_in_json() -> None:
    hit = annotate(
        NodeWithScore(node=NODES[0]), "dense", score=0.5, rank=1, scale=ScoreScale.COSINE
    )
    entry = {"dense": {"score": 0.5, "rank": 1, "scale": "cosine"}}
    assert json.loads(json.dumps(hit.node.metadata))[STAGES_KEY] == entry
    assert TextNode.from_dict(hit.node.to_dict()).metadata[STAGES_KEY] == entry
    assert hit.node.metadata == {"page": 1, STAGES_KEY: entry}
