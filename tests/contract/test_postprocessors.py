"""Every postprocessor of ours passes the suite that users can run on theirs."""

from __future__ import annotations

import pytest
from llama_index.core.postprocessor import LongContextReorder
from llama_index.core.postprocessor.types import BaseNodePostprocessor

pytest.importorskip("sentence_transformers", reason="needs the extra 'models'")

from llama_index_hybrid_pack.indexing.embedding import SentenceTransformerEmbedding
from llama_index_hybrid_pack.metadata import ScoreScale
from llama_index_hybrid_pack.ranking.chain import PostprocessorChain
from llama_index_hybrid_pack.ranking.cross_encoder import CrossEncoderReranker
from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker
from llama_index_hybrid_pack.ranking.mmr import MMRPostprocessor
from llama_index_hybrid_pack.ranking.threshold import ScoreThreshold
from llama_index_hybrid_pack.testing.fakes import HashEmbedding
from llama_index_hybrid_pack.testing.postprocessor_contract import PostprocessorContract
from tests.tiny_models import save_tiny_cross_encoder, save_tiny_embedder


@pytest.fixture(scope="module")
def cross_encoder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_cross_encoder(tmp_path_factory.mktemp("cross_encoder"))


@pytest.fixture(scope="module")
def embed_model(tmp_path_factory: pytest.TempPathFactory) -> SentenceTransformerEmbedding:
    folder = tmp_path_factory.mktemp("embedder")
    return SentenceTransformerEmbedding(model_name=save_tiny_embedder(folder), device="cpu")


class TestCrossEncoderReranker(PostprocessorContract):
    @pytest.fixture(params=[0.0, 0.5, 1.0])
    def postprocessor(
        self, cross_encoder: str, request: pytest.FixtureRequest
    ) -> BaseNodePostprocessor:
        return CrossEncoderReranker(model=cross_encoder, top_n=4, blend_weight=request.param)


class TestCrossEncoderRerankerAsProbability(PostprocessorContract):
    @pytest.fixture
    def postprocessor(self, cross_encoder: str) -> BaseNodePostprocessor:
        return CrossEncoderReranker(
            model=cross_encoder, blend_weight=1.0, score_scale="probability", max_candidates=3
        )


class TestLateInteractionReranker(PostprocessorContract):
    @pytest.fixture(params=["z_score", "min_max"])
    def postprocessor(
        self, embed_model: SentenceTransformerEmbedding, request: pytest.FixtureRequest
    ) -> BaseNodePostprocessor:
        return LateInteractionReranker(embed_model=embed_model, blend_normalization=request.param)


class TestScoreThreshold(PostprocessorContract):
    needs_query = False

    @pytest.fixture
    def postprocessor(self) -> BaseNodePostprocessor:
        return ScoreThreshold(cutoff=0.0295, scale=ScoreScale.RANK)


class TestMMRPostprocessor(PostprocessorContract):
    needs_query = False

    @pytest.fixture
    def postprocessor(self) -> BaseNodePostprocessor:
        return MMRPostprocessor(top_n=4)


class TestMMRPostprocessorByQuery(PostprocessorContract):
    @pytest.fixture
    def postprocessor(self) -> BaseNodePostprocessor:
        return MMRPostprocessor(
            top_n=None, relevance="query", embed_model=HashEmbedding(dimensions=16)
        )


class TestPostprocessorChain(PostprocessorContract):
    @pytest.fixture
    def postprocessor(
        self, cross_encoder: str, embed_model: SentenceTransformerEmbedding
    ) -> BaseNodePostprocessor:
        return PostprocessorChain(
            steps=[
                LateInteractionReranker(embed_model=embed_model, top_n=None),
                PostprocessorChain(
                    steps=[
                        CrossEncoderReranker(model=cross_encoder, top_n=None, blend_weight=0.3),
                        ScoreThreshold(
                            cutoff=0.0, scale=ScoreScale.PROBABILITY, stage="cross_encoder"
                        ),
                    ]
                ),
                MMRPostprocessor(top_n=4),
                LongContextReorder(),
            ]
        )


class TestEmptyChain(PostprocessorContract):
    needs_query = False

    @pytest.fixture
    def postprocessor(self) -> BaseNodePostprocessor:
        return PostprocessorChain()
