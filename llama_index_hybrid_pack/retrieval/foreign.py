"""How retrievers of someone else are told apart and called."""

from __future__ import annotations

import asyncio

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.indices.vector_store.retrievers import VectorIndexRetriever
from llama_index.core.schema import NodeWithScore, QueryBundle
from llama_index.core.vector_stores.types import BasePydanticVectorStore, VectorStore

# LlamaIndex's defaults, which run the sync code inside the event loop.
_SYNC_QUERIES = (BasePydanticVectorStore.aquery, VectorStore.aquery)


def blocks_loop(retriever: BaseRetriever) -> bool:
    """Return whether a retriever's async call would run sync code inside the event loop.

    Args:
        retriever: Any retriever.

    Returns:
        Whether it, or the vector store under it, has only LlamaIndex's stand-in for async.
    """
    if type(retriever)._aretrieve is BaseRetriever._aretrieve:
        return True
    if not isinstance(retriever, VectorIndexRetriever):
        return False
    return getattr(type(retriever._vector_store), "aquery", None) in _SYNC_QUERIES


async def aretrieve(retriever: BaseRetriever, query_bundle: QueryBundle) -> list[NodeWithScore]:
    """Retrieve and leave the event loop free, whatever the retriever is made of.

    Args:
        retriever: Any retriever.
        query_bundle: The query; retrievers of LlamaIndex may write into it.

    Returns:
        The retriever's hits.
    """
    if blocks_loop(retriever):
        return await asyncio.to_thread(retriever.retrieve, query_bundle)
    return await retriever.aretrieve(query_bundle)


def is_keyword(retriever: BaseRetriever) -> bool:
    """Return whether a retriever searches by words with BM25, told without importing bm25s.

    Args:
        retriever: Any retriever.

    Returns:
        Whether it is LlamaIndex's ``BM25Retriever``, a subclass of it, or a ``TransformRetriever``
        or the like around one.
    """
    inner: object = retriever
    while isinstance(inner, BaseRetriever):
        if any(base.__name__ == "BM25Retriever" for base in type(inner).__mro__):
            return True
        inner = getattr(inner, "_retriever", None)
    return False
