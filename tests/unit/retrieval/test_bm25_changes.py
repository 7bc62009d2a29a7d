"""Additions and deletions: searchable at once, like a fresh build, safe beside readers."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever

FRUIT = {"f1": "apple crumble", "f2": "apple share price", "f3": "banana loaf"}


def node(node_id: str, text: str, doc: str | None = None, **metadata: Any) -> TextNode:
    links = {} if doc is None else {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=doc)}
    return TextNode(id_=node_id, text=text, metadata=metadata, relationships=links)


def fruit(top_k: int = 10) -> IdentifierBM25Retriever:
    return IdentifierBM25Retriever(
        [node(name, text) for name, text in FRUIT.items()], similarity_top_k=top_k
    )


def found(hits: Sequence[NodeWithScore]) -> list[tuple[str, float | None]]:
    return [(hit.node_id, hit.score) for hit in hits]


def ids(retriever: IdentifierBM25Retriever, query: str) -> list[str]:
    return [hit.node_id for hit in retriever.retrieve(query)]


def test_the_reported_steps(cases_dir: Path) -> None:
    expected = json.loads((cases_dir / "B15.json").read_text(encoding="utf-8"))["expected"]
    retriever = fruit()
    before = retriever.generation
    assert retriever.add([node("new", "zeppelin manual")]) == ["new"]
    assert retriever.delete(["f1"]) == 1
    assert ids(retriever, "zeppelin") == expected["zeppelin"]
    assert not set(ids(retriever, "apple")) & set(expected["apple_excludes"])
    assert retriever.generation == before + 2


def test_a_known_id_takes_the_place_of_the_old_version() -> None:
    retriever = fruit()
    retriever.add([node("f1", "pear tart"), node("f9", "plum"), node("f9", "quince")])
    assert len(retriever) == 4
    assert ids(retriever, "crumble") == []
    assert ids(retriever, "pear") == ["f1"]
    assert ids(retriever, "plum") == []
    assert ids(retriever, "quince") == ["f9"], "of two with one id the last stands"


def test_statistics_follow_every_change() -> None:
    retriever = fruit()
    retriever.add([node("x", "apple pie with a long tail of words"), node("y", "banana")])
    retriever.delete(["f2", "x"])
    fresh = IdentifierBM25Retriever(
        [node("y", "banana"), node("f3", "banana loaf"), node("f1", "apple crumble")],
        similarity_top_k=10,
    )
    for query in ("apple", "banana loaf", "tail", "apple banana crumble"):
        assert found(retriever.retrieve(query)) == found(fresh.retrieve(query))


def test_a_change_of_nothing_is_no_change() -> None:
    retriever = fruit()
    before = retriever.generation
    assert retriever.add([]) == []
    assert retriever.delete(["unknown"]) == 0
    assert retriever.delete([]) == 0
    assert retriever.delete_ref_doc("unknown") == 0
    assert retriever.generation == before


def test_deleting_takes_one_id_or_many() -> None:
    retriever = fruit()
    assert retriever.delete("f1") == 1, "a single id is not a list of letters"
    assert retriever.delete(["f2", "f2", "f1"]) == 1
    assert len(retriever) == 1
    assert retriever.delete(iter(["f3"])) == 1
    assert len(retriever) == 0
    assert ids(retriever, "apple banana") == []
    retriever.add([node("f1", "apple")])
    assert ids(retriever, "apple") == ["f1"]


def test_a_document_is_deleted_with_all_its_nodes() -> None:
    retriever = IdentifierBM25Retriever(
        [node("1", "apple one", doc="A"), node("2", "apple two", doc="A")], similarity_top_k=9
    )
    retriever.add([node("3", "apple three", doc="B"), node("4", "apple four", doc="A")])
    assert retriever.delete_ref_doc("A") == 3
    assert ids(retriever, "apple") == ["3"]
    assert retriever.delete_ref_doc("A") == 0


def test_a_failing_addition_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    retriever = fruit()
    before = (retriever.generation, len(retriever), found(retriever.retrieve("apple")))
    with pytest.raises(ConfigError, match=r"nodes\[1\] is a NoneType"):
        retriever.add([node("x", "apple"), None])  # type: ignore[list-item]

    def fail(self: Analyzer, text: str) -> list[str]:
        raise RuntimeError("boom")

    with monkeypatch.context() as patch:
        patch.setattr(Analyzer, "terms", fail)
        with pytest.raises(RuntimeError, match="boom"):
            retriever.add([node("f1", "pear")])
    assert (retriever.generation, len(retriever), found(retriever.retrieve("apple"))) == before


def test_thousands_of_single_changes_leave_few_segments() -> None:
    retriever = IdentifierBM25Retriever(similarity_top_k=3)
    for number in range(600):
        retriever.add([node(f"n{number:04d}", f"word{number % 7} common E-{number}")])
    for number in range(0, 600, 2):
        retriever.delete([f"n{number:04d}"])
    parts = retriever._index.snapshot.parts
    assert len(parts) <= 8
    assert sum(len(part.segment.nodes) for part in parts) <= 2 * len(retriever)
    assert ids(retriever, "E-599")[0] == "n0599"
    assert "n0598" not in ids(retriever, "E-598")
    fresh = IdentifierBM25Retriever(
        [node(f"n{n:04d}", f"word{n % 7} common E-{n}") for n in range(1, 600, 2)],
        similarity_top_k=3,
    )
    assert found(retriever.retrieve("common word3")) == found(fresh.retrieve("common word3"))


def test_words_of_deleted_nodes_do_not_pile_up() -> None:
    retriever = IdentifierBM25Retriever([node("keep", "apple")])
    for number in range(200):
        retriever.add([node("x", " ".join(f"w{number}x{i}" for i in range(20)))])
    words = sum(len(part.segment.vocabulary) for part in retriever._index.snapshot.parts)
    assert words < 200


def test_a_search_sees_one_state_while_writers_work() -> None:
    # Every state holds exactly one version of each of 20 nodes, all of one number.
    retriever = IdentifierBM25Retriever(similarity_top_k=100)

    def version(number: int) -> list[TextNode]:
        return [node(f"n{i:02d}", f"shared version{number}", number=number) for i in range(20)]

    retriever.add(version(0))
    stop = threading.Event()
    wrong: list[object] = []

    def read() -> None:
        while not stop.is_set():
            try:
                hits = retriever.retrieve("shared")
                if len(hits) != 20 or len({hit.metadata["number"] for hit in hits}) != 1:
                    wrong.append([hit.metadata for hit in hits])
                scores = {hit.score for hit in hits}
                if len(scores) != 1:
                    wrong.append(scores)
            except Exception as error:
                wrong.append(error)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for number in range(1, 100):
        retriever.add(version(number))
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    assert retriever.generation == 101 - 1


def test_writers_do_not_lose_each_others_changes() -> None:
    retriever = IdentifierBM25Retriever(similarity_top_k=1000)

    def write(name: int) -> None:
        for number in range(30):
            retriever.add([node(f"{name}-{number}", "shared")])
        retriever.delete([f"{name}-0"])

    threads = [threading.Thread(target=write, args=(name,)) for name in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(retriever) == 6 * 29
    assert len(retriever.retrieve("shared")) == 6 * 29
    assert retriever.generation == 6 * 31
