"""A filter for one call, pushed into any retriever, or refused."""

from __future__ import annotations

import copy
from typing import Protocol, cast, runtime_checkable

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.vector_stores.types import MetadataFilters

from llama_index_hybrid_pack.errors import FilterError
from llama_index_hybrid_pack.indexing.filters import combine


@runtime_checkable
class Scopable(Protocol):
    """A retriever that can be narrowed for one call without being changed."""

    def scoped(
        self, *, filters: MetadataFilters | None = None, top_k: int | None = None
    ) -> BaseRetriever:
        """Return a view that also applies ``filters`` and returns ``top_k`` hits."""


def with_filters(retriever: BaseRetriever, filters: MetadataFilters | None) -> BaseRetriever:
    """Return a view of a retriever that also applies a filter before ranking.

    Args:
        retriever: One of ours, LlamaIndex's ``VectorIndexRetriever``, or any that has a method
            ``scoped(filters=…)``.
        filters: Joined with the retriever's own by AND; ``None`` = the retriever as it is.

    Returns:
        A view; the retriever itself is not changed.

    Raises:
        FilterError: If the retriever cannot apply a filter. It is never left unfiltered.
    """
    if filters is None:
        return retriever
    if isinstance(retriever, Scopable):
        return retriever.scoped(filters=filters)
    if isinstance(retriever, VectorIndexRetriever):
        view = copy.copy(retriever)
        view._filters = combine(retriever._filters, filters)
        return cast("BaseRetriever", view)
    msg = (
        f"{type(retriever).__name__} cannot apply a filter for one call, so the search is refused "
        "rather than run unfiltered. Give the retriever its filters when it is made, or a method "
        "scoped(filters=...)."
    )
    raise FilterError(msg)
