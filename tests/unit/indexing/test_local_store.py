"""The embedded store's own behaviour, beside the contract that every store is held to."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import shutil
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.schema import (
    Document,
    ImageNode,
    IndexNode,
    MediaResource,
    Node,
    NodeRelationship,
    ObjectType,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.vector_stores.types import VectorStoreQuery, VectorStoreQueryMode

from llama_index_hybrid_pack.errors import (
    ConfigError,
    EmbeddingError,
    FilterError,
    StoreCorruptError,
    StoreError,
    StoreVersionError,
    StoreWriteError,
)
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.indexing.filters import FieldType
from llama_index_hybrid_pack.indexing.stores.base import BM25, DENSE, SearchRequest
from llama_index_hybrid_pack.indexing.stores.local import LocalHybridStore
from llama_index_hybrid_pack.testing.builders import (
    embed,
    embed_model,
    make_node,
    vector,
    where,
)
from tests.store_states import assert_holds, nodes_of

Mode = VectorStoreQueryMode


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def words(store: LocalHybridStore, text: str, **options: object) -> list[str]:
    return store.search(SearchRequest(query_str=text, **options)).legs[BM25].ids


class TestOpening:
    def test_a_file_is_refused(self, tmp_path: Path) -> None:
        file = tmp_path / "file"
        file.write_text("text")
        with pytest.raises(StoreError, match="is a file"):
            LocalHybridStore(file)

    def test_a_folder_with_other_things_is_refused_and_left_alone(self, path: Path) -> None:
        path.mkdir()
        (path / "thesis.doc").write_text("text")
        with pytest.raises(StoreError, match=r"not a store.*'thesis\.doc'"):
            LocalHybridStore(path)
        assert [file.name for file in path.iterdir()] == ["thesis.doc"]

    def test_an_empty_folder_is_taken(self, path: Path) -> None:
        path.mkdir()
        (path / ".gitkeep").touch()
        with LocalHybridStore(path) as store:
            assert store.count() == 0

    def test_missing_parents_are_made(self, path: Path) -> None:
        with LocalHybridStore(path / "deep" / "er?#%20é") as store:
            store.add([make_node("a", "apple")])
        with LocalHybridStore(path / "deep" / "er?#%20é") as store:
            assert store.count() == 1

    def test_open_and_read_only_make_nothing(self, path: Path) -> None:
        with pytest.raises(StoreError, match="no store at"):
            LocalHybridStore.open(path)
        with pytest.raises(StoreError, match="no store at"):
            LocalHybridStore(path, read_only=True)
        assert not path.exists()

    def test_a_foreign_database_is_refused(self, path: Path) -> None:
        path.mkdir()
        connection = sqlite3.connect(path / "store.db")
        connection.execute("CREATE TABLE other (x)")
        connection.close()
        with pytest.raises(StoreError, match="another program"):
            LocalHybridStore(path)

    def test_a_newer_version_is_refused(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "apple")])
        connection = sqlite3.connect(path / "store.db")
        connection.execute("PRAGMA user_version=99")
        connection.close()
        with pytest.raises(StoreVersionError, match=r"format 99.*Install a newer version"):
            LocalHybridStore(path)

    @pytest.mark.parametrize("content", [b"not a database at all" * 100, b"SQLite format 3\0junk"])
    def test_a_table_that_is_no_database_is_reported(self, path: Path, content: bytes) -> None:
        path.mkdir()
        (path / "store.db").write_bytes(content)
        with pytest.raises(StoreCorruptError, match="cannot be read"):
            LocalHybridStore(path)

    def test_making_that_was_cut_short_is_finished(self, path: Path) -> None:
        path.mkdir()
        (path / "store.db").touch()
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "apple")])
            assert store.count() == 1

    def test_another_dimension_is_refused(self, path: Path) -> None:
        with LocalHybridStore(path, dimension=32) as store:
            assert store.describe()["dimension"] == 32
        with pytest.raises(EmbeddingError, match=r"dimension 32, not 384.*make a new store"):
            LocalHybridStore(path, dimension=384)

    def test_another_analyzer_is_refused_until_reindexed(self, path: Path) -> None:
        german = Analyzer(language="de")
        with LocalHybridStore(path) as store:
            assert store.analyzer == Analyzer()
            store.add([make_node("a", "die Häuser")])
        with pytest.raises(ConfigError, match="reindex"):
            LocalHybridStore(path, analyzer=german)
        with LocalHybridStore(path) as store:
            assert words(store, "Haus") == []
            store.reindex(analyzer=german)
            assert store.analyzer == german
            assert words(store, "Haus") == ["a"]
        with LocalHybridStore(path) as store:
            assert store.analyzer == german
            assert words(store, "Haus") == ["a"]

    def test_another_process_sees_a_new_analyzer(self, path: Path) -> None:
        with LocalHybridStore(path) as store, LocalHybridStore(path, read_only=True) as reader:
            store.add([make_node("a", "die Häuser")])
            assert words(reader, "Haus") == []
            store.reindex(analyzer=Analyzer(language="de"))
            assert words(reader, "Haus") == ["a"]

    def test_declared_fields_can_be_changed(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "apple", metadata={"year": "2020"})])
            later = where("year", 2019, ">")
            assert words(store, "apple", filters=later) == []
            store.reindex(metadata_schema={"year": "int"})
            assert words(store, "apple", filters=later) == ["a"]
        with pytest.raises(ConfigError, match=r"year.*reindex"):
            LocalHybridStore(path, metadata_schema={"year": "str"})
        with LocalHybridStore(path) as store:
            assert store.metadata_schema == {"year": FieldType.INT}
            assert words(store, "apple", filters=later) == ["a"]

    def test_facets_of_older_rules_are_written_anew(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "apple", metadata={"tenant": "red"})])
        connection = sqlite3.connect(path / "store.db")
        connection.execute("UPDATE meta SET value = '\"older\"' WHERE key = 'facets'")
        connection.execute("DELETE FROM facets")
        connection.commit()
        connection.close()
        with pytest.raises(StoreError, match="older version"):
            LocalHybridStore(path, read_only=True)
        with LocalHybridStore(path) as store:
            assert words(store, "apple", filters=where("tenant", "red")) == ["a"]

    @pytest.mark.parametrize(
        "options",
        [
            {"dimension": 0},
            {"lock_timeout": -1},
            {"unknown_fields": "ignore"},
            {"unknown_option": 1},
            {"hybrid_depth": 0},
            {"inverted_above": -1},
        ],
        ids=str,
    )
    def test_options_out_of_range_are_refused(self, path: Path, options: dict) -> None:
        with pytest.raises(ConfigError, match=next(iter(options))):
            LocalHybridStore(path, **options)
        assert not path.exists()

    def test_options_are_fixed(self, path: Path) -> None:
        with LocalHybridStore(path) as store, pytest.raises(ValueError, match="frozen"):
            store.read_only = True


class TestLifetime:
    def test_a_closed_store_says_so(self, path: Path) -> None:
        store = LocalHybridStore(path)
        store.add([make_node("a", "apple")])
        store.close()
        store.close()
        for use in (
            store.count,
            lambda: words(store, "apple"),
            lambda: store.add([make_node("b")]),
        ):
            with pytest.raises(StoreError, match="closed"):
                use()
        assert not (path / "store.db-wal").exists()

    def test_a_store_without_a_path_is_removed_with_the_object(self) -> None:
        store = LocalHybridStore()
        store.add([make_node("a", "apple")])
        folder = store.client.path
        assert folder.is_dir()
        assert words(store, "apple") == ["a"]
        del store
        assert not folder.exists()

    def test_a_store_without_a_path_cannot_be_pickled(self) -> None:
        with LocalHybridStore() as store, pytest.raises(StoreError, match="Give it a path"):
            pickle.dumps(store)

    def test_pickle_opens_the_folder_again(self, path: Path) -> None:
        with LocalHybridStore(path, unknown_fields="missing", lock_timeout=3) as store:
            store.add([make_node("a", "apple")])
            with pickle.loads(pickle.dumps(store)) as twin:
                assert twin is not store
                assert (twin.lock_timeout, twin.unknown_fields) == (3, "missing")
                twin.add([make_node("b")])
            assert words(store, "b") == ["b"]

    def test_copies_are_the_same_store(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            assert copy.copy(store) is store
            assert copy.deepcopy({"store": store})["store"] is store
            assert store == store
            assert len({store, copy.copy(store)}) == 1

    def test_dict_round_trip(self, path: Path) -> None:
        options = {"metadata_schema": {"year": "int"}, "dimension": 32, "hybrid_depth": 7}
        with LocalHybridStore(path, analyzer=Analyzer(language="de"), **options) as store:
            data = json.loads(json.dumps(store.to_dict()))
            assert data["class_name"] == "LocalHybridStore"
            with LocalHybridStore.from_dict(data) as twin:
                assert twin.to_dict() == store.to_dict()
                assert twin.analyzer == Analyzer(language="de")


class TestWriting:
    def test_duplicate_ids_with_different_content_are_refused(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "old")])
            with pytest.raises(ConfigError, match=r"'a'.*id of its own"):
                store.add([make_node("b"), make_node("a", "one"), make_node("a", "two")])
            assert store.count() == 1
            assert words(store, "old") == ["a"]

    def test_exact_copies_count_once(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            assert store.add([make_node("a", "apple"), make_node("a", "apple")]) == ["a", "a"]
            assert store.count() == 1

    @pytest.mark.parametrize(
        ("embedding", "problem"),
        [
            (None, "no embedding: 'bad'"),
            ([], "no embedding: 'bad'"),
            ([1.0, 2.0], "dimension 2 instead of 32: 'bad'"),
            (vector(float("nan")), "NaN or infinite values: 'bad'"),
            (vector(float("inf")), "NaN or infinite values: 'bad'"),
            (vector(1e39), "NaN or infinite values: 'bad'"),
        ],
        ids=["missing", "empty", "short", "nan", "infinite", "too large"],
    )
    @pytest.mark.parametrize("first", [True, False])
    def test_bad_vectors_name_their_nodes_and_write_nothing(
        self, path: Path, embedding: list[float] | None, problem: str, first: bool
    ) -> None:
        bad = make_node("bad")
        bad.embedding = embedding
        with LocalHybridStore(path, dimension=32 if first else None) as store:
            if not first:
                store.add([make_node("old")])
            before = store.generation
            with pytest.raises(EmbeddingError, match=problem):
                store.add([make_node("good"), bad])
            assert (store.count(), store.generation) == (int(not first), before)
            assert words(store, "good") == []

    def test_an_error_late_in_a_large_batch_rolls_everything_back(self, path: Path) -> None:
        many = [make_node(f"n{number}") for number in range(2500)]
        many[-1].embedding = [1.0]
        with LocalHybridStore(path) as store:
            with pytest.raises(EmbeddingError, match="n2499"):
                store.add(many)
            assert store.count() == 0
            store.add(many[:-1])
            assert store.count() == 2499
            assert words(store, "n1234") == ["n1234"]

    def test_a_node_that_would_lose_fields_is_refused(self, path: Path) -> None:
        class Priced(TextNode):
            price: float = 0.0

        class Renamed(TextNode):
            pass

        with LocalHybridStore(path) as store:
            with pytest.raises(ConfigError, match="Priced cannot be stored"):
                store.add([Priced(id_="p", text="x", price=2.0, embedding=vector(1))])
            store.add([Renamed(id_="r", text="x", embedding=vector(1))])
            assert type(store.get_nodes(["r"])[0]) is TextNode

    @pytest.mark.parametrize("node_id", ["", "a\x00b", "lone \ud800"])
    def test_ids_that_sqlite_cannot_find_again_are_refused(self, path: Path, node_id: str) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "apple")])
            with pytest.raises(ConfigError, match="cannot be stored"):
                store.add([make_node(node_id, "text")])
            assert store.get_nodes([node_id]) == []
            store.delete_nodes([node_id])
            assert store.count() == 1

    def test_metadata_that_is_not_json_is_refused(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            with pytest.raises(ConfigError, match="'a' cannot be stored"):
                store.add([make_node("a", "apple", metadata={"handle": object()})])
            assert store.count() == 0

    def test_unknown_keyword_arguments_are_refused(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            with pytest.raises(ConfigError, match="batch_size"):
                store.add([make_node("a", "apple")], batch_size=3)
            with pytest.raises(ConfigError, match="soft"):
                store.delete("a", soft=True)
            with pytest.raises(ConfigError, match="top"):
                store.query(VectorStoreQuery(query_embedding=vector(1)), top=3)

    def test_nothing_to_do_is_no_generation(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "apple", doc_id="d")])
            before = store.generation
            store.add([])
            store.delete("unknown")
            store.delete_nodes(["unknown"])
            store.delete_nodes([])
            store.apply([], delete_node_ids=["unknown"])
            store.update_metadata({})
            assert store.generation == before

    def test_read_only_refuses_every_write(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "apple", doc_id="d")])
        with LocalHybridStore(path, read_only=True) as store:
            for write in (
                lambda: store.add([make_node("b")]),
                lambda: store.delete("d"),
                lambda: store.delete_nodes(["a"]),
                store.clear,
                store.optimize,
                lambda: store.update_metadata({"a": {}}),
                lambda: store.reindex(analyzer=Analyzer(language="de")),
            ):
                with pytest.raises(StoreWriteError, match="read_only=True"):
                    write()
            assert words(store, "apple") == ["a"]

    def test_update_metadata_keeps_text_and_vector(self, path: Path) -> None:
        node = make_node("a", "text", doc_id="d", metadata={"acl": "hr", "page": 3})
        node.excluded_embed_metadata_keys = ["acl"]
        with LocalHybridStore(path) as store:
            store.add([node, make_node("b", metadata={"acl": "hr"})])
            store.update_metadata({"a": {"acl": "all", "page": 3}})
            (changed,) = store.get_nodes(filters=where("acl", "all"), include_embeddings=True)
            assert changed.metadata == {"acl": "all", "page": 3}
            assert (changed.text, changed.ref_doc_id) == ("text", "d")
            assert changed.excluded_embed_metadata_keys == ["acl"]
            assert changed.embedding == pytest.approx(node.embedding, abs=1e-7)
            assert words(store, "text", filters=where("acl", "hr")) == []
            with pytest.raises(StoreError, match="'nobody'"):
                store.update_metadata({"b": {}, "nobody": {}})
            assert store.get_nodes(["b"])[0].metadata == {"acl": "hr"}

    def test_optimize_gives_space_back(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node(f"n{number}", "text " * 200) for number in range(600)])
            store.delete_nodes([f"n{number}" for number in range(1, 600)])
            before = store.describe()["bytes_on_disk"]
            store.optimize()
            after = store.describe()
            assert after["bytes_on_disk"]["table"] < before["table"] / 4
            assert after["bytes_on_disk"]["dense"] < before["dense"] / 4
            assert (after["dense"]["rows"], after["lexical"]["documents"]) == (1, 1)

    def test_a_node_comes_back_as_it_was(self, path: Path) -> None:
        plain = TextNode(
            id_="plain",
            text="Ümlaut 東京 lone \ud800 surrogate \x00 nul",
            metadata={"n": 1, "f": 0.5, "b": True, "none": None, "l": ["x", 2], "d": {"k": [1]}},
            excluded_embed_metadata_keys=["n"],
            excluded_llm_metadata_keys=["f"],
            metadata_template="{key}={value}",
            metadata_separator=";",
            text_template="{content}|{metadata_str}",
            start_char_idx=0,
            end_char_idx=7,
            mimetype="text/markdown",
            relationships={
                NodeRelationship.SOURCE: RelatedNodeInfo(
                    node_id="doc", node_type=ObjectType.DOCUMENT, metadata={"k": 1}, hash="h"
                ),
                NodeRelationship.NEXT: RelatedNodeInfo(node_id="next"),
                NodeRelationship.CHILD: [RelatedNodeInfo(node_id="c1")],
            },
            embedding=vector(1, 2),
        )
        index = IndexNode(
            id_="index", text="points", index_id="i1", obj=TextNode(id_="in", text="inner")
        )
        image = ImageNode(id_="image", text="caption", image_url="http://x/y.png")
        rich = Node(
            id_="rich",
            text_resource=MediaResource(text="rich text"),
            image_resource=MediaResource(url="http://x/z.png"),
        )
        document = Document(id_="document", text="whole page", metadata={"a": "b"})
        nodes = [plain, index, image, rich, document]
        for node in nodes[1:]:
            node.embedding = vector(3)
        with LocalHybridStore(path) as store:
            store.add(nodes)
            back = store.get_nodes([node.node_id for node in nodes], include_embeddings=True)
            for node, found in zip(nodes, back, strict=True):
                assert type(found) is type(node)
                assert found.to_dict() == node.to_dict()
            assert back[0] == plain
            assert back[0].embedding == vector(1, 2)
            assert store.get_nodes(["plain"])[0].embedding is None
            assert words(store, "inner points") == ["index"]
            assert words(store, "rich text") == ["rich"]
            assert words(store, "whole page") == ["document"]

    def test_inputs_are_not_changed(self, path: Path) -> None:
        node = make_node("a", "text", doc_id="d", metadata={"k": ["v"]})
        before = node.to_dict()
        request = SearchRequest(query_embedding=embed("text"), query_str="text")
        query = VectorStoreQuery(query_embedding=embed("text"), query_str="text", mode=Mode.HYBRID)
        kept = copy.deepcopy(query)
        with LocalHybridStore(path) as store:
            store.add([node])
            store.search(request)
            store.query(query)
        assert node.to_dict() == before
        assert query == kept


class TestReading:
    def test_known_fields(self, path: Path) -> None:
        with LocalHybridStore(path, metadata_schema={"declared": "int"}) as store:
            assert store.known_fields() == {"declared"}
            store.add(
                [
                    make_node("a", "apple", metadata={"seen": 1}),
                    make_node("b", metadata={"other": 1}),
                ]
            )
            assert store.known_fields() == {"declared", "seen", "other"}
            store.delete_nodes(["b"])
            assert store.known_fields() == {"declared", "seen"}

    def test_an_unknown_field_is_an_error_or_missing_as_chosen(self, path: Path) -> None:
        typo = where("tenat", "red")
        with LocalHybridStore(path) as store:
            assert words(store, "apple", filters=typo) == []  # an empty store has no fields to name
            store.add([make_node("a", "apple", metadata={"tenant": "red"})])
            with pytest.raises(FilterError, match=r"'tenat'.*'tenant'"):
                words(store, "apple", filters=typo)
            with pytest.raises(FilterError, match="'tenat'"):
                store.delete_nodes(filters=typo)
        with LocalHybridStore(path, unknown_fields="missing") as store:
            assert words(store, "apple", filters=typo) == []
            assert words(store, "apple", filters=where("tenat", "red", "!=")) == ["a"]

    def test_get_embeddings_are_unit_vectors(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add(
                [
                    make_node("a", embedding=vector(3, 4)),
                    make_node("tiny", embedding=vector(1e-30, 0)),
                    make_node("huge", embedding=vector(3e38, 3e38)),
                    make_node("zero", embedding=vector(0)),
                ]
            )
            found = store.get_embeddings(["a", "tiny", "huge", "zero", "unknown"])
            assert set(found) == {"a", "tiny", "huge", "zero"}
            assert found["a"][:2].tolist() == pytest.approx([0.6, 0.8])
            assert found["tiny"][0] == pytest.approx(1.0)
            assert found["huge"][:2].tolist() == pytest.approx([0.5**0.5] * 2)
            assert not found["zero"].any()
            hits = store.search(SearchRequest(query_embedding=vector(1, 1))).legs[DENSE]
            assert dict(zip(hits.ids, hits.scores, strict=True))["zero"] == 0.0
            assert store.get_embeddings([]) == {}

    def test_describe_is_json(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            assert json.loads(json.dumps(store.describe()))["nodes"] == 0
            store.add([make_node("a", "apple"), make_node("b")])
            described = json.loads(json.dumps(store.describe()))
            assert described["nodes"] == 2
            assert "8-bit" in described["dense"]["engine"]
            assert "tantivy" in described["lexical"]["engine"]
            assert described["generation"] == store.generation == 1

    def test_nodes_of_documents(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node(i, doc_id=i[0]) for i in ("b2", "b1", "a1", "c1")])
            assert [node.node_id for node in store.nodes_of(["b", "a", "x"])] == ["a1", "b1", "b2"]
            assert store.nodes_of([]) == []

    def test_a_node_deleted_after_the_search_is_left_out(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("a", "same"), make_node("b", "same")])
            found = store.search(SearchRequest(query_str="same"))
            store.delete_nodes(["a"])
            assert found.legs[BM25].ids == ["a", "b"]
            assert list(found.nodes(["a", "b"])) == ["b"]

    def test_the_event_loop_stays_free(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        original = LocalHybridStore.search

        def slow(self: LocalHybridStore, request: SearchRequest) -> object:
            time.sleep(0.2)
            return original(self, request)

        async def count_ticks() -> int:
            ticks = 0
            query = VectorStoreQuery(query_embedding=embed("apple"))
            with LocalHybridStore(path) as store:
                await store.async_add([make_node("a", "apple")])
                monkeypatch.setattr(LocalHybridStore, "search", slow)
                task = asyncio.create_task(store.aquery(query))
                while not task.done():
                    await asyncio.sleep(0.01)
                    ticks += 1
                assert task.result().ids == ["a"]
            return ticks

        assert asyncio.run(count_ticks()) > 5


class TestThroughLlamaIndex:
    @pytest.fixture
    def index(self, path: Path) -> VectorStoreIndex:
        store = LocalHybridStore(path)
        index = VectorStoreIndex.from_vector_store(store, embed_model=embed_model())
        index.insert_nodes([make_node("1", "apple pie", doc_id="d")])
        yield index
        store.close()

    def test_document_ids_are_not_ignored(self, index: VectorStoreIndex) -> None:
        """F18: SimpleVectorStore gives hits of other documents."""
        assert index.as_retriever(doc_ids=["other"]).retrieve("apple") == []
        assert len(index.as_retriever(doc_ids=["d"]).retrieve("apple")) == 1

    def test_scores_are_json(self, index: VectorStoreIndex) -> None:
        for mode in (Mode.DEFAULT, Mode.TEXT_SEARCH, Mode.HYBRID, Mode.MMR):
            (hit,) = index.as_retriever(vector_store_query_mode=mode).retrieve("apple")
            assert type(hit.score) is float
            json.dumps(hit.to_dict())

    def test_a_given_query_vector_is_used_and_left_alone(self, index: VectorStoreIndex) -> None:
        """F38: the store writes nothing into the caller's bundle."""
        bundle = QueryBundle("apple", embedding=embed("pie"))
        before = copy.deepcopy(bundle)
        index.as_retriever().retrieve(bundle)
        assert bundle == before

    def test_retrieved_nodes_are_fresh_each_time(self, index: VectorStoreIndex) -> None:
        retriever = index.as_retriever()
        first = retriever.retrieve("apple")[0].node
        first.metadata["changed"] = True
        assert "changed" not in retriever.retrieve("apple")[0].node.metadata


class TestReportedCases:
    """Faults of other stores; each test holds the whole kind."""

    def test_b36_a_tenant_never_sees_another(self, path: Path, cases_dir: Path) -> None:
        case = json.loads((cases_dir / "B36.json").read_text())["input"]
        with LocalHybridStore(path) as store:
            store.add(
                [
                    make_node(node_id, text, metadata={"tenant": tenant})
                    for node_id, (text, tenant) in case["docs"].items()
                ]
            )
            for mode in (Mode.DEFAULT, Mode.TEXT_SEARCH, Mode.HYBRID, Mode.MMR):
                for top_k in case["top_k"]:
                    for tenant in ("red", "nobody"):
                        result = store.query(
                            VectorStoreQuery(
                                query_str=case["query"],
                                query_embedding=embed(case["query"]),
                                similarity_top_k=top_k,
                                mode=mode,
                                filters=where("tenant", tenant),
                            )
                        )
                        seen = {node.metadata["tenant"] for node in result.nodes}
                        assert seen <= {tenant}
                        if mode is not Mode.TEXT_SEARCH and tenant == "red":
                            assert len(result.nodes) == 2

    def test_b38_equality_is_of_whole_values(self, path: Path, cases_dir: Path) -> None:
        case = json.loads((cases_dir / "B38.json").read_text())["input"]
        field, _, wanted = case["filter"]
        with LocalHybridStore(path) as store:
            store.add(
                [make_node(value, "text", metadata={field: value}) for value in case["values"]]
                + [make_node(f"of {doc}", "text", doc_id=doc) for doc in case["ref_doc_ids"]]
            )
            assert words(store, "text", filters=where(field, wanted)) == [wanted]
            store.delete(case["delete_by"][1])
            left = {node.node_id for node in store.get_nodes()}
            assert "of handbook" not in left
            assert "of handbook-archive" in left

    def test_b57_pickle_and_copy(self, path: Path) -> None:
        with LocalHybridStore(path) as store:
            store.add([make_node("1", "apple pie"), make_node("2", "kiwi")])
            with pickle.loads(pickle.dumps(store)) as twin:
                for other in (twin, copy.deepcopy(store)):
                    hits = other.search(SearchRequest(query_str="apple")).legs[BM25]
                    assert hits == store.search(SearchRequest(query_str="apple")).legs[BM25]
                    assert hits.ids == ["1"]
                    json.dumps(hits.scores)

    def test_b35_groups_inside_groups(self, path: Path, cases_dir: Path) -> None:
        from llama_index_hybrid_pack.testing.builders import all_of, any_of, condition

        case = json.loads((cases_dir / "B35.json").read_text())
        wish = any_of(
            all_of(condition("fruit", "apple"), condition("ts", 100, ">")),
            condition("fruit", ["banana", "orange"], "in"),
        )
        with LocalHybridStore(path) as store:
            store.add(
                [
                    make_node(node_id, "text", metadata=metadata)
                    for node_id, metadata in case["input"]["docs"].items()
                ]
            )
            assert sorted(words(store, "text", filters=wish)) == case["expected"]["matches"]
            dense = store.search(SearchRequest(query_embedding=embed("text"), filters=wish))
            assert sorted(dense.legs[DENSE].ids) == case["expected"]["matches"]

    def test_b32_negation_holds_for_a_missing_field(self, path: Path, cases_dir: Path) -> None:
        case = json.loads((cases_dir / "B32.json").read_text())["input"]
        with LocalHybridStore(path) as store:
            store.add(
                [
                    make_node("bare", "text", metadata=case["meta"]),
                    make_node("news", "text", metadata={"category": "news"}),
                    make_node("blog", "text", metadata={"category": "blog"}),
                ]
            )
            for key, operator, value in case["filters"]:
                found = words(store, "text", filters=where(key, value, operator))
                assert sorted(found) == ["bare", "blog"]


def test_a_copied_folder_is_a_store(path: Path, tmp_path: Path) -> None:
    with LocalHybridStore(path) as store:
        store.add(nodes_of({"a": "text"}))
    shutil.copytree(path, tmp_path / "copy")
    with LocalHybridStore(tmp_path / "copy") as store:
        store.add(nodes_of({"b": "text"}))
        assert_holds(store, {"a": "text", "b": "text"})
    with LocalHybridStore(path) as store:
        assert_holds(store, {"a": "text"})


def test_numpy_query_vectors_are_taken(path: Path) -> None:
    with LocalHybridStore(path) as store:
        store.add([make_node("a", "apple")])
        for dtype in (np.float32, np.float64):
            query = np.array(embed("a"), dtype=dtype)
            assert store.search(SearchRequest(query_embedding=query)).legs[DENSE].ids == ["a"]


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ([1.0, 2.0], "dimension 2, the store's vectors have 32"),
        ([], "shape"),
        ([[1.0] * 32], "shape"),
        (vector(float("nan")), "NaN"),
        (["a"] * 32, "not a list of numbers"),
    ],
    ids=["short", "empty", "matrix", "nan", "texts"],
)
def test_query_vectors_that_do_not_fit_are_refused(
    path: Path, query: list[float], problem: str
) -> None:
    with LocalHybridStore(path) as store:
        store.add([make_node("a", "apple")])
        with pytest.raises(EmbeddingError, match=problem):
            store.search(SearchRequest(query_embedding=query))
