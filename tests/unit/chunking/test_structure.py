"""StructureNodeParser as a LlamaIndex component: nodes, metadata, ids, links, serialisation."""

from __future__ import annotations

import asyncio
import copy
import itertools
import pickle
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, MockEmbedding
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import (
    BaseNode,
    ImageDocument,
    MetadataMode,
    NodeRelationship,
    TextNode,
)

from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
from llama_index_hybrid_pack.errors import ConfigError, DocumentError, ModelNotFoundError
from llama_index_hybrid_pack.metadata import (
    BLOCK_KIND_KEY,
    HEADING_KEY,
    HEADING_PATH_KEY,
    TABLE_HEADER_KEY,
)
from llama_index_hybrid_pack.text import get_tokenizer

TEXT = """---
title: Handbook
date: 2024-05-01
---
Preamble.

# Billing

## Refunds

Ten days.

### Partial refunds

Five days.
"""


def parse(text: str, *, metadata: dict[str, Any] | None = None, **options: Any) -> list[BaseNode]:
    document = Document(text=text, id_="doc", metadata=metadata or {})
    return StructureNodeParser(**options).get_nodes_from_documents([document])


def embedded(node: BaseNode) -> str:
    return node.get_content(MetadataMode.EMBED)


def tokens(node: BaseNode) -> int:
    return get_tokenizer().count(embedded(node))


def renumbered(index: int, document: BaseNode) -> str:
    """Named function for ids, so that it can be serialised."""
    return f"{document.node_id}#{index}"


def test_every_node_knows_its_headings_and_is_a_slice_of_its_document() -> None:
    nodes = parse(TEXT)
    assert [node.metadata[HEADING_PATH_KEY] for node in nodes] == [
        [],
        ["Billing", "Refunds"],
        ["Billing", "Refunds", "Partial refunds"],
    ]
    assert nodes[2].metadata[HEADING_KEY] == "Billing > Refunds > Partial refunds"
    assert HEADING_KEY not in nodes[0].metadata
    for node in nodes:
        assert type(node) is TextNode
        assert TEXT[node.start_char_idx : node.end_char_idx] == node.text
    assert nodes[1].text == "# Billing\n\n## Refunds\n\nTen days."


def test_the_readable_heading_is_shown_and_the_rest_is_not() -> None:
    node = parse(TEXT)[1]
    for mode in (MetadataMode.EMBED, MetadataMode.LLM):
        assert "heading: Billing > Refunds" in node.get_content(mode)
        assert HEADING_PATH_KEY not in node.get_content(mode)
        assert BLOCK_KIND_KEY not in node.get_content(mode)


def test_the_heading_can_be_left_out() -> None:
    node = parse(TEXT, include_heading=False)[1]
    assert node.metadata[HEADING_KEY] == "Billing > Refunds"
    assert "heading:" not in embedded(node)
    assert "heading:" not in node.get_content(MetadataMode.LLM)


def test_a_separator_inside_a_heading_leaves_the_list_clear() -> None:
    node = parse("# A > B\n\n## C/D\n\ntext")[0]
    assert node.metadata[HEADING_PATH_KEY] == ["A > B", "C/D"]


def test_front_matter_becomes_metadata_and_never_overrides() -> None:
    node = parse(TEXT, metadata={"title": "Given"})[0]
    assert node.metadata["title"] == "Given"
    assert node.metadata["date"] == "2024-05-01"
    assert "date: 2024-05-01" in embedded(node)
    assert all("---" not in n.text for n in parse(TEXT))


def test_without_metadata_nodes_take_over_nothing() -> None:
    node = parse(TEXT, metadata={"owner": "ann"}, include_metadata=False)[1]
    assert set(node.metadata) == {HEADING_PATH_KEY, HEADING_KEY, BLOCK_KIND_KEY}


def test_own_entries_replace_the_documents() -> None:
    nodes = parse("no heading\n\n# A\n\ntext", metadata={"heading": "mine", "block_kind": "mine"})
    assert HEADING_KEY not in nodes[0].metadata
    assert nodes[1].metadata[HEADING_KEY] == "A"
    assert nodes[1].metadata[BLOCK_KIND_KEY] == "paragraph"


@pytest.mark.parametrize("text", ["", " \n\t\n", "\u00a0", "\n" * 1_000])
def test_empty_documents_give_no_nodes(text: str) -> None:
    assert parse(text) == []


def test_nodes_link_to_document_and_neighbours() -> None:
    documents = [Document(text=TEXT, id_="one", metadata={"k": "v"}), Document(text="x", id_="two")]
    nodes = StructureNodeParser().get_nodes_from_documents(documents)
    assert [node.ref_doc_id for node in nodes] == ["one", "one", "one", "two"]
    source = nodes[0].source_node
    assert source is not None
    assert source.hash == documents[0].hash
    assert source.metadata == {"k": "v"}
    for before, after in itertools.pairwise(nodes[:3]):
        assert before.next_node is not None
        assert before.next_node == after.as_related_node_info()
        assert after.prev_node == before.as_related_node_info()
    assert nodes[2].next_node is None
    assert nodes[3].prev_node is None


def test_links_can_be_left_out() -> None:
    nodes = parse(TEXT, include_prev_next_rel=False)
    assert all(set(node.relationships) == {NodeRelationship.SOURCE} for node in nodes)


def test_ids_depend_on_document_span_and_settings_only() -> None:
    first, again = parse(TEXT), parse(TEXT, metadata={"new": "entry"})
    assert [n.node_id for n in first] == [n.node_id for n in again]
    assert len({n.node_id for n in first}) == len(first)
    assert {n.node_id for n in parse(TEXT, chunk_size=128)}.isdisjoint(n.node_id for n in first)
    other = StructureNodeParser().get_nodes_from_documents([Document(text=TEXT, id_="other")])
    assert {n.node_id for n in other}.isdisjoint(n.node_id for n in first)


def test_ids_do_not_depend_on_where_the_model_lies(model_path: str, tmp_path: Path) -> None:
    copied = tmp_path / "model"
    copied.mkdir()
    (copied / "tokenizer.json").write_bytes((Path(model_path) / "tokenizer.json").read_bytes())
    here = parse(TEXT, tokenizer=model_path)
    there = parse(TEXT, tokenizer=str(copied))
    assert [n.node_id for n in here] == [n.node_id for n in there]


def test_a_document_that_comes_twice_gives_no_id_twice() -> None:
    documents = [Document(text=TEXT, id_="same"), Document(text=TEXT + "more", id_="same")]
    nodes = StructureNodeParser().get_nodes_from_documents(documents)
    assert len({node.node_id for node in nodes}) == len(nodes)


def test_id_func_is_honoured_and_survives_to_dict() -> None:
    parser = StructureNodeParser(id_func=renumbered)
    document = Document(text=TEXT, id_="d")
    expected = ["d#0", "d#1", "d#2"]
    assert [n.node_id for n in parser.get_nodes_from_documents([document])] == expected
    restored = StructureNodeParser.from_dict(parser.to_dict())
    assert [n.node_id for n in restored.get_nodes_from_documents([document])] == expected


def test_an_id_func_without_a_name_is_refused_rather_than_lost() -> None:
    parser = StructureNodeParser(id_func=lambda index, _: f"id{index}")
    with pytest.raises(ConfigError, match="id_func="):
        StructureNodeParser.from_dict(parser.to_dict())
    restored = StructureNodeParser.from_dict(parser.to_dict(), id_func=renumbered)
    assert restored.id_func is renumbered
    with pytest.raises((pickle.PicklingError, AttributeError)):
        pickle.dumps(parser)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"chunk_size": 64, "format": "text", "min_chunk_size": 10, "include_heading": False},
        {"include_metadata": False, "include_prev_next_rel": False, "reserved_tokens": 0},
    ],
)
def test_parsers_survive_dict_json_pickle_and_deepcopy(options: dict[str, Any]) -> None:
    parser = StructureNodeParser(**options)
    expected = parser.get_nodes_from_documents([Document(text=TEXT, id_="d")])
    for restored in (
        StructureNodeParser.from_dict(parser.to_dict()),
        StructureNodeParser.from_json(parser.to_json()),
        pickle.loads(pickle.dumps(parser)),
        copy.deepcopy(parser),
    ):
        assert restored.to_dict() == parser.to_dict()
        assert restored.get_nodes_from_documents([Document(text=TEXT, id_="d")]) == expected


def test_the_class_has_a_versioned_name() -> None:
    assert StructureNodeParser().to_dict()["class_name"] == "StructureNodeParser.v1"


@pytest.mark.parametrize(
    "options",
    [
        {"chunk_size": 15},
        {"chunk_size": 0},
        {"chunk_sise": 128},
        {"format": "docx"},
        {"tokenizer": ""},
        {"min_chunk_size": -1},
        {"chunk_size": 64, "min_chunk_size": 65},
        {"reserved_tokens": 9},
        {"id_func": "no.such:function"},
    ],
)
def test_bad_options_say_what_is_wrong(options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        StructureNodeParser(**options)


def test_zero_is_a_legal_value() -> None:
    parser = StructureNodeParser(min_chunk_size=0, reserved_tokens=0)
    assert (parser.min_chunk_size, parser.reserved_tokens) == (0, 0)


def test_a_tokenizer_that_leads_nowhere_is_named() -> None:
    with pytest.raises(ModelNotFoundError, match="/no/such/model"):
        parse(TEXT, tokenizer="/no/such/model")


def test_inputs_are_not_changed() -> None:
    document = Document(
        text=TEXT, id_="d", metadata={"tags": ["a"]}, excluded_llm_metadata_keys=["x"]
    )
    before = document.model_dump()
    nodes = StructureNodeParser(chunk_size=32).get_nodes_from_documents([document])
    nodes[0].metadata["added"] = 1
    nodes[0].excluded_llm_metadata_keys.append("added")
    assert document.model_dump() == before
    assert "added" not in nodes[1].metadata
    assert "added" not in nodes[1].excluded_llm_metadata_keys


def test_formats_of_the_document_are_inherited() -> None:
    document = Document(
        text="# A\n\nbody",
        id_="d",
        metadata={"k": "v", "secret": "s", "internal": "i"},
        excluded_embed_metadata_keys=["secret"],
        excluded_llm_metadata_keys=["internal"],
        metadata_template="<{key}={value}>",
        metadata_separator=" ",
        text_template="[{metadata_str}] {content}",
    )
    (node,) = StructureNodeParser().get_nodes_from_documents([document])
    assert embedded(node) == "[<k=v> <internal=i> <heading=A>] # A\n\nbody"
    assert node.get_content(MetadataMode.LLM) == "[<k=v> <secret=s> <heading=A>] # A\n\nbody"


def test_async_gives_the_same_and_leaves_the_loop_free() -> None:
    documents = [Document(text=TEXT * 400, id_="d")]
    parser = StructureNodeParser()
    expected = parser.get_nodes_from_documents(documents)

    async def main() -> int:
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticker = asyncio.create_task(tick())
        await asyncio.sleep(0)
        assert await parser.aget_nodes_from_documents(documents) == expected
        assert await parser.acall(documents) == expected
        ticker.cancel()
        return ticks

    assert asyncio.run(main()) > 3


def test_it_works_in_a_pipeline_and_its_cache_knows_the_settings() -> None:
    documents = [Document(text=TEXT, id_="d")]
    parser = StructureNodeParser()
    pipeline = IngestionPipeline(transformations=[parser, MockEmbedding(embed_dim=4)])
    nodes = pipeline.run(documents=documents)
    assert all(node.embedding is not None for node in nodes)
    again = pipeline.run(documents=documents)
    assert [n.node_id for n in again] == [n.node_id for n in nodes]
    parser.chunk_size = 16
    assert len(pipeline.run(documents=documents)) > len(nodes)


def test_threads_can_share_a_parser() -> None:
    from concurrent.futures import ThreadPoolExecutor

    parser = StructureNodeParser(chunk_size=32)
    documents = [Document(text=TEXT + f"\n\nNote {n}. " * 50, id_=f"d{n}") for n in range(16)]
    expected = [parser.get_nodes_from_documents([document]) for document in documents]
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda d: parser.get_nodes_from_documents([d]), documents))
    assert results == expected


def test_progress_is_shown_on_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    documents = [Document(text="x", id_=str(n)) for n in range(3)]
    StructureNodeParser().get_nodes_from_documents(documents, show_progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    StructureNodeParser().get_nodes_from_documents(documents, show_progress=True)
    assert "Parsing documents" in capsys.readouterr().err
    StructureNodeParser().get_nodes_from_documents(documents)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("metadata", "titles"),
    [
        ({"file_name": "a.txt"}, []),
        ({"file_name": "a.md"}, ["T"]),
        ({"file_path": "/x/README.MARKDOWN"}, ["T"]),
        ({"file_type": "text/plain"}, []),
        ({"mimetype": "text/markdown; charset=utf-8"}, ["T"]),
        ({"file_name": "a.md", "file_type": "text/plain"}, ["T"]),
        ({"file_name": "a.unknown"}, ["T"]),
        ({}, ["T"]),
    ],
)
def test_the_format_follows_the_metadata(metadata: dict[str, Any], titles: list[str]) -> None:
    assert parse("# T\n\nx", metadata=metadata)[0].metadata[HEADING_PATH_KEY] == titles
    assert parse("# T\n\nx", metadata=metadata, format="markdown")[0].metadata[HEADING_KEY] == "T"
    assert parse("# T\n\nx", metadata=metadata, format="text")[0].metadata[HEADING_PATH_KEY] == []


def test_nodes_that_are_parsed_again_keep_document_offsets_and_headings() -> None:
    text = (
        "# A\n\n## B\n\n" + " ".join(f"Sentence number {n}." for n in range(100)) + "\n\n## C\n\nx"
    )
    document = Document(text=text, id_="d")
    coarse = StructureNodeParser(chunk_size=256).get_nodes_from_documents([document])
    fine = StructureNodeParser(chunk_size=48)(coarse)
    assert len(fine) > len(coarse)
    for node in fine:
        assert isinstance(node, TextNode)
        assert node.ref_doc_id == "d"
        assert text[node.start_char_idx : node.end_char_idx] == node.text
        assert node.metadata[HEADING_PATH_KEY] in (["A", "B"], ["A", "C"])
    assert sum(node.next_node is not None for node in fine) == len(fine) - 1
    assert len({node.node_id for node in fine}) == len(fine)


def test_a_node_of_unknown_place_gets_no_wrong_offsets() -> None:
    source = Document(text="whole", id_="d").as_related_node_info()
    part = TextNode(text="one\n\ntwo", relationships={NodeRelationship.SOURCE: source})
    (node,) = StructureNodeParser()([part])
    assert isinstance(node, TextNode)
    assert node.ref_doc_id == "d"
    assert node.start_char_idx is None
    assert node.end_char_idx is None


def test_front_matter_is_not_looked_for_inside_a_document() -> None:
    source = Document(text="x" * 100, id_="d").as_related_node_info()
    part = TextNode(
        text="---\nk: v\n---\n",
        start_char_idx=10,
        end_char_idx=23,
        relationships={NodeRelationship.SOURCE: source},
    )
    (node,) = StructureNodeParser()([part])
    assert "k" not in node.metadata
    assert "k: v" in node.get_content()


def test_other_kinds_of_nodes_give_text_nodes() -> None:
    image = ImageDocument(text="# Chart\n\nA caption.", id_="i")
    (node,) = StructureNodeParser().get_nodes_from_documents([image])
    assert type(node) is TextNode


def test_half_a_surrogate_pair_is_an_error_that_names_the_document() -> None:
    with pytest.raises(DocumentError, match=r"'bad'.*surrogate"):
        StructureNodeParser().get_nodes_from_documents([Document(text="a\ud800", id_="bad")])
    (node,) = StructureNodeParser()([TextNode(text="a\ud800b")])
    assert node.get_content() == "a\ud800b"


def test_tables_repeat_their_header_in_the_template_and_not_in_the_text() -> None:
    rows = "".join(f"| {n} | {{{n}}} |\n" for n in range(60))
    table = f"| id | {{v}} |\n|---|---|\n{rows}"
    for text in (table, f"# Values\n\n{table}"):
        nodes = parse(text, chunk_size=64)
        assert len(nodes) > 3
        for node in nodes[1:]:
            header = "| id | {v} |\n|---|---|"
            assert node.metadata[TABLE_HEADER_KEY] == header
            assert node.text.startswith("| ")
            assert header not in node.text
            for mode in (MetadataMode.EMBED, MetadataMode.LLM):
                assert f"{header}\n{node.text}" in node.get_content(mode)
                assert TABLE_HEADER_KEY not in node.get_content(mode)
            assert tokens(node) <= 62


def test_the_table_header_is_shown_where_only_one_text_shows_metadata() -> None:
    rows = "".join(f"| {n} | x |\n" for n in range(60))
    document = Document(
        text=f"| id | v |\n|---|---|\n{rows}",
        id_="d",
        metadata={"file_name": "t.md"},
        excluded_embed_metadata_keys=["file_name"],
    )
    for node in StructureNodeParser(chunk_size=64).get_nodes_from_documents([document])[1:]:
        assert "| id | v |\n|---|---|\n| " in embedded(node)
        assert "| id | v |\n|---|---|\n| " in node.get_content(MetadataMode.LLM)
        assert tokens(node) <= 62


class Model:
    """An embedding model that tells its tokenizer and its limit."""

    def __init__(self, tokenizer_name: str, max_tokens: int | None) -> None:
        self.tokenizer_name = tokenizer_name
        self.max_tokens = max_tokens


def test_tokenizer_and_size_come_from_the_model() -> None:
    parser = StructureNodeParser.for_embed_model(Model("cl100k_base", 126), format="text")
    assert (parser.chunk_size, parser.tokenizer, parser.format) == (128, "cl100k_base", "text")
    assert StructureNodeParser.for_embed_model(Model("cl100k_base", 8_190)).chunk_size == 512
    assert StructureNodeParser.for_embed_model(Model("cl100k_base", None)).chunk_size == 256
    chosen = StructureNodeParser.for_embed_model(Model("cl100k_base", 126), chunk_size=100)
    assert chosen.chunk_size == 100


def test_a_chunk_beyond_what_the_model_reads_is_refused() -> None:
    with pytest.raises(ConfigError, match="reads 128 tokens"):
        StructureNodeParser.for_embed_model(Model("cl100k_base", 126), chunk_size=129)


def test_a_model_that_tells_nothing_gives_the_defaults() -> None:
    parser = StructureNodeParser.for_embed_model(MockEmbedding(embed_dim=4))
    assert parser.to_dict() == StructureNodeParser().to_dict()


def test_the_packaged_model_reads_every_chunk_whole(model_path: str) -> None:
    class Tokenizer:
        name_or_path = model_path

    class SentenceTransformer:
        max_seq_length = 256
        tokenizer = Tokenizer()

    class HuggingFace:
        _model = SentenceTransformer()
        text_instruction = "passage: "

    assert StructureNodeParser.for_embed_model(SentenceTransformer()).chunk_size == 256
    parser = StructureNodeParser.for_embed_model(HuggingFace())
    assert parser.tokenizer == model_path
    assert parser.chunk_size == 256 - get_tokenizer(model_path).count("passage: ")
    text = "# A\n\n" + "Customers antidisestablishmentarianism refunds. " * 200
    counts = [
        get_tokenizer(model_path).count(embedded(node)) + 2
        for node in parser.get_nodes_from_documents([Document(text=text, id_="d")])
    ]
    assert max(counts) <= parser.chunk_size


def test_a_hub_name_without_files_here_falls_back() -> None:
    class Tokenizer:
        name_or_path = "nobody/no-such-model"

    class SentenceTransformer:
        max_seq_length = 128
        tokenizer = Tokenizer()

    parser = StructureNodeParser.for_embed_model(SentenceTransformer())
    assert (parser.tokenizer, parser.chunk_size) == ("cl100k_base", 128)
    Tokenizer.name_or_path = "/no/folder/here"
    assert StructureNodeParser.for_embed_model(SentenceTransformer()).tokenizer == "cl100k_base"


def test_time_grows_with_the_text_and_nothing_else() -> None:
    def seconds(text: str) -> float:
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            parse(text)
            best = min(best, time.process_time() - start)
        return best

    parse(TEXT)
    section = "# H\n\nSome text.\n\n- a\n- b\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
    for unit in (
        section,
        "Prose goes on here. ",
        "x",
        "漢",
        "[a\n",
        "- a\n",
        "| x |\n",
        "\n",
        "a\n\n",
    ):
        small = max(1, 4_000 // len(unit))
        assert seconds(unit * small * 4) < max(10 * seconds(unit * small), 0.2), unit
