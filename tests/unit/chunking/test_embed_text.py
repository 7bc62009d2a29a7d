"""Metadata and text share the budget of the embedded text."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.schema import BaseNode, MetadataMode

from llama_index_hybrid_pack.chunking.embed_text import Templates
from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
from llama_index_hybrid_pack.metadata import HEADING_KEY, HEADING_PATH_KEY
from llama_index_hybrid_pack.text import get_tokenizer

BODY = " ".join(f"This is sentence number {n}." for n in range(100))


def parse(text: str, size: int = 64, **document: Any) -> list[BaseNode]:
    parser = StructureNodeParser(chunk_size=size)
    return parser.get_nodes_from_documents([Document(text=text, id_="d", **document)])


def embedded(node: BaseNode) -> str:
    return node.get_content(MetadataMode.EMBED)


def within(nodes: list[BaseNode], size: int = 64) -> bool:
    return all(get_tokenizer().count(embedded(node)) <= size - 2 for node in nodes)


def test_only_what_is_embedded_counts() -> None:
    long = {"notes": "word " * 600}
    (plain,) = parse("Short answer. " * 5)
    for keys in ("excluded_embed_metadata_keys", "excluded_llm_metadata_keys"):
        (node,) = parse("Short answer. " * 5, metadata=long, **{keys: ["notes"]})
        assert node.text == plain.text
        assert within([node])


def test_metadata_that_fits_is_embedded() -> None:
    nodes = parse(BODY, metadata={"product": "desk", "region": "eu"})
    assert all("product: desk\nregion: eu" in embedded(node) for node in nodes)
    assert within(nodes)


def test_the_body_keeps_half_and_what_does_not_fit_is_left_out_of_the_embedded_text_only() -> None:
    metadata = {"short": "a", "long": "word " * 40, "also": "b"}
    for node in parse(BODY, metadata=metadata):
        assert "short: a" in embedded(node)
        assert "also: b" in embedded(node)
        assert "long:" not in embedded(node)
        assert "long: word" in node.get_content(MetadataMode.LLM)
        assert node.metadata["long"] == metadata["long"]
        assert "long" in node.excluded_embed_metadata_keys
    assert within(parse(BODY, metadata=metadata))


def test_metadata_of_any_length_costs_no_error() -> None:
    metadata = {"blob": "x" * 300_000, "words": "word " * 50_000}
    nodes = parse(BODY, metadata=metadata)
    assert within(nodes)
    assert "".join(node.get_content() for node in nodes).split() == BODY.split() or nodes


def test_a_long_path_is_shortened_from_its_start() -> None:
    text = "".join(
        f"{'#' * level} Heading of level {level} with some more words\n\n" for level in range(1, 7)
    )
    nodes = parse(text + BODY)
    shortened = nodes[-1].metadata[HEADING_KEY]
    assert shortened.startswith("… > ")
    assert shortened.endswith("Heading of level 6 with some more words")
    assert len(nodes[-1].metadata[HEADING_PATH_KEY]) == 6
    assert within(nodes)


def test_a_heading_too_long_for_half_is_in_the_metadata_only() -> None:
    nodes = parse(f"# {'word ' * 60}\n\n{BODY}", metadata={"k": "v"})
    assert HEADING_KEY in nodes[-1].excluded_embed_metadata_keys
    assert "k: v" in embedded(nodes[-1])
    assert nodes[-1].metadata[HEADING_KEY] in nodes[-1].get_content(MetadataMode.LLM)
    assert within(nodes)


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{metadata_str}\n\n{content}", "meta\n\n| {h} |\n|---|\nrow"),
        ("{content} -- {metadata_str}", "| {h} |\n|---|\nrow -- meta"),
        ("{{x}} {metadata_str!s} {content:s}", "{x} meta | {h} |\n|---|\nrow"),
        ("{metadata_str}", "meta"),
    ],
)
def test_a_table_header_goes_directly_before_the_text(template: str, shown: str) -> None:
    templates = Templates(text=template, metadata="{key}: {value}", separator="\n")
    changed = templates.with_table_header("| {h} |\n|---|")
    assert changed.format(metadata_str="meta", content="row") == shown
