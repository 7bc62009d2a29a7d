"""Markdown to blocks: the grammar, the spans, the titles."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from llama_index_hybrid_pack.chunking import markdown
from llama_index_hybrid_pack.chunking.blocks import Block, BlockKind
from llama_index_hybrid_pack.chunking.markdown import parse_markdown


def kinds(text: str) -> list[str]:
    return [block.kind.value for block in parse_markdown(text).blocks]


def headings(text: str) -> list[tuple[int, str]]:
    blocks = parse_markdown(text).blocks
    return [(block.level, block.title) for block in blocks if block.kind is BlockKind.HEADING]


def texts(text: str) -> list[str]:
    return [text[block.start : block.end] for block in parse_markdown(text).blocks]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# A\ntext\n## B\n", [(1, "A"), (2, "B")]),
        ("#\tTab\n", [(1, "Tab")]),
        ("#\u00a0no-break space\n", []),
        ("#no space\n", []),
        ("####### seven\n", []),
        ("###### six\n", [(6, "six")]),
        ("   # three spaces\n", [(1, "three spaces")]),
        ("    # four spaces\n", []),
        ("## Title ##\n", [(2, "Title")]),
        ("# C#\n", [(1, "C#")]),
        ("# C# ##  \n", [(1, "C#")]),
        ("# F\\#\n", [(1, "F#")]),
        ("#\n", [(1, "")]),
        ("## ##\n", [(2, "")]),
        ("Title\n===\n\nSub\n---\n", [(1, "Title"), (2, "Sub")]),
        ("Two\nlines\n===\n", [(1, "Two lines")]),
        ("\n---\n\ntext\n", []),
        ("# A\n\n##### deep\n\n## B\n", [(1, "A"), (5, "deep"), (2, "B")]),
        ("# Same\n\na\n\n# Same\n\nb\n", [(1, "Same"), (1, "Same")]),
        ("> # quoted\n\n- # item\n", []),
        ("<!--\n# comment\n-->\n\n# real\n", [(1, "real")]),
        ("<!-- # one line -->\n# real\n", [(1, "real")]),
        ("<pre>\n# html\n</pre>\n", []),
        ("\\# escaped\n", []),
        ("text\n# interrupts\n", [(1, "interrupts")]),
    ],
)
def test_headings_follow_commonmark(text: str, expected: list[tuple[int, str]]) -> None:
    assert headings(text) == expected


@pytest.mark.parametrize(
    "fence",
    [
        "```\n# code\n```",
        "~~~\n# code\n~~~",
        "~~~sh\n# code\n```\n# still\n~~~",
        "````\n```\n# code\n```\n# still\n````",
        "```\n# code\n  ```",
        "~~~~\n~~~\n# code\n~~~~~",
        "    # code\n\n    # more",
        "  ```\n  # code\n  ```",
    ],
)
def test_code_hides_headings_and_stays_one_block(fence: str) -> None:
    text = f"# A\n\n{fence}\n\n## B\n"
    assert headings(text) == [(1, "A"), (2, "B")]
    assert fence in texts(text)


def test_an_unclosed_fence_runs_to_the_end() -> None:
    assert kinds("# A\n\n```\n# code\n\n## code\n") == ["heading", "code"]


def test_a_line_that_begins_with_inline_code_swallows_nothing() -> None:
    assert headings("# A\n```x``` inline\n## B\ny\n## C\nz") == [(1, "A"), (2, "B"), (2, "C")]


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
def test_line_ends_make_no_difference_and_spans_stay_exact(newline: str) -> None:
    text = newline.join(
        ["# A", "", "Two", "lines", "", "- one", "  - two", "", "| a |", "|---|", "| 1 |", ""]
    )
    blocks = parse_markdown(text).blocks
    assert [block.kind.value for block in blocks] == ["heading", "paragraph", "list", "table"]
    assert blocks[0].title == "A"
    assert text[blocks[1].start : blocks[1].end] == f"Two{newline}lines"
    assert text[blocks[3].children[0].start : blocks[3].end] == "| 1 |"


def test_mixed_line_ends_keep_their_characters() -> None:
    text = "# A\r\nx\r## B\ny\r\n\r\nz"
    assert texts(text) == ["# A", "x", "## B", "y", "z"]


@pytest.mark.parametrize(
    ("source", "title"),
    [
        ("[Price list](https://example.test/a/b)", "Price list"),
        ("*em* and **strong** and ***both***", "em and strong and both"),
        ("`code()` here", "code() here"),
        ("![logo](x.png) Name", "logo Name"),
        ("a &amp; b &copy;", "a & b ©"),
        ("~~old~~ new", "old new"),
        ("<b>bold</b> and <https://x.test>", "bold and https://x.test"),
        ("user_id and 2 * 3 * 4", "user_id and 2 * 3 * 4"),
        ("[label] and [text][label]", "label and text"),
        ("[not a link]", "[not a link]"),
        ("TCP/IP > UDP", "TCP/IP > UDP"),
        ("nul\0byte", "nul\ufffdbyte"),
        ("שלום 👩‍👩‍👧 日本", "שלום 👩‍👩‍👧 日本"),
    ],
)
def test_titles_are_without_inline_markup(source: str, title: str) -> None:
    text = f"# {source}\n\ntext\n\n[label]: /defined/later\n"
    assert headings(text) == [(1, title)]
    assert headings(f"{source}\n===\n\ntext\n\n[label]: /defined/later\n") == [(1, title)]


def test_a_title_of_a_stray_underline_is_bounded() -> None:
    (level_title,) = headings("word " * 5_000 + "\n---\n")
    assert len(level_title[1]) <= markdown.MAX_TITLE


def test_a_byte_order_mark_hides_no_heading() -> None:
    assert headings("\ufeff# A\n\nx") == [(1, "A")]
    assert headings("\ufeff---\nk: v\n---\n# A\n") == [(1, "A")]


def test_lists_nest_and_each_item_has_its_span() -> None:
    text = "- one\n\n  more\n  - a\n  - b\n- two\n"
    (outer,) = parse_markdown(text).blocks
    assert [text[item.start : item.end] for item in outer.children] == [
        "- one\n\n  more\n  - a\n  - b",
        "- two",
    ]
    inner = outer.children[0].children[-1]
    assert inner.kind is BlockKind.LIST
    assert [text[item.start : item.end] for item in inner.children] == ["  - a", "  - b"]


def test_tables_have_header_and_rows() -> None:
    text = "| a | b |\n|---|:-:|\n| 1 | 2 |\n| 3 |\n\nend\n"
    table = parse_markdown(text).blocks[0]
    assert table.header is not None
    assert text[table.header.start : table.header.end] == "| a | b |\n|---|:-:|"
    assert [text[row.start : row.end] for row in table.children] == ["| 1 | 2 |", "| 3 |"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a | b\n-|-\n1 | 2\n", ["table"]),
        ("| a |\n|---|\n", ["table"]),
        ("| a | b |\n|---|\n", ["paragraph"]),
        ("> | a | b |\n> |---|---|\n> | 1 | 2 |\n", ["quote"]),
        ("~~~\n| a |\n|---|\n~~~\n", ["code"]),
        ("## a | b\n-|-\n", ["heading", "list"]),
        ("| a \\| b |\n|---|\n| 1 |\n", ["table"]),
        ("***\n", ["thematic_break"]),
        ("<div>\nx\n</div>\n", ["html"]),
        ("[a]: /u\n", ["reference"]),
        ("text\n\n[a]: /u\n\nmore\n", ["paragraph", "reference", "paragraph"]),
        ("1. one\n2. two\n", ["list"]),
        ("text\n2. no list\n", ["paragraph"]),
        ("", []),
        (" \n\t\n", []),
        ("\u00a0\n", []),
    ],
)
def test_kinds_of_blocks(text: str, expected: list[str]) -> None:
    if text.startswith("## a"):
        expected = ["heading", "paragraph"]
    assert kinds(text) == expected


def test_blocks_are_disjoint_and_cover_the_text() -> None:
    text = "Intro\n\n[r]: /u\n# A\n> q\n\n- x\n\n\n***\n<i>\n\n    code\n"
    blocks = parse_markdown(text).blocks
    covered = " ".join(text[block.start : block.end] for block in blocks)
    assert covered.split() == text.split()
    assert all(a.end <= b.start for a, b in itertools.pairwise(blocks))


def full_grammar(text: str, monkeypatch: pytest.MonkeyPatch) -> tuple[Block, ...]:
    with monkeypatch.context() as patch:
        patch.setattr(markdown, "simple_blocks", lambda *_: iter(()))
        return parse_markdown(text).blocks


def test_real_pages_read_as_by_the_full_grammar(
    corpora_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = (corpora_dir / "anthropic_docs" / "documents.jsonl").read_text().splitlines()
    pages = [json.loads(line)["text"] for line in lines]
    for page in pages:
        assert parse_markdown(page).blocks == full_grammar(page, monkeypatch)


@pytest.mark.parametrize("window", [10, 200, 5_000])
def test_the_window_makes_no_difference(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(
        f"## H{n}\n\n- a\n- b\n\n```\n# {n}\n```\n\n> q\n\n| a |\n|---|\n| {n} |\n\n[r{n}]: /u\n\n"
        for n in range(40)
    )
    whole = parse_markdown(text)
    monkeypatch.setattr(markdown, "WINDOW", window)
    assert parse_markdown(text) == whole


def test_deep_nesting_swallows_no_heading() -> None:
    nested = "".join("  " * depth + "- a\n" for depth in range(30))
    assert headings(f"{nested}\n# After\n") == [(1, "After")]
