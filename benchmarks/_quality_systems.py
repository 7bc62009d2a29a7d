"""The systems of the quality benchmark: ours and LlamaIndex's, over the same nodes and vectors."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.llms import MockLLM
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import BaseNode, NodeWithScore, QueryBundle
from llama_index.retrievers.bm25 import BM25Retriever

from benchmarks._quality_data import CachedEmbedder, Corpus
from llama_index_hybrid_pack.config import PackOptions
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.ranking.cross_encoder import CrossEncoderReranker
from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker
from llama_index_hybrid_pack.retrieval.fusion import HybridFusionRetriever
from llama_index_hybrid_pack.retrieval.store import StoreRetriever

#: Length of the lists, as in the figures measured before this project.
DEPTH = 100
DEFAULTS = PackOptions()
INCUMBENT = "LlamaIndex dist_based_score"


@dataclass(frozen=True)
class System:
    """One row of a table."""

    name: str
    retriever: BaseRetriever
    postprocessors: tuple[BaseNodePostprocessor, ...] = ()
    options: dict[str, object] = field(default_factory=dict)


class Recorded(BaseRetriever):
    """Asks a retriever once per question, and hands on copies of the first hits.

    LlamaIndex's vector store takes 0.1 s per question, and its fusion writes into what it gets.
    """

    def __init__(self, retriever: BaseRetriever, top_k: int = DEPTH) -> None:
        super().__init__()
        self._retriever = retriever
        self._top_k = top_k
        self._found: dict[str, list[NodeWithScore]] = {}

    def first(self, top_k: int) -> Recorded:
        """Return the same retriever with shorter lists; both share what was found."""
        view = Recorded(self._retriever, top_k)
        view._found = self._found
        return view

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        text = query_bundle.query_str
        if text not in self._found:
            self._found[text] = self._retriever.retrieve(query_bundle)
        return [NodeWithScore(node=h.node, score=h.score) for h in self._found[text][: self._top_k]]


class Relabelled(BaseRetriever):
    """Hands on copies whose nodes have other metadata: LlamaIndex's fusion goes by text and that.

    Args:
        keep: Keys that stay. None, as in many a tutorial: nodes of equal text become one. The id
            alone: hits of our legs meet, although each leg's stage record is another.
    """

    def __init__(self, retriever: BaseRetriever, keep: tuple[str, ...] = ()) -> None:
        super().__init__()
        self._retriever = retriever
        self._keep = keep

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(node=self._copy(hit.node), score=hit.score)
            for hit in self._retriever.retrieve(query_bundle)
        ]

    def _copy(self, node: BaseNode) -> BaseNode:
        metadata = {key: node.metadata[key] for key in self._keep}
        return node.model_copy(update={"metadata": metadata})


class Systems:
    """Every retriever over one corpus."""

    def __init__(
        self, corpus: Corpus, embedder: CachedEmbedder, cross_encoder: str | None = None
    ) -> None:
        self.embedder = embedder
        self.cross_encoder = cross_encoder
        self.store = LocalHybridStore()
        self.store.add(corpus.nodes)
        self.dense = Recorded(StoreRetriever(self.store, leg="dense", similarity_top_k=DEPTH))
        self.bm25 = Recorded(StoreRetriever(self.store, leg="bm25", similarity_top_k=DEPTH))
        with _quiet():
            index = VectorStoreIndex(list(corpus.nodes), embed_model=MockEmbedding(embed_dim=2))
            lexical = BM25Retriever.from_defaults(
                nodes=list(corpus.nodes), similarity_top_k=min(DEPTH, len(corpus.nodes))
            )
        self.their_dense = Recorded(index.as_retriever(similarity_top_k=DEPTH))
        self.their_bm25 = Recorded(lexical)

    def hybrid(self, **options: object) -> HybridFusionRetriever:
        """The pack's own retriever, lists of 100 unless said."""
        retrieval = DEFAULTS.retrieval
        chosen: dict[str, object] = {
            "mode": retrieval.mode,
            "normalization": retrieval.normalization,
            "dense_weight": retrieval.dense_weight,
            "leg_top_k": DEPTH,
            "similarity_top_k": DEPTH,
            **options,
        }
        return HybridFusionRetriever.from_store(self.store, **chosen)  # type: ignore[arg-type]

    def fused(self, depth: int, dense_weight: float = 0.5, **options: object) -> BaseRetriever:
        """Fuse recorded lists: the same as :meth:`hybrid`, without searching anew."""
        return HybridFusionRetriever(
            [self.dense.first(depth), self.bm25.first(depth)],
            weights=[dense_weight, 1.0 - dense_weight],
            similarity_top_k=DEPTH,
            names=["dense", "bm25"],
            **options,  # type: ignore[arg-type]
        )

    def theirs(self, mode: str, dense: BaseRetriever, bm25: BaseRetriever) -> BaseRetriever:
        return QueryFusionRetriever(
            [dense, bm25],
            llm=MockLLM(),
            mode=mode,  # type: ignore[arg-type]
            similarity_top_k=DEPTH,
            num_queries=1,
            use_async=False,
        )

    def late_interaction(self, weight: float, candidates: int = 30) -> LateInteractionReranker:
        return LateInteractionReranker(
            embed_model=self.embedder,
            top_n=None,
            max_candidates=candidates,
            blend_weight=weight,
        )

    def development(self) -> Iterator[System]:
        """What the defaults are chosen among: few parameters, each on a coarse grid."""
        for depth in (30, 50, 100):
            yield System(f"rrf, depth {depth}", self.fused(depth, mode="rrf"))
            for normalization in ("min_max", "z_score", "dist_based", "theoretical"):
                name = f"{normalization}, depth {depth}"
                yield System(name, self.fused(depth, normalization=normalization))
        for normalization in ("min_max", "z_score"):
            for weight in (0.3, 0.4, 0.6, 0.7):
                name = f"{normalization}, depth 100, dense {weight}"
                retriever = self.fused(100, weight, normalization=normalization)
                yield System(name, retriever)
        retriever = self.fused(100, normalization="z_score")
        for weight in (0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0):
            reranker = self.late_interaction(weight)
            yield System(f"z_score, depth 100, late interaction {weight}", retriever, (reranker,))
        for candidates in (20, 50):
            reranker = self.late_interaction(0.4, candidates)
            name = f"z_score, depth 100, late interaction 0.4 over {candidates}"
            yield System(name, retriever, (reranker,))

    def held_out(self) -> Iterator[System]:
        """What is reported."""
        yield System("LlamaIndex BM25Retriever", self.their_bm25)
        yield System("LlamaIndex VectorStoreIndex", self.their_dense)
        for mode in ("simple", "reciprocal_rerank", "relative_score", "dist_based_score"):
            yield System(f"LlamaIndex {mode}", self.theirs(mode, self.their_dense, self.their_bm25))
        bare = Relabelled(self.their_dense), Relabelled(self.their_bm25)
        yield System(f"{INCUMBENT}, no metadata", self.theirs("dist_based_score", *bare))
        yield System("BM25", self.bm25)
        yield System("dense", self.dense)
        yield System("rrf", self.hybrid(mode="rrf"))
        for normalization in ("min_max", "dist_based"):
            yield System(normalization, self.hybrid(normalization=normalization))
        yield System("hybrid", self.hybrid())
        yield System("hybrid, 30 per leg", self.hybrid(leg_top_k=30))
        yield System(
            "our fusion, LlamaIndex's legs",
            HybridFusionRetriever(
                [self.their_dense, self.their_bm25],
                normalization=DEFAULTS.retrieval.normalization,
                similarity_top_k=DEPTH,
            ),
        )
        ours = Relabelled(self.dense, ("id",)), Relabelled(self.bm25, ("id",))
        yield System("LlamaIndex's fusion, our legs", self.theirs("dist_based_score", *ours))
        weight, candidates = DEFAULTS.ranking.blend_weight, DEFAULTS.ranking.candidates
        yield System(
            "late interaction alone", self.hybrid(), (self.late_interaction(1.0, candidates),)
        )
        yield System(
            "hybrid + late interaction",
            self.hybrid(),
            (self.late_interaction(weight, candidates),),
        )
        if self.cross_encoder is not None:
            for share, label in ((1.0, "cross-encoder alone"), (weight, "hybrid + cross-encoder")):
                reranker = CrossEncoderReranker(
                    model=self.cross_encoder,
                    top_n=None,
                    max_candidates=candidates,
                    blend_weight=share,
                )
                yield System(label, self.hybrid(), (reranker,))


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep bm25s's and LlamaIndex's remarks about small corpora out of the output."""
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(level)
