"""Options read from and written to YAML, presets, and errors that name the option."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from pydantic import ValidationError

from llama_index_hybrid_pack.config import PackOptions, RankingOptions, RetrievalOptions
from llama_index_hybrid_pack.errors import ConfigError


def test_options_survive_yaml(tmp_path: Path) -> None:
    options = PackOptions(
        retrieval=RetrievalOptions(leg_top_k=77, dense_weight=0.0),
        ranking=RankingOptions(mmr_lambda=0.0, top_n=3),
        language=None,
    )
    options.to_yaml(tmp_path / "options.yaml")
    assert PackOptions.from_yaml(tmp_path / "options.yaml") == options


def test_what_the_file_leaves_out_keeps_its_default(tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text("ranking: {top_n: 9}")
    options = PackOptions.from_yaml(tmp_path / "o.yaml")
    assert options.ranking.top_n == 9
    assert options.retrieval == RetrievalOptions()


def test_an_empty_file_means_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text("")
    assert PackOptions.from_yaml(tmp_path / "o.yaml") == PackOptions()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("ranking: {top_n: 0}", "ranking.top_n"),
        ("ranking: {topn: 5}", "ranking.topn"),
        ("retrieval: {dense_weight: 1.5}", "retrieval.dense_weight"),
        ("retrieval: {mode: magic}", "retrieval.mode"),
        ("- a\n- b", "list"),
        ("a: [", "cannot be read"),
    ],
)
def test_a_wrong_file_is_named_with_its_option(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "o.yaml").write_text(text)
    with pytest.raises(ConfigError, match=named.replace(".", ".*")):
        PackOptions.from_yaml(tmp_path / "o.yaml")


def test_a_missing_file_is_a_config_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        PackOptions.from_yaml(tmp_path / "none.yaml")


def test_options_are_frozen_hashable_and_copyable() -> None:
    options = PackOptions()
    with pytest.raises(ValidationError):
        options.language = "de"  # type: ignore[misc]
    assert hash(options) == hash(PackOptions())
    assert pickle.loads(pickle.dumps(options)) == options
    assert copy.deepcopy(options) == options


def test_an_unknown_preset_lists_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="cross_encoder"):
        PackOptions.preset("turbo")  # type: ignore[arg-type]
