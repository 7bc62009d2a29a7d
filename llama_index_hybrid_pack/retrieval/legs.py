"""Runs the legs of a fusion side by side: in threads, or on the event loop without blocking it."""

from __future__ import annotations

import asyncio
import contextvars
import math
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import cast

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle

from llama_index_hybrid_pack.errors import (
    AccessDeniedError,
    ConfigError,
    EmbeddingError,
    FilterError,
    MissingExtraError,
    ModelNotFoundError,
)
from llama_index_hybrid_pack.indexing.stores.base import SearchRequest, SearchResult
from llama_index_hybrid_pack.metadata import ScoreScale, stage_scores
from llama_index_hybrid_pack.observability.events import StageEndEvent, dispatcher
from llama_index_hybrid_pack.retrieval.foreign import aretrieve, blocks_loop, is_keyword
from llama_index_hybrid_pack.retrieval.ranked_list import RankedList
from llama_index_hybrid_pack.retrieval.scope import CheckedRetriever
from llama_index_hybrid_pack.retrieval.store import StoreRetriever, embed_query, embedded_texts

# Not for the other legs to cover up: a search that must not run as it stands, and a setup that
# would fail for every query.
_ALWAYS_RAISED = (
    FilterError,
    AccessDeniedError,
    ConfigError,
    EmbeddingError,
    MissingExtraError,
    ModelNotFoundError,
)
# More threads than this cost more than they save; further legs wait for a free one.
_MAX_THREADS = 16


@dataclass(frozen=True)
class Leg:
    """One retriever of a fusion with its name and weight."""

    name: str
    retriever: BaseRetriever
    weight: float = 1.0


@dataclass(frozen=True)
class LegOutcome:
    """What a leg gave: a ranked list, or the error that it raised.

    Args:
        leg: The leg.
        latency_ms: Wall time, the query's embedding included for the leg that waited for it.
        ranked: The list; ``None`` when the leg failed.
        error: What it raised; ``None`` when it did not.
        result: For legs of a store: what builds the nodes of the ids that survive the fusion.
    """

    leg: Leg
    latency_ms: float = 0.0
    ranked: RankedList | None = None
    error: Exception | None = None
    result: SearchResult | None = None


def run_legs(legs: Sequence[Leg], query_bundle: QueryBundle) -> list[LegOutcome]:
    """Run the legs in threads, one search for all legs of one store, and wait for all.

    Args:
        legs: Legs with a weight above 0.
        query_bundle: The query; never written to.

    Returns:
        One outcome per leg, in the given order.

    Raises:
        FilterError: If a leg cannot honour its filter.
        AccessDeniedError: If a leg may not search.
        ConfigError, EmbeddingError, MissingExtraError, ModelNotFoundError: If a leg cannot work
            as it is set up.
    """
    queries = _Queries(query_bundle)
    groups = _group(legs)
    if len(groups) == 1:
        outcomes = _run_group(groups[0], queries)
    else:
        count = min(len(groups), _MAX_THREADS)
        with ThreadPoolExecutor(count, thread_name_prefix="hybrid-pack-leg") as pool:
            # Spans and principals travel in context variables, and each thread needs its own copy.
            futures = [
                pool.submit(contextvars.copy_context().run, _run_group, group, queries)
                for group in groups
            ]
            outcomes = [outcome for future in futures for outcome in future.result()]
    return _in_order(legs, outcomes)


async def arun_legs(legs: Sequence[Leg], query_bundle: QueryBundle) -> list[LegOutcome]:
    """Run the legs like :func:`run_legs`, on the event loop and without blocking it."""
    queries = _Queries(query_bundle)
    found = await asyncio.gather(*(_arun_group(group, queries) for group in _group(legs)))
    return _in_order(legs, [outcome for outcomes in found for outcome in outcomes])


class _Queries:
    """The query for each leg, embedded once per embedding model however many legs share it."""

    def __init__(self, query_bundle: QueryBundle) -> None:
        self._bundle = query_bundle
        self._guard = threading.Lock()
        self._locks: dict[int, threading.Lock] = {}
        self._embedded: dict[int, QueryBundle] = {}

    def plain(self) -> QueryBundle:
        """Return a copy: LlamaIndex's retrievers write the embedding into what they are given."""
        return replace(self._bundle)

    def embedded(self, model: BaseEmbedding | None) -> QueryBundle:
        """Return a copy with the embedding of this model; the first caller computes it."""
        key = id(model)
        with self._guard:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._embedded:
                self._embedded[key] = embed_query(self._bundle, model)
            return replace(self._embedded[key])


def _group(legs: Sequence[Leg]) -> list[list[Leg]]:
    """Put legs that one search of a store can serve together."""
    groups: list[list[Leg]] = []
    for leg in legs:
        group = next((group for group in groups if _shares_search(group, leg)), None)
        if group is None:
            groups.append([leg])
        else:
            group.append(leg)
    return groups


def _shares_search(group: list[Leg], leg: Leg) -> bool:
    first, other = group[0].retriever, leg.retriever
    if type(first) is not StoreRetriever or type(other) is not StoreRetriever:
        return False
    return (
        first.store is other.store
        and first.filters == other.filters
        and first.node_ids == other.node_ids
        and first.doc_ids == other.doc_ids
        and other.leg not in {_store_retriever(member).leg for member in group}
    )


def _in_order(legs: Sequence[Leg], outcomes: Sequence[LegOutcome]) -> list[LegOutcome]:
    by_name = {outcome.leg.name: outcome for outcome in outcomes}
    ordered = [by_name[leg.name] for leg in legs]
    for outcome in ordered:
        if isinstance(outcome.error, _ALWAYS_RAISED):
            raise outcome.error
    return ordered


def _store_retriever(leg: Leg) -> StoreRetriever:
    return cast("StoreRetriever", leg.retriever)


def _run_group(group: list[Leg], queries: _Queries) -> list[LegOutcome]:
    start = perf_counter()
    leg = group[0]
    if type(leg.retriever) is StoreRetriever:
        requests, failed = _requests(group, queries)
        try:
            result = leg.retriever.store.search(_merge(requests)) if requests else None
        except Exception as error:
            if _may_be_one_legs(error, group):
                return [found for member in group for found in _run_group([member], queries)]
            return _failed(group, error, start)
        return _store_outcomes(group, requests, result, failed, start)
    try:
        hits = leg.retriever.retrieve(_query_for(leg.retriever, queries))
    except Exception as error:
        return _failed(group, error, start)
    return [_hits_outcome(leg, hits, start)]


async def _arun_group(group: list[Leg], queries: _Queries) -> list[LegOutcome]:
    start = perf_counter()
    leg = group[0]
    if type(leg.retriever) is StoreRetriever:
        requests, failed = await asyncio.to_thread(_requests, group, queries)
        try:
            store = leg.retriever.store
            result = await store.asearch(_merge(requests)) if requests else None
        except Exception as error:
            if _may_be_one_legs(error, group):
                alone = await asyncio.gather(*(_arun_group([one], queries) for one in group))
                return [found for outcomes in alone for found in outcomes]
            return _failed(group, error, start)
        return _store_outcomes(group, requests, result, failed, start)
    if blocks_loop(leg.retriever):
        return await asyncio.to_thread(_run_group, group, queries)
    try:
        bundle = await asyncio.to_thread(_query_for, leg.retriever, queries)
        hits = await aretrieve(leg.retriever, bundle)
    except Exception as error:
        return _failed(group, error, start)
    return [_hits_outcome(leg, hits, start)]


def _may_be_one_legs(error: Exception, group: list[Leg]) -> bool:
    """Whether the legs of a failed joint search are worth a search each."""
    return len(group) > 1 and not isinstance(error, _ALWAYS_RAISED)


def _query_for(retriever: BaseRetriever, queries: _Queries) -> QueryBundle:
    inner = retriever.retriever if isinstance(retriever, CheckedRetriever) else retriever
    if isinstance(inner, VectorIndexRetriever) and inner._needs_embedding():
        return queries.embedded(inner._embed_model)
    return queries.plain()


def searched_texts(retriever: BaseRetriever, query_bundle: QueryBundle) -> tuple[str, ...]:
    """Return the texts that a leg searches with.

    Args:
        retriever: The leg's retriever.
        query_bundle: The query.

    Returns:
        The texts that are embedded for a dense leg, none when the query brings its vector; for
        any other leg the query itself.
    """
    inner = retriever.retriever if isinstance(retriever, CheckedRetriever) else retriever
    if isinstance(inner, VectorIndexRetriever):
        dense = inner._needs_embedding()
    else:
        dense = isinstance(inner, StoreRetriever) and inner.needs_embedding
    if not dense:
        return (query_bundle.query_str,)
    return () if query_bundle.embedding is not None else tuple(embedded_texts(query_bundle))


def _requests(
    group: list[Leg], queries: _Queries
) -> tuple[dict[str, SearchRequest], dict[str, Exception]]:
    """Return the request per leg name, and what failed before there was one."""
    requests: dict[str, SearchRequest] = {}
    failed: dict[str, Exception] = {}
    for leg in group:
        retriever = _store_retriever(leg)
        try:
            embed = retriever.needs_embedding
            bundle = queries.embedded(retriever.embed_model) if embed else queries.plain()
            request = retriever.request(bundle)
        except Exception as error:
            failed[leg.name] = error
            continue
        if request is not None:
            requests[leg.name] = request
    return requests, failed


def _merge(requests: dict[str, SearchRequest]) -> SearchRequest:
    """Join requests over one store and one filter, each with another leg, into one search."""
    merged, *others = requests.values()
    for other in others:
        if other.query_str is None:
            merged = replace(
                merged, query_embedding=other.query_embedding, dense_top_k=other.dense_top_k
            )
        else:
            merged = replace(merged, query_str=other.query_str, lexical_top_k=other.lexical_top_k)
    return merged


def _failed(group: list[Leg], error: Exception, start: float) -> list[LegOutcome]:
    return [LegOutcome(leg, _since(start), error=error) for leg in group]


def _since(start: float) -> float:
    return (perf_counter() - start) * 1000.0


def _store_outcomes(
    group: list[Leg],
    requests: dict[str, SearchRequest],
    result: SearchResult | None,
    failed: dict[str, Exception],
    start: float,
) -> list[LegOutcome]:
    outcomes: list[LegOutcome] = []
    for leg in group:
        if leg.name in failed:
            outcomes.extend(_failed([leg], failed[leg.name], start))
            continue
        ranked = RankedList(leg.name, [], [], weight=leg.weight)
        if result is not None and leg.name in requests:
            hits = result.legs[_store_retriever(leg).leg]
            ranked = RankedList(leg.name, hits.ids, hits.scores, hits.scale, leg.weight)
        outcome = LegOutcome(leg, _since(start), ranked, result=result)
        outcomes.append(outcome)
        # The retriever itself was not called, so it could not say this.
        dispatcher.event(
            StageEndEvent(
                stage=_store_retriever(leg).leg,
                latency_ms=outcome.latency_ms,
                n_out=len(ranked.ids),
            )
        )
    return outcomes


def _hits_outcome(leg: Leg, hits: Sequence[NodeWithScore], start: float) -> LegOutcome:
    keyword = is_keyword(leg.retriever)
    kept: dict[str, NodeWithScore] = {}
    scores: list[float | None] = []
    for hit in hits:
        score = None if hit.score is None or not math.isfinite(hit.score) else float(hit.score)
        # BM25Retriever fills its list with nodes that hold no word of the query, at 0.
        if (keyword and score is not None and score <= 0) or hit.node.node_id in kept:
            continue
        kept[hit.node.node_id] = hit
        scores.append(score)
    ranked = RankedList(
        name=leg.name,
        ids=list(kept),
        scores=scores,
        scale=_scale(kept.values(), ScoreScale.BM25 if keyword else ScoreScale.UNKNOWN),
        weight=leg.weight,
        nodes={name: hit.node for name, hit in kept.items()},
    )
    return LegOutcome(leg, _since(start), ranked)


def _scale(hits: Iterable[NodeWithScore], otherwise: ScoreScale) -> ScoreScale:
    """Return the scale that the first hit's record declares for its very score."""
    for hit in hits:
        last = next(reversed(stage_scores(hit.node).values()), None)
        return ScoreScale(last["scale"]) if last and last["score"] == hit.score else otherwise
    return otherwise
