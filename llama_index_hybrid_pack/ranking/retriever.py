"""A retriever that runs the ranking chain, for code that takes a retriever only."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from time import perf_counter

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index_hybrid_pack.observability.trace import RetrievalTrace
from llama_index_hybrid_pack.retrieval.foreign import aretrieve
from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
from llama_index_hybrid_pack.retrieval.scope import with_filters
from llama_index_hybrid_pack.retrieval.store import check_top_k

dispatcher = get_dispatcher(__name__)


class RankingRetriever(BaseRetriever):
    """Retrieves, then ranks: the whole funnel behind LlamaIndex's retriever interface.

    Use it where a component takes a retriever and no postprocessors (agents, evaluators,
    routers). A query engine that takes both can use the parts directly.

    Args:
        retriever: Finds the candidates.
        postprocessors: Run in order on the candidates; an empty sequence changes nothing.
    """

    def __init__(
        self, retriever: BaseRetriever, postprocessors: Sequence[BaseNodePostprocessor]
    ) -> None:
        super().__init__()
        self.retriever = retriever
        self.postprocessors = tuple(postprocessors)
        self.top_k: int | None = None

    @classmethod
    def class_name(cls) -> str:
        """Return the name used in traces."""
        return "RankingRetriever"

    def _get_prompt_modules(self) -> PromptMixinType:
        return {"retriever": self.retriever}

    def scoped(
        self, *, filters: MetadataFilters | None = None, top_k: int | None = None
    ) -> RankingRetriever:
        """Return a view of this retriever for one call; this one stays as it is.

        Args:
            filters: Must be passed by the candidates, besides what the retriever filters already.
            top_k: Most hits after ranking; ``None`` = as the chain gives them.

        Returns:
            A cheap copy over the same parts.

        Raises:
            FilterError: If the retriever cannot apply the filter.
        """
        view = copy.copy(self)
        view.retriever = with_filters(self.retriever, filters)
        if top_k is not None:
            view.top_k = check_top_k(top_k)
        return view

    def retrieve_with_trace(self, query: QueryType) -> tuple[list[NodeWithScore], RetrievalTrace]:
        """Retrieve and rank, and return the way of each hit beside the hits.

        Args:
            query: The query.

        Returns:
            The hits, as :meth:`retrieve` gives them, and their trace.
        """
        start = perf_counter()
        bundle = QueryBundle(query) if isinstance(query, str) else query
        if isinstance(self.retriever, HybridFusionRetriever):
            candidates, trace = self.retriever.retrieve_with_trace(bundle)
        else:
            candidates = self.retriever.retrieve(bundle)
            trace = RetrievalTrace.from_hits(bundle.query_str, candidates)
        hits = self._rank(candidates, bundle)
        return hits, trace.followed_by(hits, latency_ms=(perf_counter() - start) * 1000.0)

    async def aretrieve_with_trace(
        self, query: QueryType
    ) -> tuple[list[NodeWithScore], RetrievalTrace]:
        """Retrieve with a trace without blocking the event loop."""
        start = perf_counter()
        bundle = QueryBundle(query) if isinstance(query, str) else query
        if isinstance(self.retriever, HybridFusionRetriever):
            candidates, trace = await self.retriever.aretrieve_with_trace(bundle)
        else:
            candidates = await aretrieve(self.retriever, bundle)
            trace = RetrievalTrace.from_hits(bundle.query_str, candidates)
        hits = await self._arank(candidates, bundle)
        return hits, trace.followed_by(hits, latency_ms=(perf_counter() - start) * 1000.0)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._rank(self.retriever.retrieve(query_bundle), query_bundle)

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await self._arank(await aretrieve(self.retriever, query_bundle), query_bundle)

    def _rank(self, hits: list[NodeWithScore], query_bundle: QueryBundle) -> list[NodeWithScore]:
        for postprocessor in self.postprocessors:
            hits = postprocessor.postprocess_nodes(hits, query_bundle=query_bundle)
        return hits[: self.top_k]

    async def _arank(
        self, hits: list[NodeWithScore], query_bundle: QueryBundle
    ) -> list[NodeWithScore]:
        for postprocessor in self.postprocessors:
            hits = await postprocessor.apostprocess_nodes(hits, query_bundle=query_bundle)
        return hits[: self.top_k]
