"""One leg of a hybrid store as a LlamaIndex retriever."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index_instrumentation import get_dispatcher

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.filters import combine
from llama_index_hybrid_pack.indexing.stores.base import (
    BM25,
    DENSE,
    HybridStore,
    SearchRequest,
    SearchResult,
)
from llama_index_hybrid_pack.metadata import annotate
from llama_index_hybrid_pack.observability.events import stage

dispatcher = get_dispatcher(__name__)

LegName = Literal["dense", "bm25"]


class StoreRetriever(BaseRetriever):
    """Searches one leg of a hybrid store: by vector, or by words.

    Use two of them in a :class:`~llama_index_hybrid_pack.HybridFusionRetriever`, which then
    searches the store once for both, or one alone to see what a leg finds.

    The dense leg embeds ``query_bundle.embedding_strs``, or takes ``query_bundle.embedding``
    as it is; BM25 takes ``query_bundle.query_str``, so text that is meant for embedding only
    (HyDE) never reaches it. A blank query finds nothing.

    Args:
        store: The store.
        leg: ``"dense"`` (scores are cosines) or ``"bm25"`` (scores above 0).
        similarity_top_k: Hits, at least 1; fewer come back when fewer match.
        embed_model: Embeds the query; the dense leg needs it unless queries bring a vector.
            ``None`` = the one that LlamaIndex's ``Settings`` has when the query comes; none is
            ever chosen by default.
        filters: Applied before ranking.
        node_ids: Only these nodes; ``None`` = all, an empty list = none.
        doc_ids: Only nodes of these documents; same convention.

    Raises:
        ConfigError: If the leg is unknown, ``similarity_top_k`` is not at least 1, or ids are
            given as one string.
    """

    def __init__(
        self,
        store: HybridStore,
        *,
        leg: LegName = "dense",
        similarity_top_k: int = 30,
        embed_model: BaseEmbedding | None = None,
        filters: MetadataFilters | None = None,
        node_ids: Sequence[str] | None = None,
        doc_ids: Sequence[str] | None = None,
    ) -> None:
        super().__init__()
        if leg not in {DENSE, BM25}:
            msg = f"There is no leg {leg!r}. A store has {DENSE!r} and {BM25!r}."
            raise ConfigError(msg)
        self.store = store
        self.leg = leg
        self.similarity_top_k = check_top_k(similarity_top_k)
        self.embed_model = embed_model
        self.filters = filters
        self.node_ids = _ids("node_ids", node_ids)
        self.doc_ids = _ids("doc_ids", doc_ids)

    @classmethod
    def class_name(cls) -> str:
        """Return the name used in traces."""
        return "StoreRetriever"

    def scoped(
        self, *, filters: MetadataFilters | None = None, top_k: int | None = None
    ) -> StoreRetriever:
        """Return a view of this retriever for one call; this one stays as it is.

        Args:
            filters: Must be passed besides the retriever's own filters.
            top_k: Number of hits instead of ``similarity_top_k``.

        Returns:
            A cheap copy over the same store.
        """
        view = copy.copy(self)
        view.filters = combine(self.filters, filters)
        if top_k is not None:
            view.similarity_top_k = check_top_k(top_k)
        return view

    @property
    def needs_embedding(self) -> bool:
        """Whether a query must be embedded for this leg."""
        return self.leg == DENSE

    def request(self, query_bundle: QueryBundle) -> SearchRequest | None:
        """Return the search for this leg, or ``None`` when the query has nothing to search for.

        Args:
            query_bundle: The query; for the dense leg it must have its embedding.

        Returns:
            A request for this leg only.
        """
        dense = self.leg == DENSE
        missing = query_bundle.embedding is None if dense else is_blank(query_bundle.query_str)
        if missing:
            return None
        return SearchRequest(
            query_embedding=query_bundle.embedding if dense else None,
            query_str=None if dense else query_bundle.query_str,
            dense_top_k=self.similarity_top_k,
            lexical_top_k=self.similarity_top_k,
            filters=self.filters,
            node_ids=self.node_ids,
            doc_ids=self.doc_ids,
        )

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        bundle = self._embedded(query_bundle)
        with stage(self.leg) as timer:
            request = self.request(bundle)
            hits = [] if request is None else self._hits(self.store.search(request))
            timer.n_out = len(hits)
        return hits

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        bundle = await asyncio.to_thread(self._embedded, query_bundle)
        with stage(self.leg) as timer:
            request = self.request(bundle)
            hits = []
            if request is not None:
                result = await self.store.asearch(request)
                hits = await asyncio.to_thread(self._hits, result)
            timer.n_out = len(hits)
        return hits

    def _embedded(self, query_bundle: QueryBundle) -> QueryBundle:
        if not self.needs_embedding:
            return query_bundle
        return embed_query(query_bundle, self.embed_model)

    def _hits(self, result: SearchResult) -> list[NodeWithScore]:
        found = result.legs[self.leg]
        nodes = result.nodes(found.ids)
        ranked = enumerate(zip(found.ids, found.scores, strict=True), start=1)
        return [
            annotate(
                NodeWithScore(node=nodes[name]),
                self.leg,
                score=score,
                rank=rank,
                scale=found.scale,
            )
            for rank, (name, score) in ranked
            if name in nodes
        ]


def embed_query(query_bundle: QueryBundle, embed_model: BaseEmbedding | None) -> QueryBundle:
    """Return a bundle with an embedding; the caller's bundle is never written to.

    Args:
        query_bundle: The query; an embedding that it brings is kept.
        embed_model: Embeds the query; ``None`` = the one of LlamaIndex's ``Settings``, if it was
            set there.

    Returns:
        A bundle of its own, without embedding only when the query has no text at all.

    Raises:
        ConfigError: If the query has no embedding and there is no model.
    """
    embedding = query_bundle.embedding
    texts = embedded_texts(query_bundle)
    if embedding is None and texts:
        # The public property would go and make OpenAI's model.
        model = Settings._embed_model if embed_model is None else embed_model
        if model is None:
            msg = (
                "The dense leg has no embedding model, and the query brings no vector. Give "
                "embed_model=..., set Settings.embed_model, or pass a QueryBundle with an "
                "embedding."
            )
            raise ConfigError(msg)
        embedding = model.get_agg_embedding_from_queries(texts)
    return replace(query_bundle, embedding=embedding)


def embedded_texts(query_bundle: QueryBundle) -> list[str]:
    """Return the texts whose mean vector stands for the query, as LlamaIndex takes them.

    Args:
        query_bundle: The query.

    Returns:
        ``custom_embedding_strs`` without blank ones (an expansion may come out empty), else the
        query itself, else nothing.

    Example:
        >>> embedded_texts(QueryBundle("refunds", custom_embedding_strs=["", "Ten days."]))
        ['Ten days.']
    """
    custom = [text for text in query_bundle.custom_embedding_strs or [] if not is_blank(text)]
    return custom or [text for text in [query_bundle.query_str] if not is_blank(text)]


def is_blank(text: str | None) -> bool:
    """Return whether there is nothing to search for; callers do pass ``None``.

    Example:
        >>> is_blank(None), is_blank("  "), is_blank("?")
        (True, True, False)
    """
    return text is None or not text.strip()


def _ids(name: str, given: Sequence[str] | None) -> tuple[str, ...] | None:
    if isinstance(given, str):
        msg = f"{name} is the string {given!r}. Give a list of ids."
        raise ConfigError(msg)
    return None if given is None else tuple(given)


def check_top_k(value: int) -> int:
    """Return a usable number of hits.

    Args:
        value: A whole number of at least 1.

    Returns:
        The value.

    Raises:
        ConfigError: If it is anything else.

    Example:
        >>> check_top_k(5)
        5
    """
    given: object = value
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        msg = f"The number of hits is {value!r}. It must be a whole number of at least 1."
        raise ConfigError(msg)
    return value
