"""What holds for one call, pushed into any retriever, or refused."""

from __future__ import annotations

import copy
from typing import Protocol, cast, runtime_checkable

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import FilterCondition, MetadataFilter, MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index_hybrid_pack.errors import FilterError
from llama_index_hybrid_pack.indexing.filters import combine, compile_predicate
from llama_index_hybrid_pack.indexing.stores.base import HybridStore
from llama_index_hybrid_pack.retrieval.foreign import aretrieve

dispatcher = get_dispatcher(__name__)

# What stores of LlamaIndex raise for operators and nesting that they do not know.
_REFUSALS = (ValueError, TypeError, NotImplementedError)


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
    if not isinstance(retriever, VectorIndexRetriever):
        msg = (
            f"{type(retriever).__name__} cannot apply a filter for one call, so the search is "
            "refused rather than run unfiltered. Give the retriever its filters when it is made, "
            "or a method scoped(filters=...)."
        )
        raise FilterError(msg)
    view = copy.copy(retriever)
    view._filters = _flat(combine(retriever._filters, filters))
    if isinstance(retriever._vector_store, HybridStore):
        return cast("BaseRetriever", view)
    return CheckedRetriever(view, filters)


def with_depth(retriever: BaseRetriever, top_k: int) -> BaseRetriever:
    """Return a view of a retriever that gives at least this many hits, where it can be told to.

    Args:
        retriever: Any retriever; one without ``similarity_top_k`` is returned as it is.
        top_k: Number of hits, at least 1.

    Returns:
        A view, or the retriever itself when it is deep enough.
    """
    depth = getattr(retriever, "similarity_top_k", None)
    if not isinstance(depth, int) or depth >= top_k:
        return retriever
    if isinstance(retriever, Scopable):
        return retriever.scoped(top_k=top_k)
    view = copy.copy(retriever)
    view.similarity_top_k = top_k  # type: ignore[attr-defined]
    return view


class CheckedRetriever(BaseRetriever):
    """A vector index over a store of someone else, whose hits are held against the filter.

    Some stores ignore a filter that they do not know, or part of it. Then nothing is returned.

    Args:
        retriever: Applies the filter already.
        filters: What every hit must pass.
    """

    def __init__(self, retriever: VectorIndexRetriever, filters: MetadataFilters) -> None:
        super().__init__()
        self.retriever = retriever
        self.filters = filters

    @classmethod
    def class_name(cls) -> str:
        """Return the name used in traces."""
        return "CheckedRetriever"

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"retriever": self.retriever}

    @property
    def similarity_top_k(self) -> int:
        """Hits of the retriever under the filter."""
        return self.retriever.similarity_top_k

    def scoped(
        self, *, filters: MetadataFilters | None = None, top_k: int | None = None
    ) -> CheckedRetriever:
        """Return a view with one more filter, or another number of hits."""
        inner = copy.copy(self.retriever)
        if top_k is not None:
            inner.similarity_top_k = top_k
        joined = combine(self.filters, filters) or self.filters
        inner._filters = _flat(combine(inner._filters, filters))
        return CheckedRetriever(inner, joined)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        try:
            hits = self.retriever.retrieve(query_bundle)
        except _REFUSALS as error:
            raise self._refused(error) from error
        return self._checked(hits)

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        try:
            hits = await aretrieve(self.retriever, query_bundle)
        except _REFUSALS as error:
            raise self._refused(error) from error
        return self._checked(hits)

    def _refused(self, error: Exception) -> FilterError:
        store = type(self.retriever._vector_store).__name__
        return FilterError(f"{store} cannot search under this filter: {error}")

    def _checked(self, hits: list[NodeWithScore]) -> list[NodeWithScore]:
        admits = compile_predicate(self.filters)
        wrong = sum(not admits(hit.node.metadata) for hit in hits)
        if wrong:
            msg = (
                f"{type(self.retriever._vector_store).__name__} returned {wrong} of {len(hits)} "
                "nodes that the filter does not admit: it ignores the filter, or reads it in "
                "another way. Nothing is returned. Use a filter that this store honours, or a "
                "store of this package."
            )
            raise FilterError(msg)
        return hits


def _flat(filters: MetadataFilters | None) -> MetadataFilters | None:
    """Write AND inside AND as one: LlamaIndex's own store takes no nested filters."""
    if filters is None:
        return None
    members: list[MetadataFilter | MetadataFilters] = []
    for member in filters.filters:
        inner = _flat(member) if isinstance(member, MetadataFilters) else None
        if inner is not None and _is_and(inner) and _is_and(filters):
            members += inner.filters
        else:
            members.append(member if inner is None else inner)
    return MetadataFilters(filters=members, condition=filters.condition)


def _is_and(filters: MetadataFilters) -> bool:
    return filters.condition in {FilterCondition.AND, None}
