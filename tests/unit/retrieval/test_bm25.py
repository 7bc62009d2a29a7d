"""BM25 retriever: what it finds, what it must not find, and how it fits into LlamaIndex."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import (
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    QueryBundle,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores.types import MetadataFilter, MetadataFilters
from llama_index.retrievers.bm25 import BM25Retriever
from llama_index_instrumentation import get_dispatcher
from llama_index_instrumentation.event_handlers import BaseEventHandler
from llama_index_instrumentation.span import SimpleSpan
from llama_index_instrumentation.span_handlers import BaseSpanHandler
from pydantic import PrivateAttr

from llama_index_hybrid_pack.errors import ConfigError, FilterError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer
from llama_index_hybrid_pack.metadata import STAGES_KEY, ScoreScale, current_scale, stage_scores
from llama_index_hybrid_pack.retrieval.bm25 import IdentifierBM25Retriever


def nodes_of(texts: Mapping[str, str] | Sequence[str], **metadata: Any) -> list[TextNode]:
    items = texts.items() if isinstance(texts, Mapping) else enumerate(texts, start=1)
    return [
        TextNode(id_=str(key), text=text, metadata=copy.deepcopy(metadata)) for key, text in items
    ]


def ids(hits: Sequence[NodeWithScore]) -> list[str]:
    return [hit.node_id for hit in hits]


def where(key: str, value: Any, operator: str = "==") -> MetadataFilters:
    return MetadataFilters(filters=[MetadataFilter(key=key, value=value, operator=operator)])


def case(cases_dir: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((cases_dir / f"{name}.json").read_text(encoding="utf-8"))
    return loaded


FRUIT = {
    "f1": "apple crumble",
    "f2": "apple share price",
    "f3": "banana loaf",
    "f4": "shirt sale",
    "f5": "orchard tips",
}


# --- What is found -------------------------------------------------------------------------------


def test_it_is_a_bm25_retriever() -> None:
    assert isinstance(IdentifierBM25Retriever(), BM25Retriever)
    assert IdentifierBM25Retriever.class_name() == "IdentifierBM25Retriever"


@pytest.mark.parametrize("language", ["en", "zh", None])
def test_text_without_spaces_is_found(cases_dir: Path, language: str | None) -> None:
    given = case(cases_dir, "B11")
    retriever = IdentifierBM25Retriever(
        nodes_of(given["input"]["docs"]), analyzer=Analyzer(language=language), similarity_top_k=3
    )
    (hit,) = retriever.retrieve(given["input"]["query"])
    assert hit.node_id == given["expected"]["top"]
    assert hit.score is not None
    assert hit.score > 0


@pytest.mark.parametrize("name", ["R", "C", "X-9", "C++", "C#", "v2.1.3", "E-504", "AT&T"])
def test_the_exact_identifier_comes_first(name: str) -> None:
    texts = ["the R manual", "the C manual", "device X-9", "a C++ guide", "a C# guide"]
    texts += ["release v2.1.3 notes", "release v2.1.4 notes", "error E-504", "error E-505"]
    texts += ["error B-504", "call AT&T", "see you at t"]
    retriever = IdentifierBM25Retriever(nodes_of(texts), similarity_top_k=5)
    hits = retriever.retrieve(f"{name}?")
    assert name in hits[0].node.get_content(MetadataMode.NONE).split()
    assert len(hits) == 1 or hits[0].score > hits[1].score


def test_documents_that_share_no_word_are_no_hits(cases_dir: Path) -> None:
    given = case(cases_dir, "B12")["input"]
    retriever = IdentifierBM25Retriever(nodes_of(given["docs"]), similarity_top_k=given["top_k"])
    assert retriever.retrieve(given["query"]) == []
    hits = retriever.retrieve("apple zeppelin")
    assert sorted(ids(hits)) == ["1", "2"], "two of four asked for"
    assert all(hit.score > 0 for hit in hits)


@pytest.mark.parametrize("query", ["", "   ", "the and of", "???", "😀", "\x00", "\ud800", "quick"])
@pytest.mark.parametrize("docs", [[], [""], ["the", ""], ["apple"], ["???", "😀"]])
def test_empty_queries_and_empty_corpora_give_nothing(docs: list[str], query: str) -> None:
    retriever = IdentifierBM25Retriever(nodes_of(docs))
    assert retriever.retrieve(query) == []


def test_the_reported_empty_cases(cases_dir: Path) -> None:
    given = case(cases_dir, "B14")["input"]
    retriever = IdentifierBM25Retriever(nodes_of(given["docs"]))
    assert retriever.retrieve(given["query"]) == []
    also = IdentifierBM25Retriever(nodes_of(given["also"]["docs"]))
    assert [also.retrieve(query) for query in given["also"]["queries"]] == [[], [], []]


def test_a_query_of_none_gives_nothing() -> None:
    bundle = QueryBundle(query_str="apple")
    bundle.query_str = None  # type: ignore[assignment]
    assert IdentifierBM25Retriever(nodes_of(FRUIT))._retrieve(bundle) == []


def test_a_corpus_of_single_letters_is_searchable() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(["C", "R"]))
    assert ids(retriever.retrieve("C")) == ["1"]


def test_stop_words_are_searchable_when_the_analyzer_keeps_them() -> None:
    texts = ["to be or not to be", "random words", "what is there to see"]
    kept = IdentifierBM25Retriever(nodes_of(texts), analyzer=Analyzer(language=None))
    assert ids(kept.retrieve("to be or not to be"))[0] == "1"
    assert IdentifierBM25Retriever(nodes_of(texts)).retrieve("to be or not to be") == []


def test_ties_are_ordered_by_node_id_even_at_the_cut() -> None:
    nodes = [TextNode(id_=f"n{number:03d}", text="same words") for number in range(300)]
    retriever = IdentifierBM25Retriever(reversed(nodes), similarity_top_k=7)
    assert ids(retriever.retrieve("words")) == [f"n{number:03d}" for number in range(7)]


def test_hits_are_ordered_and_scores_are_plain_floats() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT), similarity_top_k=4)
    hits = retriever.retrieve("apple share banana")
    scores = [hit.score for hit in hits]
    assert ids(hits) == ["f2", "f3", "f1"]
    assert scores == sorted(scores, reverse=True)
    assert all(type(score) is float for score in scores)
    json.dumps(scores)


def test_the_embedding_text_is_indexed_unless_told_otherwise() -> None:
    node = TextNode(
        id_="1",
        text="body",
        metadata={"heading": "Refunds", "file": "secret"},
        excluded_embed_metadata_keys=["file"],
    )
    retriever = IdentifierBM25Retriever([node])
    assert ids(retriever.retrieve("refunds")) == ["1"]
    assert retriever.retrieve("secret") == []
    bare = IdentifierBM25Retriever([node], metadata_mode=MetadataMode.NONE)
    assert bare.retrieve("refunds") == []
    assert ids(bare.retrieve("body")) == ["1"]


def test_repeated_query_words_count_as_often_as_they_stand() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT), similarity_top_k=1)
    once, twice = (retriever.retrieve(query)[0].score for query in ("banana", "banana banana"))
    assert twice == pytest.approx(2 * once)


# --- Filters -------------------------------------------------------------------------------------


def tenants(cases_dir: Path) -> list[TextNode]:
    docs = case(cases_dir, "B36")["input"]["docs"]
    return [
        TextNode(id_=name, text=text, metadata={"tenant": tenant})
        for name, (text, tenant) in docs.items()
    ]


@pytest.mark.parametrize("top_k", [1, 2, 4, 100])
@pytest.mark.parametrize("query", ["apple", "shirt", "orchard sale banana", "zebra", "tenant"])
@pytest.mark.parametrize("way", ["constructor", "scoped", "reloaded"])
def test_a_filter_never_lets_another_tenant_through(
    cases_dir: Path, tmp_path: Path, way: str, query: str, top_k: int
) -> None:
    wish = where("tenant", "red")
    nodes = tenants(cases_dir)
    if way == "scoped":
        retriever = IdentifierBM25Retriever(nodes).scoped(filters=wish, top_k=top_k)
    else:
        retriever = IdentifierBM25Retriever(nodes, filters=wish, similarity_top_k=top_k)
    if way == "reloaded":
        retriever.persist(tmp_path)
        retriever = IdentifierBM25Retriever.from_persist_dir(tmp_path)
    hits = retriever.retrieve(query)
    assert {hit.metadata["tenant"] for hit in hits} <= {"red"}
    open_hits = IdentifierBM25Retriever(nodes, similarity_top_k=100).retrieve(query)
    allowed = [hit for hit in open_hits if hit.metadata["tenant"] == "red"][:top_k]
    assert [(hit.node_id, hit.score) for hit in hits] == [
        (hit.node_id, hit.score) for hit in allowed
    ], "full k, and the scores that the nodes have without the filter"


def test_a_tenant_without_documents_gets_nothing(cases_dir: Path) -> None:
    retriever = IdentifierBM25Retriever(tenants(cases_dir), filters=where("tenant", "violet"))
    assert retriever.retrieve("apple") == []


def test_nested_filters(cases_dir: Path) -> None:
    given = case(cases_dir, "B35")
    nodes = [
        TextNode(id_=name, text="word", metadata=metadata)
        for name, metadata in given["input"]["docs"].items()
    ]

    def build(item: Any) -> MetadataFilters | MetadataFilter:
        if isinstance(item, list):
            return MetadataFilter(key=item[0], operator=item[1], value=item[2])
        ((condition, members),) = item.items()
        return MetadataFilters(condition=condition, filters=[build(member) for member in members])

    retriever = IdentifierBM25Retriever(nodes, filters=build(given["input"]["filter"]))
    assert ids(retriever.retrieve("word")) == given["expected"]["matches"]


def test_negative_filters_hold_for_a_missing_field(cases_dir: Path) -> None:
    for key, operator, value in case(cases_dir, "B32")["input"]["filters"]:
        retriever = IdentifierBM25Retriever(nodes_of(["word"]), filters=where(key, value, operator))
        assert ids(retriever.retrieve("word")) == ["1"]


def test_filters_are_fresh_after_metadata_changes() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(["word"], tenant="red"))
    red = retriever.scoped(filters=where("tenant", "red"))
    assert ids(red.retrieve("word")) == ["1"]
    retriever.add(nodes_of(["word"], tenant="blue"))
    assert red.retrieve("word") == []
    assert ids(retriever.scoped(filters=where("tenant", "blue")).retrieve("word")) == ["1"]


def test_a_call_can_narrow_but_never_widen(cases_dir: Path) -> None:
    retriever = IdentifierBM25Retriever(
        tenants(cases_dir), filters=where("tenant", "red"), similarity_top_k=9
    )
    wide = MetadataFilters(
        condition="or",
        filters=[
            MetadataFilter(key="tenant", value="red"),
            MetadataFilter(key="tenant", value="blue"),
        ],
    )
    assert ids(retriever.scoped(filters=wide).retrieve("apple")) == ["f1"]
    assert retriever.scoped(filters=where("tenant", "blue")).retrieve("apple") == []
    twice = retriever.scoped(filters=wide).scoped(filters=where("tenant", "blue"))
    assert twice.retrieve("apple") == []


def test_many_filters_are_remembered_within_bounds(cases_dir: Path) -> None:
    retriever = IdentifierBM25Retriever(tenants(cases_dir), similarity_top_k=9)
    for number in range(100):
        wish = where("tenant", "red" if number % 2 else f"none{number}")
        hits = retriever.scoped(filters=wish).retrieve("apple banana")
        assert ids(hits) == (["f3", "f1"] if number % 2 else [])


def test_a_filter_that_cannot_be_honoured_is_refused() -> None:
    with pytest.raises(FilterError):
        IdentifierBM25Retriever(filters=where("pages", "many", ">").filters)  # type: ignore[arg-type]
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT))
    with pytest.raises(FilterError):
        retriever.scoped(filters=where("hybrid_pack_stages", "x"))


# --- Options and views ---------------------------------------------------------------------------


def test_more_hits_than_nodes_may_be_asked_for() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT), similarity_top_k=1000)
    assert len(retriever.retrieve("apple")) == 2
    assert retriever.similarity_top_k == 1000, "and the wish is kept for when there are more"


@pytest.mark.parametrize("value", [0, -1, 1.5, "3", True, None])
def test_an_impossible_number_of_hits_is_refused(value: Any) -> None:
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT), similarity_top_k=3)
    with pytest.raises(ConfigError, match="similarity_top_k"):
        IdentifierBM25Retriever(similarity_top_k=value)
    with pytest.raises(ConfigError, match="similarity_top_k"):
        retriever.similarity_top_k = value
    if value is not None:
        with pytest.raises(ConfigError, match="similarity_top_k"):
            retriever.scoped(top_k=value)
    assert retriever.similarity_top_k == 3


@pytest.mark.parametrize(
    "options",
    [
        {"k1": -0.1},
        {"k1": float("nan")},
        {"k1": float("inf")},
        {"k1": "1.5"},
        {"k1": True},
        {"b": -0.1},
        {"b": 1.1},
        {"b": None},
    ],
)
def test_impossible_constants_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        IdentifierBM25Retriever(**options)


def test_constants_of_zero_mean_zero() -> None:
    texts = ["apple apple apple", "apple", "apple with a very long tail of other words"]
    binary = IdentifierBM25Retriever(nodes_of(texts), k1=0, similarity_top_k=3)
    assert len({hit.score for hit in binary.retrieve("apple")}) == 1, "k1 = 0 counts a word once"
    level = IdentifierBM25Retriever(nodes_of(texts[1:]), b=0, similarity_top_k=3)
    assert len({hit.score for hit in level.retrieve("apple")}) == 1, "b = 0 ignores length"
    assert (binary.k1, level.b) == (0.0, 0.0)


def test_a_view_changes_nothing_and_sees_changes() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT), similarity_top_k=2)
    view = retriever.scoped(filters=where("kind", "new"), top_k=5)
    assert (retriever.similarity_top_k, retriever.filters) == (2, None)
    assert view.similarity_top_k == 5
    assert view.retrieve("zeppelin") == []
    retriever.add([TextNode(id_="n", text="zeppelin", metadata={"kind": "new"})])
    assert ids(view.retrieve("zeppelin")) == ["n"]
    assert view.generation == retriever.generation


def test_the_filter_that_is_shown_cannot_be_used_to_change_it() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT, t="a"), filters=where("t", "b"))
    shown = retriever.filters
    assert shown is not None
    shown.filters.clear()
    assert retriever.retrieve("apple") == []
    given = where("t", "b")
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT, t="a"), filters=given)
    given.filters.clear()
    assert retriever.retrieve("apple") == []


# --- Building ------------------------------------------------------------------------------------


def test_from_defaults_takes_one_source() -> None:
    nodes = nodes_of(FRUIT)
    docstore = SimpleDocumentStore()
    docstore.add_documents(nodes)
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=2))
    for source in ({"nodes": nodes}, {"docstore": docstore}, {"index": index}):
        retriever = IdentifierBM25Retriever.from_defaults(**source, similarity_top_k=1, k1=1.2)
        assert ids(retriever.retrieve("share price")) == ["f2"]
        assert retriever.k1 == 1.2
    assert len(IdentifierBM25Retriever.from_defaults(nodes=[])) == 0


def test_from_defaults_says_what_is_wrong() -> None:
    nodes = nodes_of(FRUIT)
    with pytest.raises(ConfigError, match="exactly one"):
        IdentifierBM25Retriever.from_defaults()
    with pytest.raises(ConfigError, match="exactly one"):
        IdentifierBM25Retriever.from_defaults(nodes=nodes, docstore=SimpleDocumentStore())
    with pytest.raises(ConfigError, match=r"stemmer.*Analyzer"):
        IdentifierBM25Retriever.from_defaults(nodes=nodes, stemmer=None)
    with pytest.raises(ConfigError, match=r"nodes\[1\] is a str"):
        IdentifierBM25Retriever([nodes[0], "text"])  # type: ignore[list-item]


def test_an_index_whose_store_keeps_the_texts_is_named() -> None:
    class TextStore:
        stores_text = True

    class Index:
        docstore = SimpleDocumentStore()
        vector_store = TextStore()

    with pytest.raises(ConfigError, match="TextStore"):
        IdentifierBM25Retriever.from_defaults(index=Index())  # type: ignore[arg-type]


def test_an_empty_retriever_is_true() -> None:
    retriever = IdentifierBM25Retriever()
    assert len(retriever) == 0
    assert retriever, "so that 'retriever or other' keeps it"


# --- Nothing shared, nothing changed -------------------------------------------------------------


def test_given_nodes_are_neither_changed_nor_kept() -> None:
    node = TextNode(
        id_="1",
        text="apple",
        embedding=[1.0, 0.0],
        metadata={"tags": ["a"], "nested": {"x": 1}},
        relationships={NodeRelationship.SOURCE: RelatedNodeInfo(node_id="doc")},
    )
    before = node.to_json()
    retriever = IdentifierBM25Retriever([node])
    retriever.retrieve("apple")
    assert node.to_json() == before
    node.metadata["tags"].append("b")
    node.metadata["nested"]["x"] = 2
    node.text = "pear"
    node.relationships.clear()
    (hit,) = retriever.retrieve("apple")
    assert hit.metadata["tags"] == ["a"]
    assert hit.metadata["nested"] == {"x": 1}
    assert hit.node.ref_doc_id == "doc"
    assert hit.text == "apple"


@pytest.mark.parametrize("kind", [TextNode, Document])
def test_hits_belong_to_the_caller(kind: type[TextNode]) -> None:
    retriever = IdentifierBM25Retriever([kind(id_="1", text="apple", metadata={"tags": ["a"]})])
    (first,) = retriever.retrieve("apple")
    first.metadata["tags"].append("b")
    first.metadata["new"] = 1
    first.node.excluded_llm_metadata_keys.append("tags")
    first.node.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="other")
    first.node.set_content("pear")
    first.score = 0.0
    (second,) = retriever.retrieve("apple")
    assert second.metadata["tags"] == ["a"]
    assert "new" not in second.metadata
    assert second.node.excluded_llm_metadata_keys == [STAGES_KEY]
    assert second.node.ref_doc_id is None
    assert second.node.get_content(MetadataMode.NONE) == "apple"
    assert second.score > 0


def test_the_stage_record_shows_rank_and_score() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT), similarity_top_k=4)
    for rank, hit in enumerate(retriever.retrieve("apple crumble"), start=1):
        assert stage_scores(hit.node) == {
            "bm25": {"score": hit.score, "rank": rank, "scale": "bm25"}
        }
        assert current_scale(hit.node) is ScoreScale.BM25
        assert STAGES_KEY not in hit.node.get_content(MetadataMode.EMBED)
        assert STAGES_KEY not in hit.node.get_content(MetadataMode.LLM)


def test_hits_that_are_indexed_again_carry_no_old_record() -> None:
    hits = IdentifierBM25Retriever(nodes_of(FRUIT)).retrieve("apple")
    again = IdentifierBM25Retriever([hit.node for hit in hits])
    assert again.retrieve("bm25") == [], "the record is not searched"
    (hit,) = again.retrieve("crumble")
    assert list(stage_scores(hit.node)) == ["bm25"]
    assert hit.node.excluded_embed_metadata_keys == [STAGES_KEY]


# --- LlamaIndex ----------------------------------------------------------------------------------


class _Events(BaseEventHandler):
    _seen: list[Any] = PrivateAttr(default_factory=list)

    def handle(self, event: Any, **kwargs: Any) -> None:
        self._seen.append(event)


class _Spans(BaseSpanHandler[SimpleSpan]):
    _seen: list[str] = PrivateAttr(default_factory=list)

    def new_span(self, id_: str, *args: Any, **kwargs: Any) -> SimpleSpan:
        self._seen.append(id_)
        return SimpleSpan(id_=id_)

    def prepare_to_exit_span(self, id_: str, *args: Any, **kwargs: Any) -> None:
        return None

    def prepare_to_drop_span(self, id_: str, *args: Any, **kwargs: Any) -> None:
        return None


@pytest.fixture
def watched() -> Any:
    root = get_dispatcher()
    events, spans = _Events(), _Spans()
    root.add_event_handler(events)
    root.add_span_handler(spans)
    yield events, spans
    root.event_handlers.remove(events)
    root.span_handlers.remove(spans)


async def test_events_and_spans(watched: tuple[_Events, _Spans]) -> None:
    events, spans = watched
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT))
    retriever.retrieve("apple")
    await retriever.aretrieve("apple")
    names = [type(event).__name__ for event in events._seen]
    assert names.count("RetrievalEndEvent") == 2
    ends = [event for event in events._seen if type(event).__name__ == "StageEndEvent"]
    assert [(end.stage, end.n_in, end.n_out) for end in ends] == [("bm25", 5, 2)] * 2
    assert any("IdentifierBM25Retriever._retrieve" in span for span in spans._seen)
    assert any("IdentifierBM25Retriever._aretrieve" in span for span in spans._seen)


async def test_sync_and_async_give_the_same() -> None:
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT), filters=where("x", 1, "!="))
    for query in ("apple", "zeppelin", "", "apple banana tips"):
        assert await retriever.aretrieve(query) == retriever.retrieve(query)


async def test_the_event_loop_stays_free(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(self: Any, query_bundle: QueryBundle) -> list[NodeWithScore]:
        time.sleep(0.2)
        return []

    monkeypatch.setattr(IdentifierBM25Retriever, "_retrieve", slow)
    retriever = IdentifierBM25Retriever(nodes_of(FRUIT))
    search = asyncio.ensure_future(retriever.aretrieve("apple"))
    ticks = 0
    while not search.done():
        await asyncio.sleep(0.01)
        ticks += 1
    assert ticks >= 5


def test_it_serves_a_query_engine() -> None:
    engine = RetrieverQueryEngine.from_args(IdentifierBM25Retriever(nodes_of(FRUIT)), llm=MockLLM())
    assert ids(engine.query("crumble").source_nodes) == ["f1"]


def test_objects_are_followed() -> None:
    inner = IdentifierBM25Retriever(nodes_of({"inner": "apple pie recipe"}))
    pointer = IndexNode(id_="p", text="apple", index_id="inner-index", obj=inner)
    outer = IdentifierBM25Retriever([pointer], objects=[pointer])
    assert ids(outer.retrieve("apple")) == ["inner"]


@pytest.mark.parametrize(
    "twin_of", [lambda r: pickle.loads(pickle.dumps(r)), copy.deepcopy], ids=["pickle", "deepcopy"]
)
def test_copies_give_the_same_and_are_independent(cases_dir: Path, twin_of: Any) -> None:
    texts = ["apple pie", "kiwi"]
    retriever = IdentifierBM25Retriever(
        nodes_of(texts, t="a"), filters=where("t", "a"), k1=1.2, b=0.3, similarity_top_k=7
    )
    twin = twin_of(retriever)
    assert twin.retrieve("apple") == retriever.retrieve("apple") != []
    assert (twin.k1, twin.b, twin.similarity_top_k) == (1.2, 0.3, 7)
    assert twin.analyzer == retriever.analyzer
    json.dumps([hit.score for hit in twin.retrieve("apple")])
    twin.delete(["1"])
    twin.add([TextNode(id_="3", text="apple tart", metadata={"t": "a"})])
    assert ids(twin.retrieve("apple")) == ["3"]
    assert ids(retriever.retrieve("apple")) == ["1"]
    assert case(cases_dir, "B57")["input"]["object"].startswith("BM25 retriever")
