"""Hybrid retrieval for LlamaIndex that holds up in production.

Names are loaded when they are first used, so that ``import llama_index_hybrid_pack`` is cheap.
"""

from __future__ import annotations

import importlib
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as _version
from typing import TYPE_CHECKING

try:
    __version__ = _version("llama-index-hybrid-pack")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0.0.0"

if TYPE_CHECKING:
    from llama_index_hybrid_pack.chunking.reader import read_folder
    from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
    from llama_index_hybrid_pack.config import PackOptions
    from llama_index_hybrid_pack.evaluation.evaluator import RetrievalEvaluator
    from llama_index_hybrid_pack.evaluation.golden_set import GoldenSet
    from llama_index_hybrid_pack.indexing.analyzer import Analyzer
    from llama_index_hybrid_pack.indexing.embedding import SentenceTransformerEmbedding
    from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
    from llama_index_hybrid_pack.pack import HybridPack
    from llama_index_hybrid_pack.ranking.chain import PostprocessorChain
    from llama_index_hybrid_pack.ranking.cross_encoder import CrossEncoderReranker
    from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker
    from llama_index_hybrid_pack.ranking.mmr import MMRPostprocessor
    from llama_index_hybrid_pack.ranking.retriever import RankingRetriever
    from llama_index_hybrid_pack.ranking.threshold import ScoreThreshold
    from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever
    from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
    from llama_index_hybrid_pack.retrieval.store import StoreRetriever

#: Public name → module that defines it.
_LOCATIONS = {
    "Analyzer": "indexing.analyzer",
    "CrossEncoderReranker": "ranking.cross_encoder",
    "GoldenSet": "evaluation.golden_set",
    "HybridFusionRetriever": "retrieval.fusion",
    "HybridPack": "pack",
    "IdentifierBM25Retriever": "retrieval.bm25",
    "LateInteractionReranker": "ranking.late_interaction",
    "LocalHybridStore": "indexing.stores.local",
    "MMRPostprocessor": "ranking.mmr",
    "PackOptions": "config",
    "PostprocessorChain": "ranking.chain",
    "RankingRetriever": "ranking.retriever",
    "RetrievalEvaluator": "evaluation.evaluator",
    "ScoreThreshold": "ranking.threshold",
    "SentenceTransformerEmbedding": "indexing.embedding",
    "StoreRetriever": "retrieval.store",
    "StructureNodeParser": "chunking.structure",
    "read_folder": "chunking.reader",
}

__all__ = [
    "Analyzer",
    "CrossEncoderReranker",
    "GoldenSet",
    "HybridFusionRetriever",
    "HybridPack",
    "IdentifierBM25Retriever",
    "LateInteractionReranker",
    "LocalHybridStore",
    "MMRPostprocessor",
    "PackOptions",
    "PostprocessorChain",
    "RankingRetriever",
    "RetrievalEvaluator",
    "ScoreThreshold",
    "SentenceTransformerEmbedding",
    "StoreRetriever",
    "StructureNodeParser",
    "read_folder",
]


def __getattr__(name: str) -> object:
    """Load a public name from the room that defines it."""
    if name not in _LOCATIONS:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    value = getattr(importlib.import_module(f"{__name__}.{_LOCATIONS[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_LOCATIONS})
