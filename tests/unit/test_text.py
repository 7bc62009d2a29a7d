"""Tokenizers by name: counts and spans agree, offline, with clear errors."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from llama_index_hybrid_pack.errors import ConfigError, ModelNotFoundError
from llama_index_hybrid_pack.text import DEFAULT_TOKENIZER, get_tokenizer

TEXTS = [
    "Refunds take ten days.",
    "",
    " \n\t",
    "E-504 & C++",
    "日本語のテキスト",
    "👩‍👩‍👧 family",
    "naïve café",
]


@pytest.mark.parametrize("text", TEXTS)
def test_spans_are_ordered_inside_the_text_and_as_many_as_counted(text: str) -> None:
    tokenizer = get_tokenizer()
    spans = tokenizer.spans(text)
    assert len(spans) == tokenizer.count(text)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert spans == sorted(spans)
    assert "".join(text[start:end] for start, end in spans) == text


@pytest.mark.integration
@pytest.mark.parametrize("text", TEXTS)
def test_the_models_own_tokenizer_counts_like_its_spans(text: str, model_path: str) -> None:
    tokenizer = get_tokenizer(model_path)
    spans = tokenizer.spans(text)
    assert len(spans) == tokenizer.count(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)


@pytest.mark.integration
def test_a_long_text_is_counted_whole_not_cut_at_the_models_window(model_path: str) -> None:
    assert get_tokenizer(model_path).count("money " * 3000) == 3000


def test_one_tokenizer_is_shared_by_threads() -> None:
    with ThreadPoolExecutor(8) as pool:
        loaded = list(pool.map(lambda _: get_tokenizer(), range(32)))
    assert all(tokenizer is loaded[0] for tokenizer in loaded)
    assert loaded[0].name == DEFAULT_TOKENIZER


def test_a_wrong_name_says_what_is_allowed(tmp_path: Path) -> None:
    with pytest.raises(ModelNotFoundError, match=r"tokenizer\.json"):
        get_tokenizer(str(tmp_path))
    with pytest.raises(ConfigError, match="empty"):
        get_tokenizer("")
