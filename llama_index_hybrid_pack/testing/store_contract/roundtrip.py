"""Store contract: a node comes back as it went in."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.schema import (
    BaseNode,
    IndexNode,
    NodeRelationship,
    ObjectType,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import BasePydanticVectorStore

from llama_index_hybrid_pack.testing.builders import embed
from llama_index_hybrid_pack.testing.store_contract.base import (
    Calls,
    ContractBase,
    Mode,
    each_mode,
)

_METADATA: dict[str, Any] = {
    "header path": ["Billing", "Refunds"],
    "id": "mine",
    "text": "not the node's text",
    "page-no": 7,
    "naïve": "日本語 🙂",
    "nested": {"deep": {"list": [1, 2.5, None, True, {"x": []}]}, "empty": {}},
    "mixed": [1, "two", None, False],
    "nothing": None,
    "empty": "",
    "large": 2**53 + 1,
    "small": 1e-300,
    "whole": 2.0,
    "truth": True,
    "doc_id": "not the document",
    "_private": "kept",
    "quote'\"": 'it\'s "quoted"\n\ttab \\ backslash',
}


def _text_node() -> TextNode:
    return TextNode(
        id_="full",
        text="Refunds take\n ten days.\t\U0001f642 Straße",
        embedding=embed("refunds"),
        metadata=_METADATA,
        excluded_embed_metadata_keys=["id", "large"],
        excluded_llm_metadata_keys=["nested"],
        metadata_template="{key} => {value}",
        metadata_separator=" | ",
        text_template="<{metadata_str}>\n{content}",
        start_char_idx=10,
        end_char_idx=40,
        mimetype="text/markdown",
        relationships={
            NodeRelationship.SOURCE: RelatedNodeInfo(
                node_id="handbook",
                node_type=ObjectType.DOCUMENT,
                metadata={"file": "h.md"},
                hash="abc",
            ),
            NodeRelationship.PREVIOUS: RelatedNodeInfo(node_id="before", node_type=ObjectType.TEXT),
            NodeRelationship.NEXT: RelatedNodeInfo(node_id="after"),
            NodeRelationship.PARENT: RelatedNodeInfo(node_id="above"),
            NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c1"), RelatedNodeInfo(node_id="c2")],
        },
    )


def _index_node() -> IndexNode:
    return IndexNode(
        id_="index",
        text="refunds table",
        index_id="table-7",
        embedding=embed("refunds"),
        metadata={"kind": "table"},
    )


def _fields(node: BaseNode) -> dict[str, Any]:
    fields = node.to_dict()
    fields.pop("embedding", None)
    return fields


class RoundTripContract(ContractBase):
    """What must hold for returned nodes."""

    @pytest.mark.parametrize("original", [_text_node(), _index_node()], ids=["text", "index"])
    def test_get_nodes_gives_the_whole_node(
        self, store: BasePydanticVectorStore, calls: Calls, original: BaseNode
    ) -> None:
        """Class, text, metadata, relationships, templates, offsets, excluded keys."""
        self.require("supports_get_nodes")
        calls.add(store, [original])
        (found,) = calls.get_nodes(store, node_ids=[original.node_id])
        assert type(found) is type(original)
        assert _fields(found) == _fields(original)
        assert found.hash == original.hash

    @each_mode
    @pytest.mark.parametrize("original", [_text_node(), _index_node()], ids=["text", "index"])
    def test_a_query_gives_the_whole_node(
        self, store: BasePydanticVectorStore, calls: Calls, original: BaseNode, mode: Mode
    ) -> None:
        """The same in every mode."""
        self.require("supports_get_nodes")
        self.require_mode(mode)
        calls.add(store, [original])
        (found,) = calls.ask(store, "refunds", mode=mode).nodes
        assert type(found) is type(original)
        assert _fields(found) == _fields(original)

    def test_types_of_metadata_values_are_kept(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """A boolean is no number and a decimal no whole number after the round trip."""
        self.require("supports_get_nodes")
        calls.add(store, [_text_node()])
        (found,) = calls.get_nodes(store, node_ids=["full"])
        assert {key: type(value) for key, value in found.metadata.items()} == {
            key: type(value) for key, value in _METADATA.items()
        }
        assert list(found.metadata) == list(_METADATA)

    def test_equal_texts_stay_two_nodes(self, store: BasePydanticVectorStore, calls: Calls) -> None:
        """Identity is the node id, not the text."""
        nodes = [
            TextNode(
                id_=node_id,
                text="same words",
                embedding=embed("same words"),
                relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id=f"doc-{node_id}")},
            )
            for node_id in ("1", "2")
        ]
        calls.add(store, nodes)
        for mode in self.modes():
            assert calls.ask(store, "same words", mode=mode).ids == ["1", "2"], mode

    def test_a_node_without_text_is_kept(
        self, store: BasePydanticVectorStore, calls: Calls
    ) -> None:
        """It has a vector, so it can be found by that."""
        calls.add(store, [TextNode(id_="blank", text="", embedding=embed("apple"))])
        assert calls.ask(store, "apple").ids == ["blank"]

    def test_a_long_text_is_kept(self, store: BasePydanticVectorStore, calls: Calls) -> None:
        """A megabyte, character by character."""
        self.require("supports_get_nodes")
        text = "Größe 🙂 word " * 80_000
        calls.add(store, [TextNode(id_="long", text=text, embedding=embed("apple"))])
        (found,) = calls.get_nodes(store, node_ids=["long"])
        assert found.get_content() == text
