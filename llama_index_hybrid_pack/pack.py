"""HybridPack: every part composed from one config, over one folder on disk."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from llama_index.core.base.base_query_engine import BaseQueryEngine
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.base.response.schema import RESPONSE_TYPE
from llama_index.core.llms import LLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import Document, NodeWithScore, QueryBundle
from llama_index.core.settings import Settings
from llama_index.core.vector_stores.types import MetadataFilters

from llama_index_hybrid_pack.answering.compact import get_synthesizer
from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
from llama_index_hybrid_pack.config import PackOptions
from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.embedding import default_embed_model
from llama_index_hybrid_pack.indexing.ingest import IngestReport, ingest_documents
from llama_index_hybrid_pack.indexing.record import StoreRecord
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.observability.trace import RetrievalTrace
from llama_index_hybrid_pack.ranking.chain import PostprocessorChain
from llama_index_hybrid_pack.ranking.funnel import make_chain
from llama_index_hybrid_pack.ranking.retriever import RankingRetriever
from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
from llama_index_hybrid_pack.retrieval.store import StoreRetriever


class HybridPack:
    r"""Ingest, hybrid search, reranking and answers from one config.

    Use it to have the whole way in a few lines; every part is also reachable through
    :meth:`get_modules` and works alone. It keeps the shape of LlamaIndex's former packs:
    :meth:`get_modules`, :meth:`run` and :meth:`arun`.

    The funnel: candidates per leg → fusion → reranker → the few that are returned. Each number
    is an option of :class:`~llama_index_hybrid_pack.PackOptions`.

    Args:
        store: The store.
        embed_model: Any LlamaIndex embedding; ``None`` = the packaged model.
        options: How to chunk, retrieve and rank; ``None`` = the measured defaults.
        llm: Writes answers; ``None`` = the LLM of LlamaIndex's ``Settings`` if one is set there,
            else answers are the passages.

    Example:
        >>> from llama_index_hybrid_pack.testing.fakes import HashEmbedding
        >>> pack = HybridPack(LocalHybridStore(), embed_model=HashEmbedding())
        >>> report = pack.ingest([Document(text="# Refunds\n\nTen days.", id_="refunds.md")])
        >>> [hit.node.metadata["heading"] for hit in pack.search("refunds")]
        ['Refunds']
    """

    def __init__(
        self,
        store: LocalHybridStore,
        *,
        embed_model: BaseEmbedding | None = None,
        options: PackOptions | None = None,
        llm: LLM | None = None,
    ) -> None:
        self.store = store
        self.embed_model = default_embed_model() if embed_model is None else embed_model
        self.options = PackOptions() if options is None else options
        self.llm = llm

    @classmethod
    def from_documents(
        cls,
        documents: Sequence[Document],
        *,
        path: str | os.PathLike[str],
        embed_model: BaseEmbedding | None = None,
        options: PackOptions | None = None,
        llm: LLM | None = None,
        show_progress: bool = False,
    ) -> HybridPack:
        """Make or open the store at ``path`` and ingest documents into it.

        Args:
            documents: Documents with ids of their own; those that are stored unchanged already
                cost nothing.
            path: Folder of the store.
            embed_model: See the class.
            options: See the class.
            llm: See the class.
            show_progress: Show a progress bar, when the output is a terminal.

        Returns:
            The pack.

        Raises:
            ConfigError: If options or embedding model contradict the store's.
            StoreError: If the folder cannot be used.
        """
        pack = cls.open_or_create(path, embed_model=embed_model, options=options, llm=llm)
        pack.ingest(documents, show_progress=show_progress)
        return pack

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        *,
        embed_model: BaseEmbedding | None = None,
        options: PackOptions | None = None,
        llm: LLM | None = None,
        read_only: bool = False,
    ) -> HybridPack:
        """Open a store that exists.

        Args:
            path: Folder of the store.
            embed_model: The model that the store was made with; ``None`` = as recorded.
            options: For retrieval and ranking from now on; ``None`` = as recorded.
            llm: See the class.
            read_only: Never write to the folder.

        Returns:
            The pack.

        Raises:
            StoreError: If there is no store.
            ConfigError: If options or embedding model contradict the store's.
        """
        record = StoreRecord.read(path)
        chosen = record.options if options is None else options
        if chosen.language != record.options.language:
            msg = (
                f"The store at {str(path)!r} was indexed with language "
                f"{record.options.language!r}, not {chosen.language!r}. Use that one, or ingest "
                "into a new folder."
            )
            raise ConfigError(msg)
        model = record.embed_model(embed_model)
        store = LocalHybridStore(path=os.fspath(path), read_only=read_only)
        return cls(store, embed_model=model, options=chosen, llm=llm)

    @classmethod
    def open_or_create(
        cls,
        path: str | os.PathLike[str],
        *,
        embed_model: BaseEmbedding | None = None,
        options: PackOptions | None = None,
        llm: LLM | None = None,
    ) -> HybridPack:
        """Open the store at ``path``, or make an empty one.

        Args:
            path: Folder of the store.
            embed_model: See the class.
            options: See the class.
            llm: See the class.

        Returns:
            The pack.

        Raises:
            ConfigError: If options or embedding model contradict the store's.
            StoreError: If the folder cannot be used.
        """
        if StoreRecord.exists(path):
            return cls.open(path, embed_model=embed_model, options=options, llm=llm)
        chosen = PackOptions() if options is None else options
        # The model first: without one there should be no empty store either.
        model = default_embed_model() if embed_model is None else embed_model
        store = LocalHybridStore(path=os.fspath(path), analyzer=Analyzer(language=chosen.language))
        pack = cls(store, embed_model=model, options=chosen, llm=llm)
        StoreRecord.of(model, chosen).write(path)
        return pack

    @property
    def node_parser(self) -> StructureNodeParser:
        """The parser, counting tokens as the embedding model does."""
        size = self.options.chunking.chunk_size
        return StructureNodeParser.for_embed_model(self.embed_model, chunk_size=size)

    def ingest(self, documents: Sequence[Document], *, show_progress: bool = False) -> IngestReport:
        """Parse, embed and store documents; what is stored unchanged already costs nothing.

        Args:
            documents: Documents with ids of their own. A document replaces the earlier one of
                the same id.
            show_progress: Show a progress bar, when the output is a terminal.

        Returns:
            Counts of what was done.

        Raises:
            ConfigError: If two documents have the same id; nothing is stored.
            StoreWriteError: If the store cannot be written; what was committed stays.
        """
        return ingest_documents(
            documents,
            store=self.store,
            parser=self.node_parser,
            embed_model=self.embed_model,
            show_progress=show_progress,
        )

    def fusion_retriever(
        self, *, top_k: int | None = None, filters: MetadataFilters | None = None
    ) -> HybridFusionRetriever:
        """Return the fused search without ranking.

        Args:
            top_k: Fused hits; ``None`` = the candidates that are reranked.
            filters: Applied on both legs before ranking.

        Returns:
            The retriever.
        """
        options = self.options.retrieval
        count = max(self.options.ranking.candidates, self.options.ranking.top_n)
        wanted = count if top_k is None else top_k
        return HybridFusionRetriever.from_store(
            self.store,
            embed_model=self.embed_model,
            dense_weight=options.dense_weight,
            leg_top_k=max(options.leg_top_k, wanted),
            mode=options.mode,
            rrf_k=options.rrf_k,
            normalization=options.normalization,
            similarity_top_k=wanted,
            on_error=options.on_error,
            filters=filters,
        )

    def postprocessor_chain(self, *, top_n: int | None = None) -> PostprocessorChain:
        """Return reranker, threshold and MMR as one postprocessor.

        Args:
            top_n: Hits that it returns; ``None`` = as the options say.
        """
        return make_chain(
            self.options.ranking, embed_model=self.embed_model, store=self.store, top_n=top_n
        )

    def as_retriever(
        self, *, top_n: int | None = None, filters: MetadataFilters | None = None
    ) -> RankingRetriever:
        """Return the whole funnel as one LlamaIndex retriever.

        Args:
            top_n: Hits; ``None`` = as the options say.
            filters: Applied on both legs before ranking.

        Returns:
            A retriever for query engines, agents, routers and evaluators.
        """
        count = self.options.ranking.top_n if top_n is None else top_n
        candidates = max(self.options.ranking.candidates, count)
        chain = self.postprocessor_chain(top_n=count)
        if not chain.steps:
            candidates = count
        return RankingRetriever(
            self.fusion_retriever(top_k=candidates, filters=filters), chain.steps
        )

    def as_query_engine(
        self,
        llm: LLM | None = None,
        *,
        top_n: int | None = None,
        filters: MetadataFilters | None = None,
        streaming: bool = False,
    ) -> BaseQueryEngine:
        """Return a query engine: an LLM's answer, or the passages with their sources.

        Args:
            llm: Writes the answer; ``None`` = the pack's, else that of LlamaIndex's ``Settings``
                if one is set there, else the passages are the answer.
            top_n: Passages; ``None`` = as the options say.
            filters: Applied on both legs before ranking.
            streaming: Whether an LLM's answer arrives piece by piece.

        Returns:
            The query engine.
        """
        model = llm or self.llm or Settings._llm
        return RetrieverQueryEngine(
            retriever=self.as_retriever(top_n=top_n, filters=filters),
            response_synthesizer=get_synthesizer(model, streaming=streaming),
        )

    def search(
        self,
        query: str | QueryBundle,
        *,
        top_n: int | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[NodeWithScore]:
        """Return the best passages for a query.

        Args:
            query: The query.
            top_n: Passages; ``None`` = as the options say.
            filters: Applied on both legs before ranking.

        Returns:
            Hits, best first; each with its rank and score at every stage.
        """
        return self.as_retriever(top_n=top_n, filters=filters).retrieve(query)

    async def asearch(
        self,
        query: str | QueryBundle,
        *,
        top_n: int | None = None,
        filters: MetadataFilters | None = None,
    ) -> list[NodeWithScore]:
        """Search without blocking the event loop; see :meth:`search`."""
        return await self.as_retriever(top_n=top_n, filters=filters).aretrieve(query)

    def search_with_trace(
        self,
        query: str | QueryBundle,
        *,
        top_n: int | None = None,
        filters: MetadataFilters | None = None,
    ) -> tuple[list[NodeWithScore], RetrievalTrace]:
        """Search, and say where each passage came from.

        Args:
            query: The query.
            top_n: Passages; ``None`` = as the options say.
            filters: Applied on both legs before ranking.

        Returns:
            The hits of :meth:`search`, and a trace that prints as a table.
        """
        return self.as_retriever(top_n=top_n, filters=filters).retrieve_with_trace(query)

    def explain(
        self,
        query: str | QueryBundle,
        *,
        top_n: int | None = None,
        filters: MetadataFilters | None = None,
    ) -> RetrievalTrace:
        """Return the trace of :meth:`search_with_trace` alone."""
        return self.search_with_trace(query, top_n=top_n, filters=filters)[1]

    def ladder(self, *, top_n: int) -> dict[str, BaseRetriever]:
        """Return each step of the funnel as a retriever, for an evaluation side by side.

        Args:
            top_n: Hits of each.

        Returns:
            Name → retriever: BM25 alone, dense alone, fused, and ranked where there is a chain.
        """
        steps: dict[str, BaseRetriever] = {
            "BM25": StoreRetriever(self.store, leg="bm25", similarity_top_k=top_n),
            "dense": StoreRetriever(
                self.store, leg="dense", similarity_top_k=top_n, embed_model=self.embed_model
            ),
            "hybrid": self.fusion_retriever(top_k=top_n),
        }
        ranked = self.as_retriever(top_n=top_n)
        if ranked.postprocessors:
            steps["hybrid + rerank"] = ranked
        return steps

    def get_modules(self) -> dict[str, Any]:
        """Return every part by name, ready to be used alone."""
        return {
            "store": self.store,
            "embed_model": self.embed_model,
            "node_parser": self.node_parser,
            "fusion_retriever": self.fusion_retriever(),
            "postprocessor_chain": self.postprocessor_chain(),
            "retriever": self.as_retriever(),
            "query_engine": self.as_query_engine(),
        }

    def run(self, query: str | QueryBundle, **kwargs: Any) -> RESPONSE_TYPE:
        """Answer a question with :meth:`as_query_engine`.

        Args:
            query: The question.
            **kwargs: As for :meth:`as_query_engine`.

        Returns:
            The response; its ``source_nodes`` are the passages.
        """
        return self.as_query_engine(**kwargs).query(query)

    async def arun(self, query: str | QueryBundle, **kwargs: Any) -> RESPONSE_TYPE:
        """Answer without blocking the event loop; see :meth:`run`."""
        return await self.as_query_engine(**kwargs).aquery(query)
