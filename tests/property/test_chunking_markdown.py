"""Reading simple Markdown blocks by pattern gives what the full grammar gives."""

from __future__ import annotations

import re
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from llama_index_hybrid_pack.chunking import markdown
from llama_index_hybrid_pack.chunking.markdown import parse_markdown

LINES = [
    "# A",
    "## B ##",
    "#",
    "# #",
    "#\ttab\t#",
    "   # indented",
    "",
    "",
    "  ",
    "plain words",
    "(brackets) “quotes”",
    "12345 digits",
    "1. list",
    "1) list",
    "12345678901. no list",
    "- item",
    "  - sub",
    "* star",
    "**bold** text",
    "*emphasis* text",
    "***",
    "_under_",
    "`code` text",
    "``` not closed",
    "```py",
    "```",
    "````",
    "~~~",
    "~~~~ `x`",
    "   ```",
    "    indented",
    "\ttab",
    "> quote",
    "| a | b |",
    "|---|:-:|",
    "| 1 | 2 | ",
    "| c \\| d |",
    "a | b",
    "-|-",
    "===",
    "---",
    "<div>",
    "</div>",
    "<!-- # x",
    "-->",
    "[ref]: /url",
    "[link](url) text",
    "![image](x)",
    "日本語。",
    "nul\0byte",
    "\u00a0",
    "\u2028 separator",
    "\x0b",
    "x\x0c",
]
lines = st.lists(st.sampled_from(LINES) | st.text("#`~|-=*_> 1.a\t\\", max_size=8), max_size=25)


@settings(max_examples=600, deadline=None, derandomize=True)
@given(lines, st.sampled_from([5, 60, 400_000]), st.booleans())
def test_patterns_and_grammar_agree(parts: list[str], window: int, closed: bool) -> None:
    text = "\n".join(parts) + "\n" * closed
    with patch.object(markdown, "WINDOW", window):
        fast = parse_markdown(text)
    with (
        patch.object(markdown, "simple_blocks", lambda *_: iter(())),
        patch.object(markdown, "_NEXT_SECTION", re.compile(r"(?!)")),
    ):
        full = parse_markdown(text)
    assert fast == full


@settings(max_examples=200, deadline=None, derandomize=True)
@given(lines)
def test_line_ends_change_spans_only(parts: list[str]) -> None:
    plain = parse_markdown("\n".join(parts))
    windows = parse_markdown("\r\n".join(parts))
    assert [(b.kind, b.level, b.title) for b in plain.blocks] == [
        (b.kind, b.level, b.title) for b in windows.blocks
    ]
