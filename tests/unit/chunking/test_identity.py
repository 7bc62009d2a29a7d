"""Ids and digests."""

from __future__ import annotations

import uuid

import pytest

from llama_index_hybrid_pack.chunking import identity
from llama_index_hybrid_pack.chunking.identity import (
    NodeIds,
    fingerprint,
    function_from_name,
    function_name,
)
from llama_index_hybrid_pack.errors import ConfigError


def test_ids_are_uuids_of_version_five() -> None:
    made = NodeIds("s").make("doc", 0, 5)
    assert uuid.UUID(made).version == 5
    assert str(uuid.UUID(made)) == made
    for name in ("", "a", "some longer name 12 34", "x" * 500):
        assert identity._uuid5(name) == str(uuid.uuid5(identity._NAMESPACE, name))


def test_ids_tell_document_span_and_settings_apart() -> None:
    made = {
        NodeIds(settings).make(source, start, 10)
        for settings in ("s", "t")
        for source in ("d", "d 0", "\ud800")
        for start in (0, 1)
    }
    assert len(made) == 12


def test_a_span_that_comes_again_in_one_run_gets_another_id() -> None:
    ids = NodeIds("s")
    assert ids.make("d", 0, 5) != ids.make("d", 0, 5)
    assert NodeIds("s").make("d", 0, 5) == NodeIds("s").make("d", 0, 5)


def test_fingerprints_ignore_order() -> None:
    assert fingerprint({"a": 1, "b": None}) == fingerprint({"b": None, "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})


def test_functions_are_found_by_name_in_loaded_modules_only() -> None:
    assert function_from_name(function_name(uuid.uuid5)) is uuid.uuid5
    for name in ("antigravity:open", "uuid:nothing", "uuid:NAMESPACE_DNS", "uuid", ""):
        with pytest.raises(ConfigError):
            function_from_name(name)
