"""Plain text: paragraphs, sentences, words, characters."""

from __future__ import annotations

import itertools

import pytest

from llama_index_hybrid_pack.chunking.plain_text import (
    character_cuts,
    line_cuts,
    line_starts,
    paragraph_cuts,
    parse_plain_text,
    sentence_cuts,
    trimmed_start,
    word_cuts,
)


def pieces(text: str, cuts: list[int]) -> list[str]:
    bounds = [0, *cuts, len(text)]
    return [text[a:b] for a, b in itertools.pairwise(bounds)]


def sentences(text: str) -> list[str]:
    return [piece.strip() for piece in pieces(text, sentence_cuts(text, 0, len(text)))]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ("Dr. Smith met J. R. Hale at 3 p.m. Friday.", None),
        ("Use e.g. Redis, i.e. a cache, etc. for this.", None),
        ("It costs 3.50 EUR. Pay now.", ["It costs 3.50 EUR.", "Pay now."]),
        ("See fig. 3 and no. 7.", None),
        ('He said "Stop." Then he left.', ['He said "Stop."', "Then he left."]),
        ("Really?! Yes... No.", ["Really?!", "Yes...", "No."]),
        ("Do you agree? No. Then leave.", ["Do you agree?", "No.", "Then leave."]),
        ("Wait... and see.", None),
        ("1. Open the lid. 2. Close it.", ["1. Open the lid.", "2.", "Close it."]),
        ("In 2024. The end.", ["In 2024.", "The end."]),
        ("これは文です。次の文！「終わり。」", ["これは文です。", "次の文！", "「終わり。」"]),
        ("Use v2.1.3 and node.js here. Done.", ["Use v2.1.3 and node.js here.", "Done."]),
        ("Line one.\nLine two.", ["Line one.", "Line two."]),
        ("هل هذا سؤال؟ نعم.", ["هل هذا سؤال؟", "نعم."]),
        ("(Inside.) Outside.", ["(Inside.)", "Outside."]),
        ("Mail a@b.example. Or call.", ["Mail a@b.example.", "Or call."]),
        ("no end", None),
        (".", None),
        ("", None),
    ],
)
def test_sentences(text: str, expected: list[str] | None) -> None:
    assert sentences(text) == ([text] if expected is None else expected)


def test_paragraphs_end_at_blank_lines_of_any_kind() -> None:
    text = "one\ntwo\n \t\nthree\r\n\r\nfour\r\rfive"
    assert [p.strip() for p in pieces(text, paragraph_cuts(text, 0, len(text)))] == [
        "one\ntwo",
        "three",
        "four",
        "five",
    ]
    assert paragraph_cuts("a\r\nb", 0, 4) == []


def test_lines_keep_their_indentation() -> None:
    text = "a:\n\n    b\r\n\tc"
    assert pieces(text, line_cuts(text, 0, len(text))) == ["a:\n\n", "    b\r\n", "\tc"]


def test_words_and_groups_of_words() -> None:
    text = "one two  three\nfour"
    assert pieces(text, word_cuts(text, 0, len(text), width=0)) == [
        "one",
        " two",
        "  three\n",
        "four",
    ]
    assert pieces(text, word_cuts(text, 0, len(text), width=7)) == ["one two", "  three\n", "four"]


@pytest.mark.parametrize(
    "cluster",
    [
        "👨‍👩‍👧‍👦",
        "🇩🇪",
        "e\u0301\u0302",
        "👍🏽",
        "한",
        "🏴\U000e0067\U000e0062\U000e007f",
        "\r\n",
        "\ud83d\ude00",
    ],
)
def test_characters_that_are_seen_as_one_stay_together(cluster: str) -> None:
    text = cluster * 20
    for width in (1, 2, 3, 5):
        for cut in character_cuts(text, 0, len(text), width=width):
            assert cut % len(cluster) == 0


def test_long_runs_of_flags_and_marks_are_cut_in_linear_time() -> None:
    assert len(character_cuts("🇩🇪" * 40_000, 0, 80_000, width=64)) > 1_000
    assert character_cuts("a" + "\u0301" * 100_000, 0, 100_001, width=64) == []


def test_line_starts_know_every_line_end() -> None:
    assert line_starts("a\nb\r\nc\rd") == [0, 2, 5, 7, 8]
    assert line_starts("a\n") == [0, 2, 2]
    assert line_starts("") == [0, 0]


def test_leading_white_space_is_an_indentation_only_at_a_line_start() -> None:
    assert trimmed_start("\n\n    code", 0, 10) == 2
    assert trimmed_start("end.  Next", 4, 10) == 6
    assert trimmed_start(" " * 500 + "x", 0, 501) == 500


def test_plain_text_has_paragraphs_and_no_markup() -> None:
    text = "\n# no heading\n\n- no list\n\n"
    blocks = parse_plain_text(text).blocks
    assert [text[b.start : b.end] for b in blocks] == ["# no heading", "- no list"]
    assert parse_plain_text(" \n ").blocks == ()
