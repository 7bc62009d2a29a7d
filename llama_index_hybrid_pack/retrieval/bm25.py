"""BM25 beside any vector store: identifiers, filters before ranking, additions and deletions."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.callbacks.base import CallbackManager
from llama_index.core.constants import DEFAULT_SIMILARITY_TOP_K
from llama_index.core.schema import BaseNode, IndexNode, MetadataMode, NodeWithScore, QueryBundle
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.vector_stores.types import MetadataFilters
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index_instrumentation import get_dispatcher

from llama_index_hybrid_pack.errors import ConfigError, StoreVersionError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import combine, compile_predicate, validate_filters
from llama_index_hybrid_pack.metadata import ScoreScale, annotate
from llama_index_hybrid_pack.observability import events
from llama_index_hybrid_pack.retrieval import _bm25_files as files
from llama_index_hybrid_pack.retrieval._bm25_index import BM25Index
from llama_index_hybrid_pack.retrieval._bm25_segment import NodeFilter, detach

if TYPE_CHECKING:
    from llama_index.core.indices.vector_store.base import VectorStoreIndex

dispatcher = get_dispatcher(__name__)

#: Arguments of LlamaIndex's retriever that the analyzer replaces.
_REPLACED = ("stemmer", "language", "skip_stemming", "token_pattern", "tokenizer")


class IdentifierBM25Retriever(BM25Retriever):  # type: ignore[misc]  # the base has no types
    """BM25 in memory that finds identifiers, filters before it ranks, and can be changed.

    Use it beside a vector store that has no lexical search of its own, for example under a
    fusion retriever; :class:`~llama_index_hybrid_pack.LocalHybridStore` has its own BM25. It is a
    ``BM25Retriever`` by type; of that class's attributes ``similarity_top_k`` alone has a
    meaning here.

    A node that holds none of the query's terms is not a hit, so fewer than ``similarity_top_k``
    hits, or none, is a normal answer. Under a filter the scores stay what they are without it:
    document frequencies are those of the whole index.

    Args:
        nodes: Nodes to index; of several with one id the last stands. May be empty.
        analyzer: Turns texts and queries into terms; ``None`` = ``Analyzer()``.
        similarity_top_k: Most hits to return, at least 1.
        k1: Saturation of term frequency, 0 or above: 0 counts a term once. 1.5 is bm25s's.
        b: Share of length normalisation, 0 (none) to 1.
        filters: Every search is restricted to nodes that pass; any nesting and operator.
        metadata_mode: Which content of a node is indexed; EMBED is what an embedding model sees.
        callback_manager: LlamaIndex's callbacks.
        objects: Index nodes to follow when they are found.
        object_map: Objects to follow, by id of the index node.
        verbose: Passed to LlamaIndex's recursion.

    Raises:
        ConfigError: If an option is out of range.
        FilterError: If the filter cannot be honoured exactly.

    Example:
        >>> from llama_index.core.schema import TextNode
        >>> retriever = IdentifierBM25Retriever(
        ...     [TextNode(id_="a", text="Error E-504"), TextNode(id_="b", text="Error E-505")],
        ...     similarity_top_k=1,
        ... )
        >>> [hit.node_id for hit in retriever.retrieve("What is E-504?")]
        ['a']
    """

    def __init__(
        self,
        nodes: Iterable[BaseNode] = (),
        *,
        analyzer: Analyzer | None = None,
        similarity_top_k: int = DEFAULT_SIMILARITY_TOP_K,
        k1: float = 1.5,
        b: float = 0.75,
        filters: MetadataFilters | None = None,
        metadata_mode: MetadataMode = MetadataMode.EMBED,
        callback_manager: CallbackManager | None = None,
        objects: list[IndexNode] | None = None,
        object_map: dict[str, Any] | None = None,
        verbose: bool = False,
    ) -> None:
        # The parent's constructor would build its own index.
        BaseRetriever.__init__(
            self,
            callback_manager=callback_manager,
            objects=objects,
            object_map=object_map,
            verbose=verbose,
        )
        self.similarity_top_k = similarity_top_k
        self._set_filters(filters)
        self._index = BM25Index(
            analyzer=analyzer if analyzer is not None else Analyzer(),
            metadata_mode=MetadataMode(metadata_mode),
            k1=k1,
            b=b,
        )
        self._index.add([*nodes])

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "IdentifierBM25Retriever"

    @classmethod
    def from_defaults(
        cls,
        index: VectorStoreIndex | None = None,
        nodes: Iterable[BaseNode] | None = None,
        docstore: BaseDocumentStore | None = None,
        **options: Any,
    ) -> IdentifierBM25Retriever:
        """Build the retriever from one source of nodes.

        Args:
            index: Takes the nodes of the index's docstore.
            nodes: Takes these nodes; may be empty.
            docstore: Takes the nodes of the docstore.
            **options: What the constructor takes, by keyword.

        Returns:
            A new retriever.

        Raises:
            ConfigError: If not exactly one source is given, an option is out of range or has no
                meaning here, or the index keeps its nodes in the vector store.
        """
        replaced = [name for name in _REPLACED if name in options]
        if replaced:
            msg = (
                f"{', '.join(replaced)}: the analyzer decides about these here. Give "
                "analyzer=Analyzer(language=..., stemming=...) instead."
            )
            raise ConfigError(msg)
        if sum(source is not None for source in (index, nodes, docstore)) != 1:
            msg = "Give exactly one of index, nodes and docstore."
            raise ConfigError(msg)
        if index is not None:
            docstore = index.docstore
            if not docstore.docs and index.vector_store.stores_text:
                msg = (
                    "The index's docstore is empty because its vector store keeps the texts "
                    f"({type(index.vector_store).__name__}). Give nodes=... instead, for example "
                    "from index.vector_store.get_nodes()."
                )
                raise ConfigError(msg)
        if docstore is not None:
            nodes = docstore.docs.values()
        return cls(() if nodes is None else nodes, **options)

    @property
    def similarity_top_k(self) -> int:
        """Most hits to return; more than there are nodes is fine."""
        return self._similarity_top_k

    @similarity_top_k.setter
    def similarity_top_k(self, value: int) -> None:
        given: object = value
        if isinstance(given, bool) or not isinstance(given, int) or given < 1:
            msg = f"similarity_top_k is {value!r}. Give a whole number of at least 1."
            raise ConfigError(msg)
        self._similarity_top_k = value

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of documents and queries."""
        return self._index.analyzer

    @property
    def k1(self) -> float:
        """Saturation of term frequency."""
        return self._index.snapshot.k1

    @property
    def b(self) -> float:
        """Share of length normalisation."""
        return self._index.snapshot.b

    @property
    def filters(self) -> MetadataFilters | None:
        """The filter of every search, or ``None``; a copy."""
        return copy.deepcopy(self._filters)

    @property
    def metadata_mode(self) -> MetadataMode:
        """Which content of a node is indexed."""
        return self._index.metadata_mode

    @property
    def generation(self) -> int:
        """Number of changes so far; two searches at one generation see the same nodes."""
        return self._index.snapshot.generation

    def __len__(self) -> int:
        """Return the number of nodes in the index."""
        return self._index.snapshot.n_nodes

    def __bool__(self) -> bool:
        """Return True: an empty retriever is one too."""
        return True

    def add(self, nodes: Iterable[BaseNode]) -> list[str]:
        """Add nodes, or put new versions in the place of those with the same id.

        They can be found as soon as the call returns. All or nothing.

        Args:
            nodes: The nodes; later changes to them do not reach the index.

        Returns:
            Their ids in the order given.

        Raises:
            ConfigError: If something else than a node is among them; nothing was added.
        """
        return self._index.add([*nodes])

    def delete(self, node_ids: Iterable[str]) -> int:
        """Delete nodes by id; unknown ids are ignored.

        Args:
            node_ids: Ids of the nodes.

        Returns:
            How many nodes were deleted.
        """
        return self._index.delete([node_ids] if isinstance(node_ids, str) else node_ids)

    def delete_ref_doc(self, ref_doc_id: str) -> int:
        """Delete every node of a source document.

        Args:
            ref_doc_id: Id of the document.

        Returns:
            How many nodes were deleted.
        """
        return self._index.delete_ref_doc(ref_doc_id)

    def scoped(
        self, *, filters: MetadataFilters | None = None, top_k: int | None = None
    ) -> IdentifierBM25Retriever:
        """Return a view on the same index with a narrower filter or another ``similarity_top_k``.

        Use it for what holds for one call only, such as the user's tenant. The view costs
        microseconds, sees later changes of the index, and leaves this retriever as it is.

        Args:
            filters: Must pass as well; the retriever's own filter still applies.
            top_k: Most hits to return; ``None`` = as here.

        Returns:
            A new retriever.

        Raises:
            ConfigError: If ``top_k`` is below 1.
            FilterError: If the filter cannot be honoured exactly.
        """
        view = type(self).__new__(type(self))
        view.__dict__.update(self.__dict__)
        if filters is not None:
            view._set_filters(combine(self._filters, validate_filters(filters)))
        if top_k is not None:
            view.similarity_top_k = top_k
        return view

    def _set_filters(self, filters: MetadataFilters | None) -> None:
        self._filters = validate_filters(filters)
        self._node_filter = None
        if self._filters is not None:
            key = repr(files.filters_to_dict(self._filters))
            self._node_filter = NodeFilter(key, compile_predicate(self._filters))

    def __getstate__(self) -> dict[str, Any]:
        # The compiled filter is a closure, which cannot be pickled.
        return {name: value for name, value in vars(self).items() if name != "_node_filter"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_filters(self._filters)

    def get_persist_args(self) -> dict[str, Any]:
        """Return every setting as JSON-able values."""
        return {
            "analyzer": self.analyzer.to_dict(),
            "analyzer_fingerprint": self.analyzer.fingerprint(),
            "similarity_top_k": self.similarity_top_k,
            "k1": self.k1,
            "b": self.b,
            "filters": files.filters_to_dict(self._filters),
            "metadata_mode": self.metadata_mode.value,
            "verbose": self._verbose,
        }

    def persist(self, path: str | Path) -> None:
        """Write nodes, postings and every setting to a folder, as one file that replaces the old.

        Args:
            path: The folder; made when it is not there.

        Raises:
            StoreWriteError: If the file cannot be written; the previous one is intact.
            StoreError: If a node's metadata cannot be written as JSON.
        """
        snapshot, segment = self._index.compacted()
        files.write(path, segment, {**self.get_persist_args(), "generation": snapshot.generation})

    @classmethod
    def from_persist_dir(
        cls,
        path: str | Path,
        *,
        callback_manager: CallbackManager | None = None,
        objects: list[IndexNode] | None = None,
        object_map: dict[str, Any] | None = None,
    ) -> IdentifierBM25Retriever:
        """Read what :meth:`persist` wrote; every setting is as it was.

        Args:
            path: The folder.
            callback_manager: LlamaIndex's callbacks.
            objects: Index nodes to follow when they are found.
            object_map: Objects to follow, by id of the index node.

        Returns:
            A retriever that gives the same hits.

        Raises:
            StoreCorruptError: If the folder holds no index of this class, or a damaged one.
            StoreVersionError: If a newer version of this package wrote it.
        """
        segment, settings = files.read(path)
        fingerprint, generation = settings.pop("analyzer_fingerprint"), settings.pop("generation")
        options = {
            **settings,
            "callback_manager": callback_manager,
            "objects": objects,
            "object_map": object_map,
        }
        try:
            options["analyzer"] = Analyzer.from_dict(settings["analyzer"])
            options["filters"] = files.filters_from_dict(settings["filters"])
            retriever = cls(**options)
        except ConfigError as error:
            msg = f"{str(path)!r} has settings that this version cannot honour: {error}"
            raise StoreVersionError(msg) from error
        if fingerprint == retriever.analyzer.fingerprint():
            retriever._index.load(segment, generation)
        else:  # another release of the stemmer: its terms would not meet the stored ones
            retriever._index.add([*segment.nodes])
        return retriever

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        snapshot = self._index.snapshot
        with events.stage("bm25", n_in=snapshot.n_nodes) as timer:
            terms = self.analyzer.query_terms(_query_text(query_bundle))
            found = snapshot.search(terms, self.similarity_top_k, self._node_filter)
            hits = [_hit(node, score, rank) for rank, (node, score) in enumerate(found, start=1)]
            timer.n_out = len(hits)
        return hits

    @dispatcher.span
    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


def _query_text(query_bundle: QueryBundle) -> str:
    text: object = query_bundle.query_str
    return text if isinstance(text, str) else ""  # callers do pass None


def _hit(node: BaseNode, score: float, rank: int) -> NodeWithScore:
    """Return a hit around a copy of the node that the caller may keep and change."""
    given = NodeWithScore(node=node, score=score)
    hit = annotate(given, "bm25", score=score, rank=rank, scale=ScoreScale.BM25)
    detach(hit.node)
    return hit
