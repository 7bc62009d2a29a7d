"""The cross-encoder's own path with a tiny random model: loading, batches, cutting, activation."""

from __future__ import annotations

import asyncio
import copy
import importlib
import json
import pickle
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra 'models'")

from llama_index_hybrid_pack.errors import ConfigError, MissingExtraError, ModelNotFoundError
from llama_index_hybrid_pack.indexing import models
from llama_index_hybrid_pack.metadata import ScoreScale, current_scale, stage_scores
from llama_index_hybrid_pack.ranking.cross_encoder import CrossEncoderReranker
from llama_index_hybrid_pack.ranking.threshold import ScoreThreshold
from tests.tiny_models import MAX_LENGTH, save_tiny_cross_encoder, save_tiny_embedder
from tests.unit.ranking.scripted import hit, ids

QUERY = "how long"
TEXTS = ["ten days", "a", "error e-504 in export", "x y z", "cats", "q" * 200, "ten", "days ten"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_cross_encoder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def reference(tiny: str) -> list[float]:
    """The model's logits, one pair at a time, from transformers alone."""
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny)
    model = AutoModelForSequenceClassification.from_pretrained(tiny).eval()
    logits = []
    for text in TEXTS:
        features = tokenizer(
            QUERY, text, truncation=True, max_length=MAX_LENGTH, return_tensors="pt"
        )
        with torch.inference_mode():
            logits.append(float(model(**features).logits[0, 0]))
    return logits


def hits() -> list:
    return [hit(str(i), text, 1.0 - i / 10) for i, text in enumerate(TEXTS)]


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_scores_are_the_models_logits_whatever_the_batches(
    tiny: str, reference: list[float], batch_size: int
) -> None:
    reranker = CrossEncoderReranker(model=tiny, batch_size=batch_size, blend_weight=1, top_n=None)
    out = reranker.postprocess_nodes(hits(), query_str=QUERY)
    got = {h.node.node_id: h.score for h in out}
    assert [got[str(i)] for i in range(len(TEXTS))] == pytest.approx(reference, abs=1e-4)
    assert ids(out) == [str(i) for i in np.argsort(-np.array(reference))]
    # Otherwise a wrong order would not be seen.
    assert np.ptp(reference) > 1


@pytest.mark.parametrize("activation", ["Sigmoid", "Identity", "Tanh"])
def test_the_activation_in_the_models_files_does_not_change_the_score(
    tmp_path: Path, reference: list[float], activation: str
) -> None:
    """Case B23: one model's file says sigmoid, another's says nothing."""
    path = save_tiny_cross_encoder(
        tmp_path,
        activation=f"torch.nn.modules.activation.{activation}"
        if activation != "Identity"
        else "torch.nn.modules.linear.Identity",
    )
    reranker = CrossEncoderReranker(model=path)
    assert reranker.score_texts(QUERY, TEXTS) == pytest.approx(reference, abs=1e-4)


def test_probability_is_the_sigmoid_of_the_logit_in_the_same_order(
    tiny: str, reference: list[float]
) -> None:
    def run(scale: str) -> list:
        reranker = CrossEncoderReranker(model=tiny, blend_weight=1, top_n=None, score_scale=scale)
        return reranker.postprocess_nodes(hits(), query_str=QUERY)

    logits, probabilities = run("logit"), run("probability")
    assert ids(logits) == ids(probabilities)
    for a, b in zip(logits, probabilities, strict=True):
        assert b.score == pytest.approx(1 / (1 + np.exp(-a.score)))
        assert current_scale(a.node) is ScoreScale.LOGIT
        assert current_scale(b.node) is ScoreScale.PROBABILITY


@pytest.mark.parametrize("scale", ["logit", "probability"])
@pytest.mark.parametrize("weight", [0.5, 1.0])
def test_a_threshold_reads_its_own_score_also_after_blending(
    tiny: str, reference: list[float], scale: str, weight: float
) -> None:
    reranker = CrossEncoderReranker(model=tiny, blend_weight=weight, top_n=None, score_scale=scale)
    out = reranker.postprocess_nodes(hits(), query_str=QUERY)
    cutoff = 1 / (1 + np.exp(-np.median(reference)))
    kept = ScoreThreshold(
        cutoff=float(cutoff), scale="probability", stage="cross_encoder"
    ).postprocess_nodes(out)
    assert set(ids(kept)) == {str(i) for i, x in enumerate(reference) if x >= np.median(reference)}


def test_max_length_comes_from_the_model_and_can_be_shorter(tiny: str) -> None:
    long, longer = "a b " * 50, "a b " * 50 + "z"
    whole = CrossEncoderReranker(model=tiny)
    assert whole.score_texts(QUERY, [long]) == whole.score_texts(QUERY, [longer])
    assert whole._loaded().model.tokenizer.model_max_length == MAX_LENGTH
    short = CrossEncoderReranker(model=tiny, max_length=12)
    assert short.score_texts(QUERY, ["a b c d e f g h"]) != whole.score_texts(
        QUERY, ["a b c d e f g h"]
    )
    with pytest.raises(ConfigError, match=f"reads {MAX_LENGTH} tokens"):
        CrossEncoderReranker(model=tiny, max_length=512).score_texts(QUERY, ["a"])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_sixteen_bit_weights_keep_the_scores_near(
    tiny: str, reference: list[float], dtype: str
) -> None:
    scores = CrossEncoderReranker(model=tiny, dtype=dtype).score_texts(QUERY, TEXTS)
    # Weights of this model are large, so that rounding them shows.
    assert np.corrcoef(scores, reference)[0, 1] > 0.95
    assert scores != pytest.approx(reference, abs=1e-6)


def test_a_classifier_is_refused(tmp_path: Path) -> None:
    path = save_tiny_cross_encoder(tmp_path, num_labels=3)
    with pytest.raises(ConfigError, match="3 numbers per pair"):
        CrossEncoderReranker(model=path).postprocess_nodes(hits(), query_str=QUERY)


def test_an_embedding_model_is_refused_instead_of_scoring_at_random(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no cross-encoder"):
        CrossEncoderReranker(model=save_tiny_embedder(tmp_path)).postprocess_nodes(
            hits(), query_str=QUERY
        )


def test_the_default_model_needs_the_hub_and_says_so_offline() -> None:
    with pytest.raises(ModelNotFoundError, match="hf download"):
        CrossEncoderReranker().postprocess_nodes(hits(), query_str=QUERY)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=tmp_path.name):
        CrossEncoderReranker(model=str(tmp_path)).postprocess_nodes(hits(), query_str=QUERY)


def test_a_missing_extra_is_named(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> object:
        if name == "sentence_transformers":
            raise ModuleNotFoundError(name=name)
        return real(name, package)

    models.release_models()
    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"\[models\]"):
        CrossEncoderReranker(model=tiny).postprocess_nodes(hits(), query_str=QUERY)


def test_the_model_is_loaded_once_at_the_first_use_and_never_runs_its_code(
    tiny: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sentence_transformers

    models.release_models()
    original = sentence_transformers.CrossEncoder
    loads = []

    def counting(*args: object, **kwargs: object) -> object:
        loads.append(kwargs)
        return original(*args, **kwargs)

    monkeypatch.setattr(sentence_transformers, "CrossEncoder", counting)
    first = CrossEncoderReranker(model=tiny)
    assert loads == []
    want = first.score_texts(QUERY, TEXTS)
    for other in (
        copy.deepcopy(first),
        pickle.loads(pickle.dumps(first)),
        CrossEncoderReranker.from_json(first.to_json()),
        CrossEncoderReranker(model=tiny, top_n=1),
    ):
        assert other.score_texts(QUERY, TEXTS) == want
    assert len(loads) == 1
    assert loads[0]["trust_remote_code"] is False
    assert loads[0]["local_files_only"] is True


def test_threads_load_once_and_agree(tiny: str, reference: list[float]) -> None:
    models.release_models()
    reranker = CrossEncoderReranker(model=tiny, batch_size=2)
    barrier = threading.Barrier(8)

    def run(_: int) -> list[float]:
        barrier.wait()
        return reranker.score_texts(QUERY, TEXTS)

    with ThreadPoolExecutor(8) as pool:
        for scores in pool.map(run, range(8)):
            assert scores == pytest.approx(reference, abs=1e-4)


async def test_async_leaves_the_event_loop_free(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: object, query: str, texts: list[str]) -> list[float]:
        time.sleep(0.2)
        return [0.0] * len(texts)

    monkeypatch.setattr(CrossEncoderReranker, "score_texts", slow)
    reranker = CrossEncoderReranker(model=tiny)
    task = asyncio.ensure_future(reranker.apostprocess_nodes(hits(), query_str=QUERY))
    ticks = 0
    while not task.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks > 5


def test_case_b57_scores_are_plain_floats(tiny: str) -> None:
    for weight in (0.0, 0.5, 1.0):
        out = CrossEncoderReranker(model=tiny, blend_weight=weight).postprocess_nodes(
            hits(), query_str=QUERY
        )
        assert {type(h.score) for h in out} == {float}
        json.dumps([h.to_dict() for h in out])
        assert all(
            type(entry["score"]) is float for h in out for entry in stage_scores(h.node).values()
        )
