"""Shared by the tests of the embedded store: build a known state, and check all of it."""

from __future__ import annotations

from collections.abc import Mapping

from llama_index.core.schema import TextNode

from llama_index_hybrid_pack.indexing.stores.base import BM25, DENSE, SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.testing.builders import embed, make_node

#: Node id → text.
State = Mapping[str, str]


def nodes_of(state: State) -> list[TextNode]:
    """Nodes of a state; the text holds the id as a term, so that BM25 can ask for one node."""
    return [
        make_node(
            node_id,
            f"{text} marker-{node_id}",
            doc_id=f"doc-{node_id}",
            metadata={"kind": text.split()[0]},
        )
        for node_id, text in state.items()
    ]


def assert_holds(store: LocalHybridStore, state: State) -> None:
    """Exactly this state, whole, on both legs, in the table and under a filter."""
    expected = {node.node_id: node for node in nodes_of(state)}
    assert store.count() == len(expected)
    assert {node.node_id: node.text for node in store.get_nodes()} == {
        node_id: node.text for node_id, node in expected.items()
    }
    everything = max(1, len(expected)) + 10
    dense = store.search(SearchRequest(query_embedding=embed("x"), dense_top_k=everything))
    assert sorted(dense.legs[DENSE].ids) == sorted(expected)
    words = store.search(SearchRequest(query_str="marker", lexical_top_k=everything))
    assert sorted(words.legs[BM25].ids) == sorted(expected)
    for node_id, node in expected.items():
        found = store.search(
            SearchRequest(
                query_str=f"marker-{node_id}", query_embedding=embed(node.text), dense_top_k=1
            )
        )
        assert found.legs[BM25].ids[0] == node_id, found.legs[BM25]
        assert found.legs[DENSE].scores[0] > 0.9999
        assert found.nodes([node_id])[node_id].text == node.text
