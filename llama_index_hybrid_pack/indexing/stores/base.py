"""What every hybrid store offers: two legs under one filter, and nodes only for what survives."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import BasePydanticVectorStore, MetadataFilters
from numpy.typing import NDArray

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.metadata import ScoreScale

#: Name of the leg that searches by vector.
DENSE = "dense"
#: Name of the leg that searches by words.
BM25 = "bm25"


@dataclass(frozen=True, kw_only=True)
class SearchRequest:
    """One search on one or both legs of a store, under one filter.

    Args:
        query_embedding: Query vector, shape ``(dimension,)``; ``None`` leaves the dense leg out.
        query_str: Query text for BM25; ``None`` leaves the lexical leg out.
        dense_top_k: Number of hits of the dense leg, at least 1.
        lexical_top_k: Number of hits of the lexical leg, at least 1.
        filters: Applied inside both searches, before ranking.
        node_ids: Only these nodes may be returned; ``None`` means all, an empty list means none.
        doc_ids: Only nodes of these documents may be returned; same convention.
    """

    query_embedding: Sequence[float] | NDArray[np.float32] | None = None
    query_str: str | None = None
    dense_top_k: int = 30
    lexical_top_k: int = 30
    filters: MetadataFilters | None = None
    node_ids: Sequence[str] | None = None
    doc_ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        for name in ("dense_top_k", "lexical_top_k"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                msg = f"{name} is {value!r}. It must be a whole number of at least 1."
                raise ConfigError(msg)


@dataclass(frozen=True)
class LegHits:
    """Ranked hits of one leg: score descending, then node id; fewer than asked for is fine."""

    ids: list[str]
    scores: list[float]
    scale: ScoreScale


@dataclass(frozen=True)
class SearchResult(ABC):
    """Ranked ids per leg; nodes are built only for the ids that a caller keeps."""

    legs: Mapping[str, LegHits] = field(default_factory=dict)

    @abstractmethod
    def nodes(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        """Build the nodes of these ids; an id that was deleted meanwhile is left out."""


class HybridStore(BasePydanticVectorStore, ABC):
    """A LlamaIndex vector store that also searches by words, and both under one filter.

    Beyond LlamaIndex's interface (``add``, ``query``, ``delete``, ``delete_nodes``,
    ``get_nodes``, ``clear`` and their async twins) a hybrid store runs both legs in one call.
    """

    stores_text: bool = True
    is_embedding_query: bool = True

    @abstractmethod
    def search(self, request: SearchRequest) -> SearchResult:
        """Run the legs that the request asks for and return ranked ids.

        Args:
            request: What to search for.

        Returns:
            Hits per leg under the names ``"dense"`` (cosine, [-1, 1]) and ``"bm25"`` (above 0).

        Raises:
            FilterError: If the filter cannot be honoured exactly.
            EmbeddingError: If the query vector does not fit the store.
        """

    async def asearch(self, request: SearchRequest) -> SearchResult:
        """Run :meth:`search` without blocking the event loop."""
        return await asyncio.to_thread(self.search, request)

    @abstractmethod
    def apply(self, nodes: Sequence[BaseNode], *, delete_node_ids: Sequence[str] = ()) -> None:
        """Store nodes and delete others in one commit: readers see all of it or nothing.

        Args:
            nodes: Nodes with embeddings; one whose id is in the store replaces it.
            delete_node_ids: Nodes to delete; unknown ids are ignored, an id that is also among
                ``nodes`` is stored.

        Raises:
            EmbeddingError: If a vector cannot be used; nothing is changed.
            StoreWriteError: If the store cannot be written; nothing is changed.
        """

    @abstractmethod
    def nodes_of(self, doc_ids: Sequence[str]) -> list[BaseNode]:
        """Return every node of these documents, ordered by node id, without embeddings."""

    @abstractmethod
    def get_embeddings(self, node_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return stored unit vectors by node id; unknown ids are left out."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of nodes in the store."""

    @abstractmethod
    def known_fields(self) -> frozenset[str]:
        """Return every metadata field that at least one node has or the schema declares."""

    @property
    @abstractmethod
    def generation(self) -> int:
        """Number of the last committed change; grows with every write."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return sizes, settings, engine choices and generation, for people and for logs."""
