"""Faults that people reported against parsers of this kind, each as its whole kind."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document
from llama_index.core.schema import MetadataMode, TextNode

from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
from llama_index_hybrid_pack.metadata import HEADING_KEY, HEADING_PATH_KEY


def parse(text: str, *, document: dict[str, Any] | None = None, **options: Any) -> list[TextNode]:
    made = Document(text=text, id_="case", **(document or {}))
    nodes = StructureNodeParser(**options).get_nodes_from_documents([made])
    for node in nodes:
        assert isinstance(node, TextNode)
        assert text[node.start_char_idx : node.end_char_idx] == node.text
    return nodes  # type: ignore[return-value]


def case(cases_dir: Path, name: str) -> tuple[dict[str, Any], dict[str, Any], str]:
    """Input, expected values and the text of a case."""
    content = json.loads((cases_dir / f"{name}.json").read_text())
    file = content["input"].get("file")
    text = "" if file is None else (cases_dir / file).read_bytes().decode()
    return content["input"], content["expected"], text


def test_b01_a_hash_inside_any_fence_starts_no_section(cases_dir: Path) -> None:
    _, expected, text = case(cases_dir, "B01")
    nodes = parse(text)
    assert len(nodes) == expected["sections"]
    assert [node.metadata[HEADING_PATH_KEY][-1] for node in nodes] == expected["headings"]
    for node in nodes:
        assert not set(expected["no_heading"]) & set(node.metadata[HEADING_PATH_KEY])
    fence = text[text.index("~~~sh") : text.rindex("~~~") + 3]
    assert sum(fence in node.text for node in nodes) == 1
    for marker in ("```", "````", "~~~~~"):
        assert len(parse(text.replace("~~~", marker))) == 2


def test_b03_a_path_can_always_be_split_back(cases_dir: Path) -> None:
    _, expected, text = case(cases_dir, "B03")
    paths = [node.metadata[HEADING_PATH_KEY] for node in parse(text)]
    assert expected["path"] in paths
    assert ["Support", "Price list"] in paths
    for separator in ("/", " > ", " / ", "|"):
        (node,) = parse(f"# A{separator}B\n\n## C\n\ntext")
        assert node.metadata[HEADING_PATH_KEY] == [f"A{separator}B", "C"]


def test_b05_the_budget_counts_what_is_embedded(cases_dir: Path) -> None:
    given, expected, _ = case(cases_dir, "B05")
    nodes = parse(
        "Short answer. " * 5,
        chunk_size=given["chunk_size"],
        document={
            "metadata": {"notes": "word " * 600},
            "excluded_embed_metadata_keys": given["excluded_embed_metadata_keys"],
        },
    )
    assert len(nodes) == expected["chunks"]
    everywhere = {"metadata": {"notes": "word " * 600}}
    assert len(parse("Short answer. " * 5, chunk_size=16, document=everywhere)) >= 1


def test_b06_every_piece_of_a_table_has_its_header(cases_dir: Path) -> None:
    given, expected, text = case(cases_dir, "B06")
    nodes = parse(text, chunk_size=given["chunk_size_tokens"])
    header, separator = "| Plan | Seats | Price |", "|---|---|---|"
    rows = [line for line in text.splitlines() if re.match(r"\| plan\d", line)]
    found = []
    for number, node in enumerate(nodes):
        shown = node.get_content(MetadataMode.EMBED)
        own = [row for row in rows if row in node.text.splitlines()]
        found += own
        if own and expected["every_piece_with_rows_has_header"]:
            assert f"{header}\n{separator}\n{own[0]}" in shown
        assert ("Table 1: list prices" in shown) == (number == 0)
        assert all(row in rows for row in node.text.splitlines() if row.startswith("| plan"))
    assert found == rows
    assert len(nodes) > 2


def test_b07_white_space_is_the_authors(cases_dir: Path) -> None:
    _, expected, text = case(cases_dir, "B07")
    whole = "\n".join(node.text for node in parse(text))
    assert all(piece in whole for piece in expected["must_contain"])
    assert "gcc\u00a0x.c" in whole
    assert all(node.text in text for node in parse(text, chunk_size=16))


def test_b10_every_kind_of_heading(cases_dir: Path) -> None:
    _, expected, text = case(cases_dir, "B10")
    for variant in (text, text.replace("\n", "\r\n"), text.replace("\n", "\r")):
        nodes = parse(variant)
        titles = [node.metadata[HEADING_PATH_KEY][-1] for node in nodes[1:]]
        assert titles == expected["headings"]
        assert nodes[0].text == expected["preamble_kept"]
        assert not any("\r" in title for title in titles)
        assert all("yaml" not in node.metadata.get(HEADING_KEY, "") for node in nodes)
        assert all(node.metadata["title"] == "x" for node in nodes)


def test_b54_nothing_needs_nltk() -> None:
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'nltk':\n"
        "            raise PermissionError('nltk is blocked')\n"
        "sys.meta_path.insert(0, Block())\n"
        "from llama_index.core import Document\n"
        "from llama_index_hybrid_pack.chunking.structure import StructureNodeParser\n"
        "document = Document(text='One. Two three four. ' * 400, id_='d')\n"
        "parser = StructureNodeParser(chunk_size=64)\n"
        "first = parser.get_nodes_from_documents([document])\n"
        "assert first == parser.get_nodes_from_documents([document]) and len(first) > 5\n"
        "assert 'nltk' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def _prose(size: int) -> str:
    paragraph = "The worker takes a job. It works on it, e.g. for 3.5 minutes. Then it stops.\n\n"
    return paragraph * (size // len(paragraph))


@pytest.mark.parametrize("shape", ["prose", "unbroken", "headings"])
def test_b59_cost_is_linear_on_one_large_document(shape: str, cases_dir: Path) -> None:
    _, expected, _ = case(cases_dir, "B59")
    make = {
        "prose": _prose,
        "unbroken": lambda size: "x" * (size // 5),
        "headings": lambda size: "".join(f"# H{n}\nSome text\n\n" for n in range(size // 160)),
    }[shape]

    def seconds(size: int) -> float:
        text = make(size)
        best = float("inf")
        for _ in range(2):
            start = time.process_time()
            parse(text)
            best = min(best, time.process_time() - start)
        return best

    half, whole = seconds(500_000), seconds(1_000_000)
    assert whole < expected["prose_s_per_MB_lt"]
    # Other work on the machine may hit one of the two runs.
    assert whole / half < expected["time(2n)/time(n)_lt"] * 1.6


@pytest.mark.parametrize("letters", ["x", "漢", "👍", "x1", "\u0915\u093f"])
def test_b59_a_line_without_spaces_is_fast(letters: str, cases_dir: Path, model_path: str) -> None:
    _, expected, _ = case(cases_dir, "B59")
    text = letters * (200_000 // len(letters))
    for tokenizer in ("cl100k_base", model_path):
        start = time.process_time()
        nodes = parse(text, tokenizer=tokenizer)
        assert time.process_time() - start < expected["unbroken_line_s_lt"]
        assert "".join(node.text for node in nodes) == text
