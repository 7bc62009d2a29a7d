"""Both legs of one search, on one committed state."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import MetadataFilters
from numpy.typing import NDArray

from llama_index_hybrid_pack.errors import EmbeddingError, StoreCorruptError
from llama_index_hybrid_pack.indexing.stores.base import (
    BM25,
    DENSE,
    LegHits,
    SearchRequest,
    SearchResult,
)
from llama_index_hybrid_pack.indexing.stores.local.engine import Engine, View
from llama_index_hybrid_pack.indexing.stores.local.postings import DamagedIndexError
from llama_index_hybrid_pack.indexing.stores.local.records import decode, unit
from llama_index_hybrid_pack.indexing.stores.local.rowsets import RowSet, RowSets
from llama_index_hybrid_pack.metadata import ScoreScale

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True)
class LocalSearchResult(SearchResult):
    """Ranked ids per leg, with the store behind them."""

    fetch: Callable[[Sequence[str]], dict[str, BaseNode]] = field(kw_only=True, repr=False)

    def nodes(self, node_ids: Sequence[str]) -> dict[str, BaseNode]:
        """Build the nodes of these ids; an id that was deleted meanwhile is left out."""
        return self.fetch(node_ids)


class Searcher:
    """Searches and fetches through an engine."""

    def __init__(self, engine: Engine, row_sets: RowSets) -> None:
        self._engine = engine
        self._row_sets = row_sets

    def search(self, request: SearchRequest) -> dict[str, LegHits]:
        """Run the legs that the request asks for."""
        query = None if request.query_embedding is None else checked_query(request.query_embedding)
        try:
            return self._search(request, query)
        except DamagedIndexError as error:
            logger.warning("Lexical index of %s failed (%s).", self._engine.path, error)
            self._engine.lexical.discard()
        try:
            return self._search(request, query)
        except DamagedIndexError as error:
            msg = f"The lexical index of {str(self._engine.path)!r} fails again: {error}."
            raise StoreCorruptError(msg) from error

    def _search(
        self, request: SearchRequest, query: NDArray[np.float32] | None
    ) -> dict[str, LegHits]:
        dense, lexical = query is not None, request.query_str is not None
        legs: dict[str, LegHits] = {}
        with self._engine.view(dense=dense, lexical=lexical) as view:
            allowed = self._row_sets.of(
                view.snapshot,
                view.settings.schema,
                filters=request.filters,
                node_ids=request.node_ids,
                doc_ids=request.doc_ids,
            )
            if query is not None:
                legs[DENSE] = _dense(view, query, request.dense_top_k, allowed)
            if request.query_str is not None:
                legs[BM25] = _lexical(view, request.query_str, request.lexical_top_k, allowed)
        return legs

    def fetch(
        self, node_ids: Sequence[str], *, include_embeddings: bool = False
    ) -> dict[str, BaseNode]:
        """Build the stored nodes of these ids, in the order of the ids."""
        with self._engine.view() as view:
            found = view.snapshot.by_node_ids(node_ids, with_vectors=include_embeddings)
        return {
            node_id: decode(*found[node_id])
            for node_id in dict.fromkeys(node_ids)
            if node_id in found
        }

    def get_nodes(
        self,
        *,
        node_ids: Sequence[str] | None = None,
        doc_ids: Sequence[str] | None = None,
        filters: MetadataFilters | None = None,
        include_embeddings: bool = False,
    ) -> list[BaseNode]:
        """Build the nodes that are among the ids and pass the filter."""
        with self._engine.view() as view:
            snapshot = view.snapshot
            found = self._row_sets.of(
                snapshot,
                view.settings.schema,
                filters=filters,
                node_ids=node_ids,
                doc_ids=doc_ids,
            )
            rows = snapshot.rows_after(0) if found is None else found.rows
            stored = list(snapshot.nodes(rows.tolist(), with_vectors=include_embeddings))
        if node_ids is not None:
            place = {node_id: number for number, node_id in enumerate(dict.fromkeys(node_ids))}
            stored.sort(key=lambda item: place[item[0]])
        return [decode(payload, vector) for _, payload, vector in stored]

    def embeddings(self, node_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return unit vectors by node id."""
        with self._engine.view() as view:
            found = view.snapshot.rows_of("node_id", node_ids)
            stored = view.snapshot.vectors(list(found))
        if not stored:
            return {}
        matrix = np.frombuffer(b"".join(stored.values()), dtype=np.float32)
        return {
            found[row]: vector
            for row, vector in zip(stored, unit(matrix.reshape(len(stored), -1)), strict=True)
        }


def checked_query(embedding: Sequence[float] | NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the query as a unit vector.

    Raises:
        EmbeddingError: If it is not one finite vector.
    """
    try:
        with np.errstate(over="ignore"):
            query = np.asarray(embedding, dtype=np.float32)
    except (TypeError, ValueError) as error:
        msg = f"The query embedding is not a list of numbers: {error}."
        raise EmbeddingError(msg) from error
    if query.ndim != 1 or not len(query):
        msg = f"The query embedding has shape {query.shape}. Give one vector."
        raise EmbeddingError(msg)
    if not np.isfinite(query).all():
        msg = "The query embedding holds NaN or infinite values. Embed the query again."
        raise EmbeddingError(msg)
    unit_query: NDArray[np.float32] = unit(query[None, :])[0]
    return unit_query


def _dense(view: View, query: NDArray[np.float32], k: int, allowed: RowSet | None) -> LegHits:
    dimension = view.settings.dimension
    if dimension is not None and len(query) != dimension:
        msg = (
            f"The query embedding has dimension {len(query)}, the store's vectors have "
            f"{dimension}. Use the embedding model that the store was made with."
        )
        raise EmbeddingError(msg)
    if view.dense is None:
        return LegHits([], [], ScoreScale.COSINE)
    rows, scores = view.dense.search(view.snapshot, query, k, allowed)
    listed = rows.tolist()
    ids = view.snapshot.node_ids(listed)
    pairs = [(ids[row], score) for row, score in zip(listed, scores.tolist(), strict=True)]
    return _leg(sorted(pairs, key=_order)[:k], ScoreScale.COSINE)


def _lexical(view: View, text: str, k: int, allowed: RowSet | None) -> LegHits:
    if view.lexical is None:
        return LegHits([], [], ScoreScale.BM25)
    hits = view.lexical.search(
        view.settings.analyzer.query_terms(text),
        k,
        resolve=view.snapshot.node_ids,
        allowed=None if allowed is None else allowed.rows,
        facets=None if allowed is None else allowed.facets,
    )
    return _leg(hits, ScoreScale.BM25)


def _leg(hits: Sequence[tuple[str, float]], scale: ScoreScale) -> LegHits:
    return LegHits([node_id for node_id, _ in hits], [score for _, score in hits], scale)


def _order(hit: tuple[str, float]) -> tuple[float, str]:
    return (-hit[1], hit[0])
