"""Persisting: every setting comes back, a crash leaves the old file, damage is named."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from llama_index.core import Document
from llama_index.core.schema import (
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_hybrid_pack.errors import (
    StoreCorruptError,
    StoreError,
    StoreVersionError,
    StoreWriteError,
)
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.retrieval import _bm25_files as files
from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever

NODES = [
    TextNode(
        id_="1",
        text="Error E-504 in the café",
        metadata={"tenant": "red", "pages": [1, 2], "n": None},
        excluded_embed_metadata_keys=["tenant"],
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")},
        start_char_idx=3,
        end_char_idx=9,
    ),
    TextNode(id_="2", text="other words 报销", metadata={"tenant": "blue"}),
    Document(id_="3", text="A document about errors", metadata={"tenant": "red"}),
    IndexNode(id_="4", text="pointer to errors", index_id="x", metadata={"tenant": "red"}),
]


def found(hits: Sequence[NodeWithScore]) -> list[tuple[str, float | None, str]]:
    return [(hit.node_id, hit.score, hit.node.to_json()) for hit in hits]


def there_and_back(retriever: IdentifierBM25Retriever, path: Path) -> IdentifierBM25Retriever:
    retriever.persist(path)
    return IdentifierBM25Retriever.from_persist_dir(path)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


FILTER = MetadataFilters(
    condition=FilterCondition.OR,
    filters=[
        MetadataFilters(
            condition=FilterCondition.NOT,
            filters=[MetadataFilter(key="tenant", value="blue")],
        ),
        MetadataFilter(key="pages", value=[1, 7], operator=FilterOperator.IN),
        MetadataFilter(key="n", value=None, operator=FilterOperator.IS_EMPTY),
    ],
)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"analyzer": Analyzer(language="de", stop_words=("in",)), "k1": 0, "b": 0.3},
        {"analyzer": Analyzer(language=None, ngram=1), "similarity_top_k": 9, "b": 1},
        {"filters": FILTER, "metadata_mode": MetadataMode.NONE, "verbose": True, "k1": 2.5},
    ],
)
def test_every_setting_comes_back(options: dict[str, Any], tmp_path: Path) -> None:
    retriever = IdentifierBM25Retriever(NODES, **options)
    retriever.add([NODES[1]])
    again = there_and_back(retriever, tmp_path / "deep" / "folder")
    assert again.get_persist_args() == retriever.get_persist_args()
    assert again.generation == retriever.generation == 2
    assert len(again) == len(retriever)
    for query in ("E-504", "e504 error", "cafe", "报销", "document errors", "tenant red", "zebra"):
        assert found(again.retrieve(query)) == found(retriever.retrieve(query))
    again.add([TextNode(id_="9", text="zebra", metadata={"n": 5, "tenant": "red"})])
    assert [hit.node_id for hit in again.retrieve("zebra")] == ["9"], "it can be changed further"


@pytest.mark.parametrize(
    "node",
    [
        TextNode(id_="1", text="lone \ud800 surrogate apple"),
        TextNode(id_="1", text="apple", metadata={"x": float("inf"), "big": 10**30}),
        TextNode(id_="1", text="line\nbreak\u2028 apple\r\n", metadata={"a\nb": [1, {"c": None}]}),
        TextNode(id_="\n ", text="apple", metadata_separator="|", text_template="{content}"),
        Document(id_="1", text="apple", metadata={"x": 1}),
        IndexNode(id_="1", text="apple", index_id="i"),
    ],
)
def test_unusual_nodes_come_back(node: TextNode, tmp_path: Path) -> None:
    retriever = IdentifierBM25Retriever([node])
    (before,), (after,) = (
        each.retrieve("apple") for each in (retriever, there_and_back(retriever, tmp_path))
    )
    assert after.node == before.node
    assert type(after.node) is type(node)


def test_deleted_nodes_are_not_written(tmp_path: Path) -> None:
    retriever = IdentifierBM25Retriever(NODES, similarity_top_k=9)
    retriever.delete(["1"])
    again = there_and_back(retriever, tmp_path)
    assert len(again) == 3
    assert found(again.retrieve("errors")) == found(retriever.retrieve("errors"))
    with np.load(tmp_path / files.FILE_NAME) as arrays:
        assert b"E-504" not in arrays["nodes"].tobytes()


@pytest.mark.parametrize("texts", [[], [""], ["???"]])
def test_an_empty_index_comes_back(texts: list[str], tmp_path: Path) -> None:
    retriever = IdentifierBM25Retriever([TextNode(text=text) for text in texts])
    again = there_and_back(retriever, tmp_path)
    assert len(again) == len(texts)
    assert again.retrieve("apple") == []
    again.add([TextNode(id_="a", text="apple")])
    assert [hit.node_id for hit in again.retrieve("apple")] == ["a"]


def test_persisting_twice_leaves_one_file(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    retriever = IdentifierBM25Retriever(NODES)
    retriever.persist(str(tmp_path))
    retriever.add([TextNode(id_="z", text="zebra")])
    again = there_and_back(retriever, tmp_path)
    assert [hit.node_id for hit in again.retrieve("zebra")] == ["z"]
    assert names(tmp_path) == [files.FILE_NAME, "notes.txt"]


def test_another_release_of_the_stemmer_rebuilds_the_postings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    IdentifierBM25Retriever(NODES).persist(tmp_path)
    monkeypatch.setattr("llama_index_hybrid_pack.indexing.analyzer.stemmer_version", lambda: "99")
    monkeypatch.setattr(
        "llama_index_hybrid_pack.indexing.analysis.pipeline.stem", lambda name, word: word[:3]
    )
    again = IdentifierBM25Retriever.from_persist_dir(tmp_path)
    fresh = IdentifierBM25Retriever(NODES)
    assert found(again.retrieve("errands")) == found(fresh.retrieve("errands")) != []


def test_a_failing_write_keeps_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    IdentifierBM25Retriever(NODES).persist(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    changed = IdentifierBM25Retriever([TextNode(id_="z", text="zebra")])
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(StoreWriteError, match="No space left"):
            changed.persist(tmp_path)
    assert names(tmp_path) == [files.FILE_NAME], "nothing half-written stays"
    assert len(IdentifierBM25Retriever.from_persist_dir(tmp_path)) == len(NODES)


def test_a_process_killed_while_it_writes_leaves_the_old_file(tmp_path: Path) -> None:
    IdentifierBM25Retriever(NODES).persist(tmp_path)
    code = (
        "import os, sys\n"
        "from llama_index.core.schema import TextNode\n"
        "from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever\n"
        "os.fsync = lambda descriptor: os._exit(9)\n"
        "IdentifierBM25Retriever([TextNode(text='zebra')]).persist(sys.argv[1])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False, timeout=120)
    assert done.returncode == 9
    assert len(IdentifierBM25Retriever.from_persist_dir(tmp_path)) == len(NODES)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(StoreWriteError, match="permissions"):
        IdentifierBM25Retriever(NODES).persist(tmp_path)


def test_a_file_in_the_place_of_the_folder_is_named(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x", encoding="utf-8")
    with pytest.raises(StoreWriteError, match="file"):
        IdentifierBM25Retriever(NODES).persist(path)
    assert path.read_text(encoding="utf-8") == "x"


def test_metadata_that_is_no_json_is_named(tmp_path: Path) -> None:
    retriever = IdentifierBM25Retriever([TextNode(text="x", metadata={"other": object()})])
    with pytest.raises(StoreError, match="JSON"):
        retriever.persist(tmp_path)
    assert names(tmp_path) == []


def test_an_empty_folder_is_named(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing"):
        with pytest.raises(StoreCorruptError, match="nothing was persisted"):
            IdentifierBM25Retriever.from_persist_dir(path)


def test_a_folder_of_llama_index_is_named(tmp_path: Path) -> None:
    BM25Retriever.from_defaults(nodes=NODES[:2], similarity_top_k=1).persist(
        str(tmp_path), show_progress=False
    )
    with pytest.raises(StoreCorruptError, match="BM25Retriever"):
        IdentifierBM25Retriever.from_persist_dir(tmp_path)


def _rewrite(path: Path, **changes: Any) -> None:
    with np.load(path) as arrays:
        kept = {name: arrays[name] for name in arrays.files}
    kept.update(changes)
    with path.open("wb") as file:
        np.savez(file, **{name: value for name, value in kept.items() if value is not None})


def _header(path: Path) -> dict[str, Any]:
    with np.load(path) as arrays:
        header: dict[str, Any] = json.loads(arrays["header"].tobytes())
    return header


def _as_bytes(value: Any) -> Any:
    return np.frombuffer(json.dumps(value).encode(), dtype=np.uint8)


def test_a_newer_format_is_named(tmp_path: Path) -> None:
    IdentifierBM25Retriever(NODES).persist(tmp_path)
    path = tmp_path / files.FILE_NAME
    header = _header(path)
    _rewrite(path, header=_as_bytes({**header, "version": 2}))
    with pytest.raises(StoreVersionError, match="Update"):
        IdentifierBM25Retriever.from_persist_dir(tmp_path)
    newer = {**header["settings"], "analyzer": {**header["settings"]["analyzer"], "version": 99}}
    _rewrite(path, header=_as_bytes({**header, "settings": newer}))
    with pytest.raises(StoreVersionError, match="version 99"):
        IdentifierBM25Retriever.from_persist_dir(tmp_path)


@pytest.mark.parametrize(
    "changes",
    [
        {"docs": None},
        {"docs": np.array([99], dtype=np.int32)},
        {"docs": "negative"},
        {"starts": np.array([0, 5], dtype=np.int64)},
        {"lengths": np.zeros(1, dtype=np.int32)},
        {"nodes": np.frombuffer(b"{not json", dtype=np.uint8)},
        {"nodes": np.frombuffer(b"{}", dtype=np.uint8)},
        {"nodes": np.frombuffer(b"\xff", dtype=np.uint8)},
        {"header": _as_bytes([])},
        {"header": _as_bytes({"format": "other", "version": 1})},
        {"header": _as_bytes({"format": files.FORMAT, "version": 1})},
        {"header": _as_bytes({"format": files.FORMAT, "version": 1, "settings": {"k1": 1}})},
        {"vocabulary": np.zeros(0, dtype=np.uint8)},
    ],
    ids=str,
)
def test_content_that_does_not_fit_is_damage(changes: dict[str, Any], tmp_path: Path) -> None:
    IdentifierBM25Retriever(NODES).persist(tmp_path)
    path = tmp_path / files.FILE_NAME
    if changes == {"docs": "negative"}:
        with np.load(path) as arrays:
            changes = {"docs": arrays["docs"] - 1}
    _rewrite(path, **changes)
    with pytest.raises(StoreCorruptError, match="damaged"):
        IdentifierBM25Retriever.from_persist_dir(tmp_path)


def test_every_flipped_byte_is_noticed_or_harmless(tmp_path: Path) -> None:
    retriever = IdentifierBM25Retriever(NODES, similarity_top_k=9)
    retriever.persist(tmp_path)
    path = tmp_path / files.FILE_NAME
    whole = path.read_bytes()
    queries = ("errors E-504", "cafe words", "pointer document")
    expected = [found(retriever.retrieve(query)) for query in queries]
    for position in range(0, len(whole), max(1, len(whole) // 150)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x55
        path.write_bytes(bytes(damaged))
        try:
            again = IdentifierBM25Retriever.from_persist_dir(tmp_path)
        except (StoreCorruptError, StoreVersionError):
            continue
        assert [found(again.retrieve(query)) for query in queries] == expected


@pytest.mark.parametrize("kept", [0, 1, 100, 0.5, 0.99])
def test_a_cut_file_is_damage(kept: float, tmp_path: Path) -> None:
    IdentifierBM25Retriever(NODES).persist(tmp_path)
    path = tmp_path / files.FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept if kept >= 1 else kept * len(whole))])
    with pytest.raises(StoreCorruptError, match="damaged"):
        IdentifierBM25Retriever.from_persist_dir(tmp_path)


def test_nothing_is_unpickled(tmp_path: Path) -> None:
    IdentifierBM25Retriever(NODES).persist(tmp_path)
    path = tmp_path / files.FILE_NAME
    _rewrite(path, counts=np.array([object()], dtype=object))
    with pytest.raises(StoreCorruptError, match="allow_pickle"):
        IdentifierBM25Retriever.from_persist_dir(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("header.npy", b"nothing")
    with pytest.raises(StoreCorruptError):
        IdentifierBM25Retriever.from_persist_dir(tmp_path)
