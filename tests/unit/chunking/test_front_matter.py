"""Front matter: what becomes metadata, and what stays text."""

from __future__ import annotations

import pytest

from llama_index_hybrid_pack.chunking.blocks import BlockKind
from llama_index_hybrid_pack.chunking.front_matter import MAX_FRONT_MATTER, read_front_matter
from llama_index_hybrid_pack.chunking.markdown import parse_markdown


def test_scalars_lists_and_dates_become_metadata() -> None:
    text = (
        "---\ntitle: Refunds\nversion: 3\nratio: 0.5\ndraft: false\ntags: [eu, 7]\n"
        "date: 2024-05-01\nupdated: 2024-05-01 10:30:00\nempty:\nnan: .nan\n---\nBody"
    )
    found = read_front_matter(text)
    assert found.metadata == {
        "title": "Refunds",
        "version": 3,
        "ratio": 0.5,
        "draft": False,
        "tags": ["eu", 7],
        "date": "2024-05-01",
        "updated": "2024-05-01T10:30:00",
        "nan": "nan",
    }
    assert text[found.end :] == "Body"


def test_nested_values_are_kept_in_a_flat_form() -> None:
    found = read_front_matter(
        "---\nauthor:\n  name: Ann\n  since: 2020-01-02\nrefs: [{a: 1}]\n---\n"
    )
    assert found.metadata == {
        "author.name": "Ann",
        "author.since": "2020-01-02",
        "refs": '[{"a": 1}]',
    }


@pytest.mark.parametrize("newline", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("closing", ["---", "...", "--- "])
def test_line_ends_and_both_closings(newline: str, closing: str) -> None:
    found = read_front_matter(newline.join(["---", "# note", "k: v", closing, "Body"]))
    assert found.metadata == {"k": "v"}


@pytest.mark.parametrize(
    "text",
    [
        "\n---\nk: v\n---\n",  # not at the very start
        "---\nk: v\n",  # never closed
        "----\nk: v\n----\n",
        "---\njust text\n---\n",  # a line between two rules
        "---\n- a\n- b\n---\n",
        "",
    ],
)
def test_what_is_no_front_matter_is_left_alone(text: str) -> None:
    assert read_front_matter(text) == ({}, 0, False)


@pytest.mark.parametrize(
    "body",
    [
        "a: [",
        "a: b: c",
        "date: 2024-13-45",
        "# comment\na: [",
        "a: &x [1]\nb: *x",
        "k: !!python/object/apply:os.system ['true']",
    ],
)
def test_malformed_front_matter_stays_text_and_is_no_heading(body: str) -> None:
    text = f"---\n{body}\n---\n# Real\n"
    parsed = parse_markdown(text)
    assert parsed.metadata == {}
    assert parsed.blocks[0].kind is BlockKind.FRONT_MATTER
    assert text[parsed.blocks[0].start : parsed.blocks[0].end] == f"---\n{body}\n---"
    assert [b.title for b in parsed.blocks if b.kind is BlockKind.HEADING] == ["Real"]


def test_a_rule_at_the_start_hides_no_headings() -> None:
    text = "---\n\nSee: this: there\n\n# Title\n\ntext\n\n---\n"
    titles = [b.title for b in parse_markdown(text).blocks if b.kind is BlockKind.HEADING]
    assert titles == ["Title"]


def test_aliases_cannot_blow_up() -> None:
    bomb = "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(50))
    assert read_front_matter(f"---\n{bomb}---\n").metadata == {}


def test_deep_nesting_is_no_crash() -> None:
    assert read_front_matter(f"---\na: {'[' * 5_000}\n---\n").metadata == {}


def test_a_long_one_is_text() -> None:
    assert read_front_matter(f"---\na: {'x' * MAX_FRONT_MATTER}\n---\n").end == 0


@pytest.mark.parametrize(
    "text",
    ["---\n\n# Title\n\nNote: this is text.\n\n---\n", "---\n \n# Title\n\n---\n\ntext\n"],
)
def test_a_rule_before_a_blank_line_loses_no_heading(text: str) -> None:
    parsed = parse_markdown(text)
    assert parsed.metadata == {}
    assert [b.title for b in parsed.blocks if b.kind is BlockKind.HEADING] == ["Title"]


def test_comments_alone_stay_text() -> None:
    parsed = parse_markdown("---\n# only a comment\n---\nBody")
    assert [b.kind for b in parsed.blocks] == [BlockKind.FRONT_MATTER, BlockKind.PARAGRAPH]
