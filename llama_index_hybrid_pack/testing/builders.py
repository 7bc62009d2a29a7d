"""Short ways to write nodes, vectors and filters in tests."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from llama_index.core.schema import NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_hybrid_pack.testing.fakes import HashEmbedding

#: Length of the vectors that these helpers make.
DIMENSION = 32

_Member = MetadataFilter | MetadataFilters


@lru_cache(maxsize=1)
def embed_model() -> HashEmbedding:
    """Return the embedding model whose vectors :func:`embed` gives."""
    return HashEmbedding(dimensions=DIMENSION)


def embed(text: str) -> list[float]:
    """Return the unit vector of a text: equal words give near vectors.

    Args:
        text: Any text.

    Returns:
        :data:`DIMENSION` floats.
    """
    return embed_model().get_text_embedding(text)


def vector(*leading: float) -> list[float]:
    """Return a vector with these leading values and zeros after them.

    Args:
        *leading: At most :data:`DIMENSION` values.

    Returns:
        :data:`DIMENSION` floats.

    Example:
        >>> vector(0.6, 0.8)[:3]
        [0.6, 0.8, 0.0]
    """
    return [*map(float, leading), *[0.0] * (DIMENSION - len(leading))]


def make_node(
    node_id: str,
    text: str | None = None,
    *,
    embedding: Sequence[float] | None = None,
    doc_id: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> TextNode:
    """Return a node that a vector store can take.

    Args:
        node_id: Id of the node; also its text where none is given.
        text: Text of the node.
        embedding: Vector; by default the text's own from :func:`embed`.
        doc_id: Id of the document that the node comes from.
        metadata: The node's metadata.

    Returns:
        A new node.

    Example:
        >>> make_node("a", "refund", doc_id="handbook").ref_doc_id
        'handbook'
    """
    content = node_id if text is None else text
    relationships = {}
    if doc_id is not None:
        relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id=doc_id)
    return TextNode(
        id_=node_id,
        text=content,
        embedding=embed(content) if embedding is None else list(embedding),
        metadata=dict(metadata or {}),
        relationships=relationships,
    )


def condition(key: str, value: Any, operator: str | FilterOperator = "==") -> MetadataFilter:
    """Return one condition of a filter.

    Args:
        key: Metadata field.
        value: What to compare with.
        operator: A value of LlamaIndex's ``FilterOperator``.

    Returns:
        A member for :func:`all_of`, :func:`any_of` or :func:`none_of`.
    """
    return MetadataFilter(key=key, value=value, operator=FilterOperator(operator))


def where(key: str, value: Any, operator: str | FilterOperator = "==") -> MetadataFilters:
    """Return a filter of one condition.

    Args:
        key: Metadata field.
        value: What to compare with.
        operator: A value of LlamaIndex's ``FilterOperator``.

    Returns:
        A filter.

    Example:
        >>> where("year", 2020, ">=").filters[0].operator.value
        '>='
    """
    return all_of(condition(key, value, operator))


def all_of(*members: _Member) -> MetadataFilters:
    """Return a filter that holds where all members hold."""
    return MetadataFilters(filters=[*members], condition=FilterCondition.AND)


def any_of(*members: _Member) -> MetadataFilters:
    """Return a filter that holds where at least one member holds."""
    return MetadataFilters(filters=[*members], condition=FilterCondition.OR)


def none_of(*members: _Member) -> MetadataFilters:
    """Return a filter that holds where no member holds."""
    return MetadataFilters(filters=[*members], condition=FilterCondition.NOT)
