"""LlamaIndex's query modes over the two legs of a store."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.stores.base import BM25, DENSE, LegHits, SearchRequest
from llama_index_hybrid_pack.scoring.fusion import weighted_fusion

Mode = VectorStoreQueryMode
Hits = list[tuple[str, float]]

_TEXT_MODES = (Mode.TEXT_SEARCH, Mode.SPARSE)
_ALLOWED = (Mode.DEFAULT, *_TEXT_MODES, Mode.HYBRID, Mode.MMR)
#: Keyword arguments of ``query`` that some mode reads.
_OPTIONS = frozenset(
    {"mmr_threshold", "mmr_prefetch_factor", "mmr_prefetch_k", "include_embeddings"}
)
_DEFAULT_ALPHA = 0.5
_DEFAULT_MMR_THRESHOLD = 0.5
_DEFAULT_MMR_PREFETCH = 4.0


class Plan:
    """A checked query: which legs to search how deep, and how many hits to return."""

    def __init__(self, query: VectorStoreQuery, options: Mapping[str, Any], depth: int) -> None:
        unknown = sorted(set(options) - _OPTIONS)
        if unknown:
            msg = (
                f"query() received unknown options {unknown}. Allowed: {sorted(_OPTIONS)}. Pass "
                "filters, alpha and the like in the VectorStoreQuery."
            )
            raise ConfigError(msg)
        self.mode = _mode(query.mode)
        self.top_k = _whole("similarity_top_k", query.similarity_top_k)
        self.alpha = 1.0
        dense_k = lexical_k = self.top_k
        if self.mode is Mode.HYBRID:
            self.alpha = _fraction("alpha", query.alpha, _DEFAULT_ALPHA)
            dense_k = max(self.top_k, depth)
            if query.sparse_top_k is not None:
                lexical_k = _whole("sparse_top_k", query.sparse_top_k)
            else:
                lexical_k = dense_k
            if query.hybrid_top_k is not None:
                self.top_k = _whole("hybrid_top_k", query.hybrid_top_k)
        elif self.mode in _TEXT_MODES:
            self.alpha = 0.0
        elif self.mode is Mode.MMR:
            given = options.get("mmr_threshold", query.mmr_threshold)
            self.mmr_threshold = _fraction("mmr_threshold", given, _DEFAULT_MMR_THRESHOLD)
            dense_k = _prefetch(self.top_k, options)
        self.request = self._request(query, dense_k, lexical_k)

    def _request(self, query: VectorStoreQuery, dense_k: int, lexical_k: int) -> SearchRequest:
        embedding = query.query_embedding if self.alpha > 0 else None
        text = query.query_str if self.alpha < 1 else None
        if self.alpha > 0 and embedding is None:
            msg = (
                f"Mode {self.mode.value!r} needs query_embedding, which is None. Give the query's "
                "vector, or use mode 'text_search'."
            )
            raise ConfigError(msg)
        if self.alpha < 1 and text is None:
            msg = (
                f"Mode {self.mode.value!r} needs query_str, which is None. Give the query's text, "
                "or use mode 'default'."
            )
            raise ConfigError(msg)
        return SearchRequest(
            query_embedding=embedding,
            query_str=text,
            dense_top_k=dense_k,
            lexical_top_k=lexical_k,
            filters=query.filters,
            # VectorStoreIndex sends an empty list with every query of a store that keeps texts.
            node_ids=query.node_ids or None,
            doc_ids=query.doc_ids,
        )

    def merge(self, legs: Mapping[str, LegHits]) -> Hits:
        """Return the hits of the mode, best first; MMR picks among all of them later."""
        hits = {name: list(zip(leg.ids, leg.scores, strict=True)) for name, leg in legs.items()}
        if self.mode is Mode.MMR:
            return hits[DENSE]
        if self.alpha in (0.0, 1.0):
            return hits[DENSE if self.alpha else BM25][: self.top_k]
        return fuse(hits[DENSE], hits[BM25], self.alpha)[: self.top_k]


def fuse(dense: Hits, lexical: Hits, alpha: float) -> Hits:
    """Combine two rankings: ``alpha`` times the dense score, both normalised by min-max."""
    return weighted_fusion([dense, lexical], weights=[alpha, 1.0 - alpha], normalization="min_max")


def _mode(mode: object) -> VectorStoreQueryMode:
    try:
        known = Mode(mode)
    except ValueError:
        known = None
    if known in _ALLOWED:
        return known
    allowed = ", ".join(repr(item.value) for item in _ALLOWED)
    shown = mode.value if isinstance(mode, Mode) else mode
    msg = f"Query mode {shown!r} is not supported by the embedded store. Allowed: {allowed}."
    raise ConfigError(msg)


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        msg = f"{name} is {value!r}. It must be a whole number of at least 1."
        raise ConfigError(msg)
    return int(value)


def _fraction(name: str, value: Any, default: float) -> float:
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float | np.floating):
        msg = f"{name} is {value!r}. It must be a number from 0 to 1."
        raise ConfigError(msg)
    number = float(value)
    if math.isnan(number) or not 0.0 <= number <= 1.0:
        msg = f"{name} is {value!r}. It must be a number from 0 to 1."
        raise ConfigError(msg)
    return number


def _prefetch(top_k: int, options: Mapping[str, Any]) -> int:
    if options.get("mmr_prefetch_k") is not None:
        return max(top_k, _whole("mmr_prefetch_k", options["mmr_prefetch_k"]))
    factor = options.get("mmr_prefetch_factor")
    factor = _DEFAULT_MMR_PREFETCH if factor is None else factor
    if isinstance(factor, bool) or not isinstance(factor, int | float) or not factor >= 1:
        msg = f"mmr_prefetch_factor is {factor!r}. It must be a number of at least 1."
        raise ConfigError(msg)
    return max(top_k, math.ceil(top_k * factor))
