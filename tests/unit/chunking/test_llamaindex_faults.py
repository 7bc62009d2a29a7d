"""Faults of LlamaIndex's own parsers (F19-F37 of the reference) that ours must not have."""

from __future__ import annotations

import time
from typing import Any

from llama_index.core import Document
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.schema import MetadataMode, TextNode

from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
from llama_index_hybrid_pack.metadata import HEADING_PATH_KEY, TABLE_HEADER_KEY


def parse(text: str, **options: Any) -> list[TextNode]:
    document = Document(text=text, id_="d")
    nodes = StructureNodeParser(**options).get_nodes_from_documents([document])
    return [node for node in nodes if isinstance(node, TextNode)]


def slices_and_links_are_right(nodes: list[TextNode], text: str) -> bool:
    exact = all(text[n.start_char_idx : n.end_char_idx] == n.text for n in nodes)
    linked = sum(n.next_node is not None for n in nodes) == len(nodes) - 1
    return exact and linked and len(nodes) > 1


def test_f19_tilde_fences_are_code() -> None:
    assert len(parse("# A\n~~~\n# code\n~~~\n## B\nx")) == 2


def test_f20_inline_ticks_swallow_nothing() -> None:
    assert len(parse("# A\n```x``` inline\n## B\ny\n## C\nz")) == 3


def test_f21_setext_front_matter_and_crlf() -> None:
    assert len(parse("T\n===\na\n\nS\n---\nb")) == 2
    (node,) = parse("---\n# c\nk: v\n---\n# A\nx")
    assert node.metadata["k"] == "v"
    assert parse("# A\r\nx\r\n## B\r\ny")[1].metadata[HEADING_PATH_KEY] == ["A", "B"]


def test_f22_a_slash_in_a_title_is_one_heading() -> None:
    assert parse("# TCP/IP\n## A\nx")[0].metadata[HEADING_PATH_KEY] == ["TCP/IP", "A"]


def test_f23_offsets_and_links_survive_chaining() -> None:
    text = "# G\n" + "Intro words here. " * 60 + "\n## I\n" + "Run this now. " * 80
    document = Document(id_="D", text=text)
    steps = [StructureNodeParser(chunk_size=256), StructureNodeParser(chunk_size=64)]
    nodes = IngestionPipeline(transformations=steps).run(documents=[document])
    found = [node for node in nodes if isinstance(node, TextNode)]
    assert slices_and_links_are_right(found, text)
    assert {node.ref_doc_id for node in found} == {"D"}


def test_f24_repeated_text_does_not_drift() -> None:
    text = " ".join(["The same sentence again."] * 200)
    nodes = parse(text, chunk_size=60)
    assert slices_and_links_are_right(nodes, text)
    assert nodes[-1].end_char_idx == len(text)


def test_f25_cut_tables_repeat_their_header_flagged() -> None:
    table = "| id | v |\n|--|--|\n" + "".join(f"| {n} | {n}.5 |\n" for n in range(200))
    nodes = parse(table, chunk_size=200)
    assert len(nodes) > 5
    for node in nodes:
        assert "| id | v |\n|--|--|\n| " in node.get_content(MetadataMode.EMBED)
        assert all(line.endswith("|") for line in node.text.splitlines())
    assert all(TABLE_HEADER_KEY in node.metadata for node in nodes[1:])
    assert "\n".join(node.text for node in nodes) == table.rstrip()


def test_f26_cells_are_verbatim() -> None:
    text = "t\n\n| a | b |\n|---|---|\n|007|x|\n|1e3|y|\n"
    assert parse(text)[0].text == text.rstrip()


def test_f28_every_level_is_linked_and_exact() -> None:
    text = "".join(f"Sentence {n} here. " for n in range(2_000))
    document = Document(text=text, id_="d")
    levels = [StructureNodeParser(chunk_size=512).get_nodes_from_documents([document])]
    levels += [StructureNodeParser(chunk_size=size)(levels[0]) for size in (256, 128)]
    for nodes in levels:
        assert slices_and_links_are_right([n for n in nodes if isinstance(n, TextNode)], text)


def test_f29_time_is_linear_in_the_number_of_sections() -> None:
    def seconds(sections: int) -> float:
        text = "".join(f"# H{n}\nsome text\n" for n in range(sections))
        best = float("inf")
        for _ in range(3):
            start = time.process_time()
            parse(text)
            best = min(best, time.process_time() - start)
        return best

    seconds(100)
    assert seconds(4_000) / seconds(1_000) < 8


def test_f37_from_dict_takes_what_to_dict_gives() -> None:
    parser = StructureNodeParser(chunk_size=100)
    assert StructureNodeParser.from_dict(parser.to_dict()).to_dict() == parser.to_dict()
