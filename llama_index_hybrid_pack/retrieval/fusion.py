"""Fuses any number of retrievers into one ranking."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any, Literal, get_args

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.prompts.mixin import PromptMixinType
from llama_index.core.schema import IndexNode, NodeWithScore, QueryBundle, QueryType
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index_hybrid_pack.errors import ConfigError, RetrievalError
from llama_index_hybrid_pack.indexing.stores.base import HybridStore
from llama_index_hybrid_pack.metadata import annotate
from llama_index_hybrid_pack.observability.events import emit_fallback, stage
from llama_index_hybrid_pack.observability.trace import LegTrace, RetrievalTrace
from llama_index_hybrid_pack.retrieval.legs import (
    Leg,
    LegOutcome,
    arun_legs,
    run_legs,
    searched_texts,
)
from llama_index_hybrid_pack.retrieval.naming import leg_names
from llama_index_hybrid_pack.retrieval.ranked_list import (
    FusionMode,
    FusionSettings,
    RankedList,
    choose_nodes,
    fuse,
    leg_scores,
)
from llama_index_hybrid_pack.retrieval.scope import with_depth, with_filters
from llama_index_hybrid_pack.retrieval.store import StoreRetriever, check_top_k
from llama_index_hybrid_pack.scoring.fusion import RRF_K, check_rrf_k, check_weights, is_number
from llama_index_hybrid_pack.scoring.normalization import NORMALIZATIONS, Normalization

dispatcher = get_dispatcher(__name__)
logger = logging.getLogger(__name__)

OnError = Literal["fallback", "raise"]


class HybridFusionRetriever(BaseRetriever):
    """Asks several retrievers at once and fuses their lists by node id; needs no LLM.

    Use it over a hybrid store (:meth:`from_store`), or over any LlamaIndex retrievers, such as a
    vector index beside :class:`~llama_index_hybrid_pack.IdentifierBM25Retriever`. Legs run in
    parallel, the query is embedded once for all legs that share a model, and legs over one store
    are served by one search.

    Args:
        retrievers: At least one. The order of a retriever's hits is its ranking.
        mode: ``"weighted"``: convex combination of normalised scores; keeps how much better a
            hit is. ``"rrf"``: reciprocal rank fusion; needs no scores.
        weights: One per retriever, at least 0; 0 = the retriever is not asked at all. ``None`` =
            all equal.
        rrf_k: Constant of reciprocal rank fusion, at least 0; 60 is the paper's.
        normalization: Makes scores comparable in weighted mode.
        similarity_top_k: Hits after fusion, at least 1.
        on_error: ``"fallback"``: a failing leg is left out, with an event and a line in the
            trace. ``"raise"``: the query fails with the leg's own error. A filter or a permission
            that cannot be honoured always raises.
        names: One per retriever, for trace, stage record and prompts (``"name:prompt"``); chosen
            by kind when left out.
        callback_manager: LlamaIndex's callbacks.
        objects: Index nodes to follow when they are found.
        object_map: Objects to follow, by id of the index node.
        verbose: Passed to LlamaIndex's recursion.

    Raises:
        ConfigError: If an option cannot be used.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> class Fixed(BaseRetriever):
        ...     def __init__(self, *ids):
        ...         super().__init__()
        ...         self.ids = ids
        ...     def _retrieve(self, query_bundle):
        ...         return [NodeWithScore(node=TextNode(id_=i)) for i in self.ids]
        >>> legs = [Fixed("d1", "d2", "d4"), Fixed("d2", "d4", "d1")]
        >>> hits = HybridFusionRetriever(legs, mode="rrf").retrieve("any")
        >>> [(hit.node_id, round(hit.score, 4)) for hit in hits]
        [('d2', 0.0325), ('d1', 0.0323), ('d4', 0.032)]
    """

    def __init__(
        self,
        retrievers: Sequence[BaseRetriever],
        *,
        mode: FusionMode = "weighted",
        weights: Sequence[float] | None = None,
        rrf_k: float = RRF_K,
        normalization: Normalization = "z_score",
        similarity_top_k: int = 30,
        on_error: OnError = "fallback",
        names: Sequence[str] | None = None,
        callback_manager: CallbackManager | None = None,
        objects: list[IndexNode] | None = None,
        object_map: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        super().__init__(
            callback_manager=callback_manager,
            objects=objects,
            object_map=object_map,
            verbose=verbose,
        )
        _check_choice("mode", mode, get_args(FusionMode))
        _check_choice("normalization", normalization, NORMALIZATIONS)
        _check_choice("on_error", on_error, get_args(OnError))
        if not retrievers:
            msg = "There are no retrievers to fuse. Give at least one."
            raise ConfigError(msg)
        shares = check_weights(weights, len(retrievers))
        self.settings = FusionSettings(mode, normalization, check_rrf_k(rrf_k))
        self.similarity_top_k = check_top_k(similarity_top_k)
        self.on_error: OnError = on_error
        self.legs = tuple(
            Leg(name, retriever, share)
            for name, retriever, share in zip(
                leg_names(retrievers, names), retrievers, shares, strict=True
            )
        )
        # Only a view that explains one call has a list here.
        self._outcomes: list[LegOutcome] | None = None

    @classmethod
    def from_store(
        cls,
        store: HybridStore,
        *,
        embed_model: BaseEmbedding | None = None,
        dense_weight: float = 0.5,
        leg_top_k: int = 100,
        mode: FusionMode = "weighted",
        rrf_k: float = RRF_K,
        normalization: Normalization = "z_score",
        similarity_top_k: int = 30,
        on_error: OnError = "fallback",
        filters: MetadataFilters | None = None,
    ) -> HybridFusionRetriever:
        """Fuse the dense and the BM25 leg of one hybrid store.

        Args:
            store: The store; one search serves both legs.
            embed_model: Embeds the query; ``None`` = the one that LlamaIndex's ``Settings`` has
                when a query comes without a vector.
            dense_weight: Share of the dense leg in [0, 1]; BM25 has the rest. At 0 and 1 one leg
                is not searched.
            leg_top_k: Candidates per leg, at least 1.
            mode: See the class.
            rrf_k: See the class.
            normalization: See the class.
            similarity_top_k: Hits after fusion, at least 1.
            on_error: See the class.
            filters: Applied on both legs before ranking.

        Returns:
            The retriever.

        Raises:
            ConfigError: If an option cannot be used.
        """
        if not is_number(dense_weight) or not 0.0 <= dense_weight <= 1.0:
            msg = f"dense_weight is {dense_weight!r}. It is a share between 0 and 1."
            raise ConfigError(msg)
        dense = StoreRetriever(
            store,
            leg="dense",
            similarity_top_k=leg_top_k,
            embed_model=embed_model,
            filters=filters,
        )
        bm25 = StoreRetriever(store, leg="bm25", similarity_top_k=leg_top_k, filters=filters)
        return cls(
            [dense, bm25],
            mode=mode,
            weights=[dense_weight, 1.0 - dense_weight],
            rrf_k=rrf_k,
            normalization=normalization,
            similarity_top_k=similarity_top_k,
            on_error=on_error,
        )

    @classmethod
    def class_name(cls) -> str:
        """Return the name used in traces."""
        return "HybridFusionRetriever"

    def _get_prompt_modules(self) -> PromptMixinType:
        return {leg.name: leg.retriever for leg in self.legs}

    def scoped(
        self, *, filters: MetadataFilters | None = None, top_k: int | None = None
    ) -> HybridFusionRetriever:
        """Return a view of this retriever for one call; this one stays as it is.

        Args:
            filters: Must be passed, on every leg, besides what the legs filter already.
            top_k: Number of fused hits instead of ``similarity_top_k``; legs that give fewer are
                asked for as many.

        Returns:
            A cheap copy over the same legs.

        Raises:
            FilterError: If a leg cannot apply the filter.
        """
        view = copy.copy(self)
        # A leg that is never asked needs no filter.
        view.legs = tuple(
            replace(leg, retriever=with_filters(leg.retriever, filters)) if leg.weight else leg
            for leg in self.legs
        )
        if top_k is not None:
            depth = view.similarity_top_k = check_top_k(top_k)
            view.legs = tuple(
                replace(leg, retriever=with_depth(leg.retriever, depth)) for leg in view.legs
            )
        return view

    def explain(self, query: QueryType) -> RetrievalTrace:
        """Retrieve and return what happened: legs, their ranks and scores, and the fused order.

        Args:
            query: The query.

        Returns:
            A trace that prints as a table.
        """
        return self.retrieve_with_trace(query)[1]

    async def aexplain(self, query: QueryType) -> RetrievalTrace:
        """Explain without blocking the event loop; see :meth:`explain`."""
        return (await self.aretrieve_with_trace(query))[1]

    def retrieve_with_trace(self, query: QueryType) -> tuple[list[NodeWithScore], RetrievalTrace]:
        """Retrieve, and return the trace beside the hits.

        Args:
            query: The query.

        Returns:
            The hits, as :meth:`retrieve` gives them, and their trace.
        """
        start = perf_counter()
        view = self._watched()
        hits = view.retrieve(query)
        return hits, view._trace(query, hits, start)

    async def aretrieve_with_trace(
        self, query: QueryType
    ) -> tuple[list[NodeWithScore], RetrievalTrace]:
        """Retrieve with a trace without blocking the event loop."""
        start = perf_counter()
        view = self._watched()
        hits = await view.aretrieve(query)
        return hits, view._trace(query, hits, start)

    def _watched(self) -> HybridFusionRetriever:
        """Return a view for one call that keeps what its legs gave."""
        view = copy.copy(self)
        view._outcomes = []
        return view

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._fuse(run_legs(self._consulted, query_bundle))

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        outcomes = await arun_legs(self._consulted, query_bundle)
        # Fetching the nodes reads a disk.
        return await asyncio.to_thread(self._fuse, outcomes)

    @property
    def _consulted(self) -> list[Leg]:
        return [leg for leg in self.legs if leg.weight > 0]

    def _fuse(self, outcomes: Sequence[LegOutcome]) -> list[NodeWithScore]:
        if self._outcomes is not None:
            self._outcomes.extend(outcomes)
        lists = self._usable(outcomes)
        with stage("fusion", n_in=sum(len(ranked.ids) for ranked in lists)) as timer:
            fused = fuse(lists, self.settings)[: self.similarity_top_k]
            ids = [name for name, _ in fused]
            nodes = choose_nodes(lists, ids)
            for outcome in outcomes:
                missing = [name for name in ids if name not in nodes]
                if missing and outcome.result is not None:
                    nodes.update(outcome.result.nodes(missing))
            by_leg = leg_scores(lists, ids)
            # A node that was deleted since the search is no hit any more.
            found = [(name, score) for name, score in fused if name in nodes]
            hits = [
                annotate(
                    NodeWithScore(node=nodes[name]),
                    "fusion",
                    score=score,
                    rank=rank,
                    scale=self.settings.scale,
                    extra=by_leg[name],
                )
                for rank, (name, score) in enumerate(found, start=1)
            ]
            timer.n_out = len(hits)
        return hits

    def _usable(self, outcomes: Sequence[LegOutcome]) -> list[RankedList]:
        """Return the lists of the legs that worked, and deal with the others."""
        failed = [outcome for outcome in outcomes if outcome.error is not None]
        if failed and self.on_error == "raise":
            raise failed[0].error  # type: ignore[misc]
        if len(failed) == len(outcomes):
            reasons = "; ".join(f"{outcome.leg.name}: {outcome.error!r}" for outcome in failed)
            msg = f"Every leg of the retrieval failed. {reasons}"
            raise RetrievalError(msg) from failed[0].error
        for outcome in failed:
            if outcome.error is not None:
                # The message may quote a document, so the log has the type only.
                kind = type(outcome.error).__name__
                logger.warning("Leg %s failed (%s); the others stand.", outcome.leg.name, kind)
                emit_fallback(outcome.leg.name, outcome.error, fallback="the other legs")
        return [outcome.ranked for outcome in outcomes if outcome.ranked is not None]

    def _trace(
        self, query: QueryType, hits: Sequence[NodeWithScore], start: float
    ) -> RetrievalTrace:
        bundle = QueryBundle(query) if isinstance(query, str) else query
        legs = [
            LegTrace(
                name=outcome.leg.name,
                weight=outcome.leg.weight,
                hits=0 if outcome.ranked is None else len(outcome.ranked.ids),
                latency_ms=outcome.latency_ms,
                error=None if outcome.error is None else _reason(outcome.error),
                queries=searched_texts(outcome.leg.retriever, bundle),
            )
            for outcome in self._outcomes or ()
        ]
        rrf = self.settings.mode == "rrf"
        how = (
            f"rrf, k {self.settings.rrf_k:g}" if rrf else f"weighted, {self.settings.normalization}"
        )
        return RetrievalTrace.from_hits(
            bundle.query_str,
            hits,
            legs=legs,
            settings={"Fusion": how},
            latency_ms=(perf_counter() - start) * 1000.0,
        )


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _check_choice(name: str, value: object, allowed: Sequence[str]) -> None:
    if value not in allowed:
        msg = f"{name} is {value!r}. It is one of {list(allowed)}."
        raise ConfigError(msg)
