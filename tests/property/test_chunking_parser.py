"""Laws of StructureNodeParser, over generated documents."""

from __future__ import annotations

import asyncio
import copy
import pickle
from functools import lru_cache
from itertools import pairwise

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.schema import MetadataMode, TextNode

from llama_index_hybrid_pack.chunking.front_matter import read_front_matter
from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
from llama_index_hybrid_pack.text import get_tokenizer

PARTS = [
    "# A",
    "## B > C ##",
    "\n",
    "\n\n",
    "\r\n",
    "\r",
    "Title\n===\n",
    "- item",
    "  - sub\n",
    "1. one",
    "> quote ",
    "| a | b |\n|---|---|\n",
    "| 1 | {2} |\n",
    "| " + "wide cell " * 30 + "|\n|--|\n",
    "```\n",
    "~~~~\n",
    "    code",
    "\t",
    "<!-- # x\n",
    "-->",
    "<div>",
    "---\n",
    "***\n",
    "word ",
    "word " * 60,
    "A sentence here. ",
    "e.g. this. ",
    "日本語の文章です。",
    "👨‍👩‍👧‍👦",
    "🇩🇪🇫🇷",
    "a\u0301\u0301",
    "x" * 700,
    "\0",
    "\u00a0",
    "שלום עולם. ",
    "[ref]: /url\n",
    "[t](u)",
    "**b** ",
    "\u2028",
    "\x0b",
    " " * 80,
    "\ufeff",
    "title: x\n",
]
documents = st.lists(st.sampled_from(PARTS) | st.text(max_size=12), max_size=60).map("".join)
texts = documents.filter(lambda text: not any("\ud800" <= c <= "\udfff" for c in text))
parsers = st.builds(
    StructureNodeParser,
    chunk_size=st.sampled_from([16, 24, 48, 256]),
    format=st.sampled_from(["markdown", "text"]),
    min_chunk_size=st.sampled_from([0, 12]),
    include_heading=st.booleans(),
)
metadatas = st.sampled_from([{}, {"title": "Doc"}, {"title": "word " * 30, "owner": "ann"}])
relaxed = settings(
    max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


def parse(
    parser: StructureNodeParser, text: str, metadata: dict[str, str] | None = None
) -> list[TextNode]:
    nodes = parser.get_nodes_from_documents([Document(text=text, id_="d", metadata=metadata or {})])
    return [node for node in nodes if isinstance(node, TextNode)]


@relaxed
@given(texts, parsers)
def test_nodes_are_disjoint_slices_that_cover_the_text(
    text: str, parser: StructureNodeParser
) -> None:
    covered = bytearray(len(text))
    end = 0
    for node in parse(parser, text):
        assert node.start_char_idx is not None
        assert node.end_char_idx is not None
        assert text[node.start_char_idx : node.end_char_idx] == node.text
        assert node.text.strip()
        assert node.start_char_idx >= end
        end = node.end_char_idx
        covered[node.start_char_idx : end] = b"\1" * len(node.text)
    front = read_front_matter(text)
    body = front.end if parser.format == "markdown" and not front.malformed else 0
    for index, character in enumerate(text):
        if index >= body and not character.isspace() and not (index == 0 and character == "\ufeff"):
            assert covered[index], f"lost {character!r} at {index}"


@lru_cache(maxsize=2)
def tokenizers(model_path: str) -> list[str]:
    return ["cl100k_base", model_path]


@relaxed
@given(texts, parsers, metadatas, st.integers(0, 1))
def test_the_budget_holds_for_the_embedded_text(
    model_path: str, text: str, parser: StructureNodeParser, metadata: dict[str, str], which: int
) -> None:
    parser.tokenizer = tokenizers(model_path)[which]
    tokenizer = get_tokenizer(parser.tokenizer)
    for node in parse(parser, text, metadata):
        if len(node.text.strip()) > 1:
            used = tokenizer.count(node.get_content(MetadataMode.EMBED))
            assert used + parser.reserved_tokens <= parser.chunk_size


@relaxed
@given(texts, parsers)
def test_parsing_is_deterministic_in_every_way_of_calling(
    text: str, parser: StructureNodeParser
) -> None:
    expected = parse(parser, text)
    document = Document(text=text, id_="d")
    for restored in (
        StructureNodeParser.from_dict(parser.to_dict()),
        pickle.loads(pickle.dumps(parser)),
        copy.deepcopy(parser),
    ):
        assert parse(restored, text) == expected
    assert asyncio.run(parser.aget_nodes_from_documents([document])) == expected
    assert len({node.node_id for node in expected}) == len(expected)


@relaxed
@given(st.lists(texts, max_size=4), parsers)
def test_links_are_within_a_document_and_agree(
    many: list[str], parser: StructureNodeParser
) -> None:
    nodes = parser.get_nodes_from_documents(
        [Document(text=text, id_=f"d{number}") for number, text in enumerate(many)]
    )
    by_id = {node.node_id: node for node in nodes}
    assert len(by_id) == len(nodes)
    for before, after in pairwise(nodes):
        same = before.ref_doc_id == after.ref_doc_id
        assert (before.next_node is not None) == same
        if same:
            assert before.next_node == after.as_related_node_info()
            assert after.prev_node == before.as_related_node_info()
        else:
            assert after.prev_node is None
    if nodes:
        assert nodes[0].prev_node is None
        assert nodes[-1].next_node is None


@relaxed
@given(texts, st.sampled_from([16, 24, 48]))
def test_parsing_chunks_again_loses_and_moves_nothing(text: str, size: int) -> None:
    coarse = StructureNodeParser(chunk_size=128, format="text")
    fine = StructureNodeParser(chunk_size=size, format="text")
    nodes = fine(parse(coarse, text))
    for node in nodes:
        assert isinstance(node, TextNode)
        assert text[node.start_char_idx : node.end_char_idx] == node.text
    kept = "".join(node.get_content() for node in nodes)
    assert "".join(kept.split()) == "".join(text.split())


@pytest.mark.parametrize("size", [16, 24, 48, 256])
def test_real_characters_of_every_plane_stay_inside_the_budget(size: int) -> None:
    text = "".join(chr(code) for code in range(0x20, 0x2FFFF, 97) if not 0xD800 <= code < 0xE000)
    for node in parse(StructureNodeParser(chunk_size=size), text):
        if len(node.text.strip()) > 1:
            assert get_tokenizer().count(node.get_content(MetadataMode.EMBED)) + 2 <= size
