"""The embedded store as a LlamaIndex vector store."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from llama_index.core.schema import BaseNode
from llama_index.core.vector_stores.types import (
    MetadataFilters,
    VectorStoreQuery,
    VectorStoreQueryResult,
)
from numpy.typing import NDArray

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import FieldType
from llama_index_hybrid_pack.indexing.filters.fields import check_schema
from llama_index_hybrid_pack.indexing.stores.base import SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import writes
from llama_index_hybrid_pack.indexing.stores.local.modes import Mode, Plan
from llama_index_hybrid_pack.indexing.stores.local.opened import OpenedStore
from llama_index_hybrid_pack.indexing.stores.local.search import LocalSearchResult, Searcher
from llama_index_hybrid_pack.observability.events import stage
from llama_index_hybrid_pack.scoring.mmr import mmr_select


class LocalHybridStore(OpenedStore):
    """Dense search, BM25 and metadata filters in one folder, without a server.

    Use it with ``VectorStoreIndex.from_vector_store(store)`` in the modes ``default`` (cosine),
    ``text_search`` (BM25), ``hybrid`` and ``mmr``, or through :meth:`search` for both legs in one
    call. A SQLite table is the truth; the two indexes follow it, also after a crash. A write that
    has returned is durable and can be found on both legs.

    Threads may share one store. Several processes may open one folder: one writes at a time, the
    others wait up to ``lock_timeout`` seconds; readers never wait for a writer. A forked child
    opens the folder anew by itself. Not for network drives.

    Args:
        path: Folder of the store, made if needed. ``None`` = a temporary one that is removed
            with the store.

    Raises:
        StoreError: If the path is a file or a folder with other things in it.
        StoreVersionError: If a newer version of this package wrote the store.
        ConfigError: If an option contradicts the store or is out of range.

    Example:
        >>> from llama_index_hybrid_pack.testing.builders import make_node
        >>> with LocalHybridStore() as store:
        ...     ids = store.add([make_node("a", "refund in ten days"), make_node("b", "shipping")])
        ...     hits = store.search(SearchRequest(query_str="refunds"))
        ...     hits.legs["bm25"].ids
        ['a']
    """

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "LocalHybridStore"

    # -- writing

    def add(
        self, nodes: Sequence[BaseNode], *, show_progress: bool = False, **add_kwargs: Any
    ) -> list[str]:
        """Add nodes with their embeddings; a node whose id is there already is replaced.

        All nodes of one call are committed together or not at all, and can be found on both legs
        when the call returns. Add many nodes per call: each call syncs the disk.

        Args:
            nodes: Nodes of LlamaIndex's own classes, each with an embedding. They are not changed.
            show_progress: Show a progress bar on a terminal; long calls always do.
            **add_kwargs: None is known.

        Returns:
            The ids, in the given order.

        Raises:
            EmbeddingError: If a vector is missing, not finite, or of another dimension.
            ConfigError: If one id stands for different nodes, or a node cannot be stored.
            StoreWriteError: If the disk is full or the folder cannot be written.
            StoreLockedError: If another writer holds the store.
        """
        _refuse("add", add_kwargs)
        writes.apply(self.client, nodes, show_progress=show_progress)
        return [node.node_id for node in nodes]

    async def async_add(self, nodes: Sequence[BaseNode], **kwargs: Any) -> list[str]:
        """Run :meth:`add` without blocking the event loop."""
        return await asyncio.to_thread(self.add, nodes, **kwargs)

    def apply(self, nodes: Sequence[BaseNode], *, delete_node_ids: Sequence[str] = ()) -> None:
        """Store nodes and delete others in one commit: readers see all of it or nothing.

        Args:
            nodes: As for :meth:`add`.
            delete_node_ids: Nodes to delete; unknown ids are ignored, an id that is also among
                ``nodes`` is stored.

        Raises:
            EmbeddingError, ConfigError, StoreWriteError, StoreLockedError: As for :meth:`add`.
        """
        writes.apply(self.client, nodes, delete_node_ids=delete_node_ids)

    def delete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Delete the nodes of a document; an unknown document is no error.

        Args:
            ref_doc_id: Id of the document, compared as a whole.
            **delete_kwargs: None is known; LlamaIndex's ``delete_from_docstore`` is accepted.
        """
        delete_kwargs.pop("delete_from_docstore", None)
        _refuse("delete", delete_kwargs)
        writes.remove_document(self.client, ref_doc_id)

    async def adelete(self, ref_doc_id: str, **delete_kwargs: Any) -> None:
        """Run :meth:`delete` without blocking the event loop."""
        await asyncio.to_thread(self.delete, ref_doc_id, **delete_kwargs)

    def delete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Delete the nodes that are among the ids and pass the filter.

        Args:
            node_ids: Ids; unknown ones are no error. ``None`` = every id.
            filters: ``None`` = no filter.
            **delete_kwargs: None is known.

        Raises:
            ConfigError: If neither is given: to remove everything call :meth:`clear`.
        """
        _refuse("delete_nodes", delete_kwargs)
        writes.remove_matching(self.client, self._row_sets, node_ids, filters)

    async def adelete_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        **delete_kwargs: Any,
    ) -> None:
        """Run :meth:`delete_nodes` without blocking the event loop."""
        await asyncio.to_thread(self.delete_nodes, node_ids, filters, **delete_kwargs)

    def clear(self) -> None:
        """Delete every node; settings such as dimension and analyzer stay."""
        writes.clear(self.client)

    async def aclear(self) -> None:
        """Run :meth:`clear` without blocking the event loop."""
        await asyncio.to_thread(self.clear)

    def update_metadata(self, changes: Mapping[str, Mapping[str, Any]]) -> None:
        """Replace the metadata of nodes without embedding them again, in one commit.

        Use it when permissions or labels change and the text does not.

        Args:
            changes: Node id → its whole new metadata.

        Raises:
            StoreError: If an id is not in the store; nothing was changed then.
        """
        writes.update_metadata(self.client, changes)

    def reindex(
        self,
        *,
        analyzer: Analyzer | None = None,
        metadata_schema: Mapping[str, FieldType | str] | None = None,
    ) -> None:
        """Change the analyzer or the declared fields; the stored nodes are indexed anew.

        Args:
            analyzer: New analyzer; ``None`` = as it is.
            metadata_schema: New declared fields; ``None`` = as they are.
        """
        schema = None if metadata_schema is None else check_schema(metadata_schema)
        writes.reindex(self.client, analyzer=analyzer, schema=schema)
        with self.client.view() as view:
            self.__dict__["analyzer"] = view.settings.analyzer
            self.__dict__["metadata_schema"] = dict(view.settings.schema)

    def optimize(self) -> None:
        """Rebuild the indexes without removed nodes and give free disk space back.

        Use it after many updates or deletes. BM25 scores are then those of a freshly built store:
        until then, removed nodes still count in the statistics of their terms.
        """
        self.client.optimize()

    # -- searching

    def search(self, request: SearchRequest) -> LocalSearchResult:
        """Run the legs that the request asks for, on one committed state.

        Args:
            request: What to search for.

        Returns:
            Hits per leg: ``"dense"`` (cosine, [-1, 1]) and ``"bm25"`` (above 0), each by score
            and then by node id; nodes are built by the result's ``nodes()``.

        Raises:
            FilterError: If the filter cannot be honoured exactly.
            EmbeddingError: If the query vector does not fit the store.
        """
        searcher = self._searcher()
        with stage("store_search") as timer:
            legs = searcher.search(request)
            timer.n_out = sum(len(leg.ids) for leg in legs.values())
        return LocalSearchResult(legs, fetch=searcher.fetch)

    def query(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Answer a LlamaIndex query in one of its modes.

        ==================  ================================================================
        mode                similarities
        ==================  ================================================================
        ``default``         cosine, [-1, 1]
        ``text_search``,    BM25, above 0; documents without a term of the query are no hits
        ``sparse``
        ``hybrid``          ``alpha`` times the cosine plus ``1 - alpha`` times BM25, both
                            min-max normalised; at 0 and 1 the scores of the one leg
        ``mmr``             cosine, in the order of picking
        ==================  ================================================================

        Args:
            query: ``filters``, ``node_ids`` and ``doc_ids`` must all hold; an empty list of
                ``doc_ids`` lets nothing pass, one of ``node_ids`` everything, because
                ``VectorStoreIndex`` sends it with every query. Mode hybrid takes
                ``sparse_top_k`` BM25 hits and returns ``hybrid_top_k``; both default to
                ``similarity_top_k``.
            **kwargs: ``mmr_threshold`` (1 = relevance alone, 0 = diversity alone, default 0.5),
                ``mmr_prefetch_factor`` (candidates per pick, default 4) or ``mmr_prefetch_k``,
                ``include_embeddings`` (nodes carry their vectors).

        Returns:
            New nodes with ids and similarities.

        Raises:
            ConfigError: If the mode or an option cannot be honoured.
            FilterError: If the filter cannot be honoured.
            EmbeddingError: If the query vector does not fit the store.
        """
        plan = Plan(query, kwargs, self.hybrid_depth)
        hits = plan.merge(self.search(plan.request).legs)
        if plan.mode is Mode.MMR:
            hits = self._diverse(hits, plan)
        nodes = self._searcher().fetch(
            [node_id for node_id, _ in hits],
            include_embeddings=bool(kwargs.get("include_embeddings")),
        )
        kept = [(node_id, score) for node_id, score in hits if node_id in nodes]
        return VectorStoreQueryResult(
            nodes=[nodes[node_id] for node_id, _ in kept],
            similarities=[score for _, score in kept],
            ids=[node_id for node_id, _ in kept],
        )

    async def aquery(self, query: VectorStoreQuery, **kwargs: Any) -> VectorStoreQueryResult:
        """Run :meth:`query` without blocking the event loop."""
        return await asyncio.to_thread(self.query, query, **kwargs)

    def _diverse(self, hits: list[tuple[str, float]], plan: Plan) -> list[tuple[str, float]]:
        vectors = self.get_embeddings([node_id for node_id, _ in hits])
        candidates = [hit for hit in hits if hit[0] in vectors]
        if not candidates:
            return []
        picks = mmr_select(
            [score for _, score in candidates],
            np.stack([vectors[node_id] for node_id, _ in candidates]),
            lambda_mult=plan.mmr_threshold,
            k=plan.top_k,
        )
        return [candidates[position] for position in picks]

    # -- reading

    def get_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        *,
        include_embeddings: bool = False,
    ) -> list[BaseNode]:
        """Return the nodes that are among the ids and pass the filter.

        Args:
            node_ids: Ids; unknown ones are left out. ``None`` = every node.
            filters: ``None`` = no filter.
            include_embeddings: Whether the nodes carry the vectors that they were added with.

        Returns:
            New nodes in the order of the ids, else in the order in which they were written.
        """
        return self._searcher().get_nodes(
            node_ids=node_ids, filters=filters, include_embeddings=include_embeddings
        )

    async def aget_nodes(
        self,
        node_ids: list[str] | None = None,
        filters: MetadataFilters | None = None,
        *,
        include_embeddings: bool = False,
    ) -> list[BaseNode]:
        """Run :meth:`get_nodes` without blocking the event loop."""
        return await asyncio.to_thread(
            self.get_nodes, node_ids, filters, include_embeddings=include_embeddings
        )

    def nodes_of(self, doc_ids: Sequence[str]) -> list[BaseNode]:
        """Return every node of these documents, ordered by node id, without embeddings."""
        found = self._searcher().get_nodes(doc_ids=doc_ids)
        return sorted(found, key=lambda node: node.node_id)

    def get_embeddings(self, node_ids: Sequence[str]) -> dict[str, NDArray[np.float32]]:
        """Return stored vectors scaled to length 1, by node id; unknown ids are left out."""
        return self._searcher().embeddings(node_ids)

    def count(self) -> int:
        """Return the number of nodes in the store."""
        with self.client.view() as view:
            return view.snapshot.count

    def known_fields(self) -> frozenset[str]:
        """Return every metadata field that at least one node has or the schema declares."""
        with self.client.view() as view:
            return self._row_sets.fields(view.snapshot, view.settings.schema)

    @property
    def generation(self) -> int:
        """Number of the last committed change; grows with every write."""
        with self.client.view() as view:
            return view.snapshot.generation.number

    def describe(self) -> dict[str, Any]:
        """Return sizes, settings, engine choices and generation, for people and for logs."""
        return {"read_only": self.read_only, **self.client.describe()}

    def _searcher(self) -> Searcher:
        return Searcher(self.client, self._row_sets)


def _refuse(method: str, options: Mapping[str, Any]) -> None:
    if options:
        msg = f"{method}() received unknown options {sorted(options)}. It takes none of these."
        raise ConfigError(msg)
