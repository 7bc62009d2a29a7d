"""Store contract: the four query modes, their scores and their order."""

from __future__ import annotations

import copy

import pytest
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStoreQuery

from llama_index_hybrid_pack.testing.builders import embed, make_node, vector
from llama_index_hybrid_pack.testing.store_contract.base import (
    Calls,
    ContractBase,
    Mode,
    each_mode,
)

_FRUIT = {
    "n1": "apple pie",
    "n2": "apple juice and apple sauce",
    "n3": "banana bread",
    "n4": "cherry tart with banana",
    "n5": "plum",
}


class SearchingContract(ContractBase):
    """What must hold for queries without filters."""

    @pytest.fixture
    def fruit(self, store: BasePydanticVectorStore) -> BasePydanticVectorStore:
        """Give a store with five small texts."""
        store.add([make_node(node_id, text) for node_id, text in _FRUIT.items()])
        return store

    @each_mode
    def test_an_empty_store_gives_nothing(
        self, store: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """No error, no hit."""
        self.require_mode(mode)
        answer = calls.ask(store, "apple", mode=mode)
        assert (answer.ids, answer.scores, answer.nodes) == ([], [], [])

    def test_dense_scores_are_the_cosine(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Also for vectors that are not of length 1, and below zero."""
        vectors = {
            "same": vector(2.0, 0.0),
            "near": vector(3.0, 4.0),
            "right angle": vector(0.0, 0.5),
            "opposite": vector(-0.1, 0.0),
        }
        calls.add(store, [make_node(name, embedding=values) for name, values in vectors.items()])
        answer = calls.ask(store, "x", embedding=vector(5.0, 0.0))
        assert answer.ids == ["same", "near", "right angle", "opposite"]
        assert answer.scores == pytest.approx([1.0, 0.6, 0.0, -1.0], abs=self.score_tolerance)

    @each_mode
    def test_fewer_nodes_than_k_is_fine(
        self, fruit: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """Every node that matches comes once."""
        self.require_mode(mode)
        ids = calls.ask(fruit, "apple banana plum pie", mode=mode, k=1000).ids
        assert sorted(ids) == sorted(_FRUIT)

    @each_mode
    def test_no_more_than_k_hits(
        self, fruit: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """And fewer of them are a prefix of more, but for MMR's scores."""
        self.require_mode(mode)
        more = calls.ask(fruit, "apple banana plum pie", mode=mode, k=4).ids
        for k in (1, 2, 3):
            fewer = calls.ask(fruit, "apple banana plum pie", mode=mode, k=k).ids
            assert len(fewer) == k
            if mode is not Mode.HYBRID:  # fusion may look only at the first k of each search
                assert fewer == more[:k]

    @each_mode
    def test_k_below_one_is_an_error(
        self, fruit: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """Neither everything nor nothing."""
        self.require_mode(mode)
        for k in (0, -1):
            with pytest.raises(self.query_error):
                calls.ask(fruit, "apple", mode=mode, k=k)

    @each_mode
    def test_scores_are_plain_floats_in_falling_order(
        self, fruit: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """One score per hit, parallel to ids and nodes."""
        self.require_mode(mode)
        answer = calls.ask(fruit, "apple banana", mode=mode)
        assert answer.ids
        assert [type(score) for score in answer.scores] == [float] * len(answer.ids)
        if mode is not Mode.MMR:  # there the order is that of the choice
            assert answer.scores == sorted(answer.scores, reverse=True)
        if self.supports_get_nodes:
            assert [node.node_id for node in answer.nodes] == answer.ids

    @each_mode
    def test_equal_scores_are_ordered_by_node_id(
        self, store: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """Whatever the order in which the nodes came."""
        self.require_mode(mode)
        for node_id in ("c", "e", "a", "d", "b"):
            calls.add(store, [make_node(node_id, "apple")])
        assert calls.ask(store, "apple", mode=mode).ids == ["a", "b", "c", "d", "e"]
        assert calls.ask(store, "apple", mode=mode, k=2).ids == ["a", "b"]

    @each_mode
    def test_the_same_query_gives_the_same_answer(
        self, fruit: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """Ids and scores."""
        self.require_mode(mode)
        first = calls.ask(fruit, "apple banana", mode=mode)
        second = calls.ask(fruit, "apple banana", mode=mode)
        assert (first.ids, first.scores) == (second.ids, second.scores)

    @each_mode
    def test_a_query_is_not_changed(
        self, fruit: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """The caller may use the query object again."""
        self.require_mode(mode)
        query = VectorStoreQuery(
            query_str="apple",
            query_embedding=embed("apple"),
            similarity_top_k=3,
            mode=mode,
            node_ids=["n2", "n1"],
            alpha=0.3,
        )
        before = copy.deepcopy(query)
        calls.query(fruit, query)
        assert query == before

    @each_mode
    def test_returned_nodes_are_the_callers_own(
        self, fruit: BasePydanticVectorStore, calls: Calls, mode: Mode
    ) -> None:
        """Changing them changes nothing in the store."""
        self.require_mode(mode)
        self.require("supports_get_nodes")
        for node in calls.ask(fruit, "apple", mode=mode).nodes:
            node.metadata["changed"] = True
            node.set_content("changed")
        for node in calls.ask(fruit, "apple", mode=mode).nodes:
            assert node.metadata == {}
            assert node.get_content() == _FRUIT[node.node_id]

    def test_a_query_vector_that_does_not_fit_is_an_error(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Never a silent other answer."""
        for bad in ([1.0, 0.0], [1.0] * 33, vector(float("nan"), 1.0), vector(float("inf"))):
            with pytest.raises(self.embedding_error):
                calls.ask(fruit, "apple", embedding=bad)

    def test_a_mode_that_the_store_lacks_is_refused(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Another mode's answer would pass for the one that was asked for."""
        lacking = [*self.unsupported_modes, *({*MODES_OF_CONTRACT} - {*self.modes()})]
        for mode in lacking:
            with pytest.raises(self.query_error):
                calls.ask(fruit, "apple", mode=mode)

    def test_text_search_finds_words_by_bm25(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """More of the query's words, and rarer ones, score higher; all scores are above zero."""
        self.require("supports_text_search")
        answer = calls.ask(fruit, "banana tart", mode=Mode.TEXT_SEARCH)
        assert answer.ids == ["n4", "n3"]
        assert answer.scores[0] > answer.scores[1] > 0
        assert calls.ask(fruit, "apple", mode=Mode.TEXT_SEARCH).ids == ["n2", "n1"]

    def test_text_search_returns_nothing_for_unknown_words(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """A node without any of the words is no hit, however large k is."""
        self.require("supports_text_search")
        for text in ("zebra", "", "   ", "?!", "zebra quagga"):
            assert calls.ask(fruit, text, mode=Mode.TEXT_SEARCH, k=100).ids == [], text

    def test_text_search_needs_no_vector(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """LlamaIndex gives none where the store says that it needs none."""
        self.require("supports_text_search")
        query = VectorStoreQuery(query_str="plum", similarity_top_k=2, mode=Mode.TEXT_SEARCH)
        assert calls.query(fruit, query).ids == ["n5"]

    def test_text_search_keeps_identifiers_apart(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """The node with exactly the asked-for identifier stands first."""
        self.require("supports_text_search")
        texts = ["E-504", "E-505", "B-504", "v2.1.3", "v2.1.4", "C++", "C#", "user_id", "88-210"]
        calls.add(store, [make_node(f"n{i}", f"code {text} here") for i, text in enumerate(texts)])
        for i, text in enumerate(texts):
            assert calls.ask(store, text, mode=Mode.TEXT_SEARCH).ids[0] == f"n{i}", text

    def test_hybrid_with_alpha_one_is_the_dense_order(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Words have no weight."""
        self.require("supports_hybrid")
        query = "apple banana plum"
        dense = calls.ask(fruit, query, embedding=embed("plum"))
        hybrid = calls.ask(fruit, query, mode=Mode.HYBRID, embedding=embed("plum"), alpha=1.0)
        assert hybrid.ids == dense.ids

    def test_hybrid_with_alpha_zero_is_the_order_of_text_search(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """0 is a weight, not a missing value."""
        self.require("supports_hybrid", "supports_text_search")
        text = calls.ask(fruit, "banana tart", mode=Mode.TEXT_SEARCH)
        hybrid = calls.ask(
            fruit, "banana tart", mode=Mode.HYBRID, embedding=embed("plum"), alpha=0.0
        )
        assert hybrid.ids == text.ids

    def test_hybrid_finds_what_either_search_finds(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Without alpha too."""
        self.require("supports_hybrid")
        for alpha in (None, 0.5):
            ids = calls.ask(
                fruit, "cherry", mode=Mode.HYBRID, embedding=embed("plum"), k=2, alpha=alpha
            ).ids
            assert set(ids) == {"n4", "n5"}, alpha

    def test_an_alpha_outside_zero_to_one_is_an_error(
        self, fruit: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """It is a weight."""
        self.require("supports_hybrid")
        for alpha in (-0.1, 1.1, float("nan")):
            with pytest.raises(self.query_error):
                calls.ask(fruit, "apple", mode=Mode.HYBRID, alpha=alpha)

    def test_mmr_remembers_all_earlier_picks(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """A near-copy of the first pick does not come back as the third."""
        self.require("supports_mmr")
        self._add_copies(store, calls)
        answer = calls.ask(store, "x", mode=Mode.MMR, k=3, embedding=vector(1.0), mmr_threshold=0.5)
        assert answer.ids == ["p", "r", "s"]

    def test_mmr_threshold_can_be_a_keyword(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """That is how LlamaIndex's retriever hands over ``vector_store_kwargs``."""
        self.require("supports_mmr")
        self._add_copies(store, calls)
        query = VectorStoreQuery(
            query_embedding=vector(1.0), query_str="x", similarity_top_k=2, mode=Mode.MMR
        )
        assert calls.query(store, query, mmr_threshold=1.0).ids == ["p", "p2"]
        assert calls.query(store, query, mmr_threshold=0.5).ids == ["p", "r"]

    def test_mmr_at_threshold_one_is_the_dense_order(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """Only relevance counts."""
        self.require("supports_mmr")
        self._add_copies(store, calls)
        answer = calls.ask(store, "x", mode=Mode.MMR, k=4, embedding=vector(1.0), mmr_threshold=1.0)
        assert answer.ids == ["p", "p2", "r", "s"]

    def test_mmr_at_threshold_zero_avoids_what_was_picked(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """0 is a weight, not a missing value: only diversity counts after the first pick."""
        self.require("supports_mmr")
        vectors = {
            "a": vector(1.0, 0.0),
            "b": vector(0.9, 0.1),
            "c": vector(0.5, 0.5),
            "d": vector(0.1, 0.9),
        }
        calls.add(store, [make_node(name, embedding=values) for name, values in vectors.items()])
        answer = calls.ask(store, "x", mode=Mode.MMR, k=2, embedding=vector(1.0), mmr_threshold=0.0)
        assert answer.ids == ["a", "d"]

    @staticmethod
    def _add_copies(store: BasePydanticVectorStore, calls: Calls) -> None:
        vectors = {
            "p": vector(0.92, 0.39, 0.0, 0.0),
            "p2": vector(0.90, 0.43, 0.0, 0.0),
            "r": vector(0.72, 0.0, 0.69, 0.0),
            "s": vector(0.66, 0.0, 0.0, 0.75),
        }
        calls.add(store, [make_node(name, embedding=values) for name, values in vectors.items()])


#: Modes whose absence a store declares by a flag.
MODES_OF_CONTRACT = (Mode.TEXT_SEARCH, Mode.HYBRID, Mode.MMR)
