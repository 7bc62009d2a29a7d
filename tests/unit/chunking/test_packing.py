"""Packing: sections, budgets, whole blocks, headings with their text."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from llama_index_hybrid_pack.chunking.blocks import BlockKind
from llama_index_hybrid_pack.chunking.drafts import Chunk, Limits
from llama_index_hybrid_pack.chunking.markdown import parse_markdown
from llama_index_hybrid_pack.chunking.measuring import Measure, is_countable
from llama_index_hybrid_pack.chunking.packing import pack
from llama_index_hybrid_pack.chunking.plain_text import parse_plain_text
from llama_index_hybrid_pack.chunking.sections import Path, common_path, split_sections
from llama_index_hybrid_pack.text import Tokenizer, get_tokenizer


def chunks(text: str, budget: int, *, plain: bool = False, smallest: int = 0) -> list[Chunk]:
    blocks = (parse_plain_text(text) if plain else parse_markdown(text)).blocks

    def limits(_path: Path) -> Limits:
        return Limits(budget)

    measure = Measure(text, get_tokenizer())
    return list(pack(split_sections(blocks), measure, limits, min_chunk_size=smallest))


def parts(text: str, budget: int, *, plain: bool = False, smallest: int = 0) -> list[str]:
    return [text[c.start : c.end] for c in chunks(text, budget, plain=plain, smallest=smallest)]


def tokens(chunk: Chunk, text: str) -> int:
    header = f"{chunk.table_header}\n" if chunk.table_header else ""
    return get_tokenizer().count(header + text[chunk.start : chunk.end])


def test_a_section_never_mixes_into_the_next() -> None:
    assert parts("# A\n\none\n\n# B\n\ntwo\n", 100) == ["# A\n\none", "# B\n\ntwo"]


def test_headings_without_text_go_with_the_text_that_follows() -> None:
    found = chunks("# A\n\n## B\n\n### C\n\ntext\n\n## D\n\n# E\n\nmore\n\n# F\n", 100)
    assert [c.path for c in found] == [("A", "B", "C"), ("E",), ("F",)]


def test_a_rule_is_no_text() -> None:
    assert parts("---\n\n# A\n\n---\n\n# B\n\ntext\n", 100) == ["---\n\n# A\n\n---\n\n# B\n\ntext"]


def test_many_headings_without_text_stay_inside_the_budget() -> None:
    text = "".join(f"# Heading number {n}\n\n" for n in range(200)) + "At last.\n"
    found = chunks(text, 40)
    assert all(tokens(chunk, text) <= 40 for chunk in found)
    assert found[-1].path == ("Heading number 199",)
    assert text[found[-1].start : found[-1].end].endswith("# Heading number 199\n\nAt last.")


def test_blocks_that_fit_alone_are_never_cut() -> None:
    code = "```\n" + "\n\n".join(f"call_{n}()" for n in range(8)) + "\n```"
    listing = "\n".join(f"- item number {n}" for n in range(6))
    text = f"# A\n\n{'Some words here. ' * 8}\n\n{code}\n\n{listing}\n"
    found = parts(text, 60)
    assert any(code in part for part in found)
    assert any(listing in part for part in found)


def test_code_is_cut_at_blank_lines_then_at_lines() -> None:
    functions = [f"def f{n}():\n    a = {n}\n    return a" for n in range(12)]
    text = "```python\n" + "\n\n".join(functions) + "\n```\n"
    for part in parts(text, 40):
        assert part.count("def f") == part.count("return a")
    for part in parts("```\n" + "\n".join(f"call({n})" for n in range(100)) + "\n```", 30):
        assert all(line.startswith(("call(", "```")) for line in part.splitlines())


def test_code_keeps_its_indentation_where_it_is_cut() -> None:
    lines = [f"{'    ' * (n % 4)}step_{n}()" for n in range(80)]
    text = "```\n" + "\n".join(lines) + "\n```\n"
    found = [line for part in parts(text, 30) for line in part.splitlines()]
    assert found == ["```", *lines, "```"]


def test_lists_are_cut_between_items_and_items_between_blocks() -> None:
    items = [f"- Item {n} has a sentence of its own.\n  - nested {n}" for n in range(20)]
    for part in parts("\n".join(items) + "\n", 50):
        assert part.startswith("- Item")
        assert part.count("- Item") == part.count("- nested")
    long_item = "- first\n\n" + "\n\n".join(f"  Paragraph {n} says a thing." for n in range(20))
    for part in parts(long_item, 40):
        assert part.strip().endswith(("thing.", "first"))


def test_text_is_cut_at_sentences_then_words_then_characters() -> None:
    text = " ".join(f"This is sentence number {n}." for n in range(60))
    assert all(part.endswith(".") and part.startswith("This") for part in parts(text, 40))
    words = "word " * 300
    assert all(set(part.split()) == {"word"} for part in parts(words, 40))
    assert "".join(parts("x" * 5_000, 40)) == "x" * 5_000


def test_plain_text_without_sentences_is_cut_at_lines() -> None:
    lines = [f"2024-01-01 INFO worker {n} started" for n in range(100)]
    found = parts("\n".join(lines), 40, plain=True)
    assert [line for part in found for line in part.splitlines()] == lines


def test_a_heading_keeps_some_of_a_block_that_does_not_fit_beside_it() -> None:
    text = "# A heading of several words\n\n" + " ".join(f"Sentence number {n}." for n in range(8))
    found = parts(text, 40)
    assert found[0].startswith("# A heading")
    assert "Sentence number 0." in found[0]


def test_a_small_rest_is_evened_out() -> None:
    sentences = " ".join(f"This is sentence number {n}." for n in range(10))
    sizes = [get_tokenizer().count(part) for part in parts(sentences, 56)]
    assert min(sizes) * 4 >= 56


def test_table_rows_stay_whole_and_later_ones_know_their_header() -> None:
    rows = "".join(f"| plan{n} | {n} seats |\n" for n in range(40))
    text = f"Table 1: prices\n\n| Plan | Seats |\n|---|---|\n{rows}\nPrices exclude tax.\n"
    found = chunks(text, 60)
    assert len(found) > 3
    assert found[0].table_header is None
    assert text[found[0].start : found[0].end].startswith("Table 1: prices\n\n| Plan | Seats |")
    for chunk in found[1:]:
        assert chunk.table_header == "| Plan | Seats |\n|---|---|"
        assert chunk.kind is BlockKind.TABLE
        assert text[chunk.start : chunk.end].startswith("| plan")
        assert tokens(chunk, text) <= 60


@pytest.mark.parametrize("cells", [12, 60, 400])
def test_a_header_over_the_budget_is_shortened_or_left_out_and_rows_stay(cells: int) -> None:
    header = "|" + "|".join(f" a rather long column name {n} " for n in range(cells)) + "|"
    dashes = "|" + "---|" * cells
    rows = "".join(f"| r{n} |\n" for n in range(40))
    text = f"{header}\n{dashes}\n{rows}"
    found = chunks(text, 64)
    assert all(tokens(chunk, text) <= 64 for chunk in found)
    body = "\n".join(text[c.start : c.end] for c in found)
    assert all(f"| r{n} |" in body for n in range(40))
    if cells == 12:
        later = [c for c in found if "| r39 |" in text[c.start : c.end]]
        assert later[0].table_header is None or "…" in later[0].table_header


def test_a_shortened_header_keeps_its_columns() -> None:
    text = (
        "| the first column of the table with many words | the second column also with many |\n"
        "|---|:--|\n" + "".join(f"| {n} | {n} |\n" for n in range(60))
    )
    header = chunks(text, 40)[-1].table_header
    assert header is not None
    first, second = header.splitlines()
    assert first.count("|") == second.count("|") == 3
    assert first.startswith("| the f")
    assert second == "| --- | --- |"


def test_a_table_in_a_list_item_repeats_its_header_too() -> None:
    rows = "".join(f"  | {n} | {n}.5 |\n" for n in range(40))
    text = f"- item\n\n  | id | v |\n  |---|---|\n{rows}"
    found = chunks(text, 60)
    assert all("| id | v |" in (c.table_header or "") for c in found[1:])


def test_small_sections_are_joined_only_on_request_and_only_with_small_ones() -> None:
    text = "# Top\n\n## A\n\none\n\n## B\n\ntwo\n\n## C\n\n" + "Long text here. " * 8
    assert len(chunks(text, 100)) == 3
    joined = chunks(text, 100, smallest=20)
    assert [c.path for c in joined] == [("Top",), ("Top", "C")]
    assert text[joined[0].start : joined[0].end] == "# Top\n\n## A\n\none\n\n## B\n\ntwo"


def test_joined_sections_stay_inside_the_budget() -> None:
    text = "".join(f"# H{n}\n\na few words\n\n" for n in range(60))
    found = chunks(text, 40, smallest=40)
    assert 1 < len(found) < 30
    assert all(tokens(c, text) <= 40 for c in found)


def test_long_white_space_between_pieces_is_counted_or_ends_a_chunk() -> None:
    text = "one" + " \n" * 400 + "two" + "\n" * 80 + "three"
    for plain in (False, True):
        found = chunks(text, 30, plain=plain)
        assert all(tokens(c, text) <= 30 for c in found)
        assert "".join(text[c.start : c.end] for c in found).split() == ["one", "two", "three"] or [
            text[c.start : c.end].split() for c in found
        ]


def test_the_kind_is_that_of_most_of_the_chunk() -> None:
    text = "# A\n\nshort\n\n```\n" + "code()\n" * 10 + "```\n"
    assert [c.kind for c in chunks(text, 100)] == [BlockKind.CODE]
    assert [c.kind for c in chunks("# Only\n", 100)] == [BlockKind.HEADING]


def test_nothing_gives_no_chunks() -> None:
    assert chunks("", 40) == []


def test_unbroken_runs_and_long_texts_are_not_counted_as_a_whole() -> None:
    assert not is_countable("x" * 600, 10_000)
    assert not is_countable("word " * 1_000, 100)
    assert is_countable("word " * 100, 100)
    assert is_countable("x" * 500, 10)


def test_paths_share_their_beginning() -> None:
    assert common_path(("a", "b", "c"), ("a", "b", "d")) == ("a", "b")
    assert common_path((), ("a",)) == ()


def test_sections_skip_levels_and_empty_headings() -> None:
    blocks = parse_markdown("# A\n### B\n#\n## C\n").blocks
    assert [s.path for s in split_sections(blocks)] == [("A",), ("A", "B"), (), ("C",)]


class Counting(Tokenizer):
    """Counts ``per_word`` tokens a word and ``per_gap`` for white space between two words."""

    name = "counting"

    def __init__(self, *, per_word: int = 1, per_gap: int = 0) -> None:
        self._per_word = per_word
        self._per_gap = per_gap

    def spans(self, text: str) -> list[tuple[int, int]]:
        raise NotImplementedError

    def count_many(self, texts: Sequence[str]) -> list[int]:
        return [
            self._per_word * len(text.split()) + self._per_gap * max(0, len(text.split()) - 1)
            for text in texts
        ]


def pack_with(tokenizer: Tokenizer, text: str, budget: int) -> list[str]:
    sections = split_sections(parse_markdown(text).blocks)
    measure = Measure(text, tokenizer)
    return [text[c.start : c.end] for c in pack(sections, measure, lambda _: Limits(budget))]


@pytest.mark.parametrize("per_gap", [0, 1])
def test_the_budget_holds_where_joined_pieces_cost_more_than_their_sum(per_gap: int) -> None:
    tokenizer = Counting(per_gap=per_gap)
    rows = "".join(f"| r{n} | x |\n" for n in range(30))
    text = (
        "# One two three\n\n" + "a b c. D e f. " * 20 + "\n\n- i\n- j\n- k\n\n"
        f"# Table\n\n| h | v |\n|---|---|\n{rows}\n# Last\n\n" + "word " * 50
    )
    found = pack_with(tokenizer, text, 24)
    assert all(tokenizer.count(part) <= 24 for part in found)
    assert " ".join(found).split() == text.split()
    assert not any(part.startswith("#") and "\n" not in part for part in found)


def test_rows_go_before_their_header_does() -> None:
    rows = "".join(f"| r{n} | x |\n" for n in range(60))
    text = f"| h | v |\n|---|---|\n{rows}"
    tokenizer = Counting(per_gap=1)
    sections = split_sections(parse_markdown(text).blocks)
    found = list(pack(sections, Measure(text, tokenizer), lambda _: Limits(50)))
    assert len(found) > 3
    assert all(chunk.table_header == "| h | v |\n|---|---|" for chunk in found[1:])
    for chunk in found:
        shown = f"{chunk.table_header or ''}\n{text[chunk.start : chunk.end]}"
        assert tokenizer.count(shown) <= 50


def test_characters_over_the_budget_do_not_stop_it() -> None:
    text = "# Héading\n\nabc e\u0301 👨‍👩‍👧\n\n- x\n"
    found = pack_with(Counting(per_word=100), text, 24)
    assert "".join(found).split() == "".join(text.split()).split()
    assert max(map(len, found)) == 1


def test_a_long_heading_over_the_budget_is_cut_too() -> None:
    text = f"# {'word ' * 60}\n\n# {'more ' * 60}\n\ntext here\n"
    found = chunks(text, 24)
    assert all(tokens(chunk, text) <= 24 for chunk in found)
    assert " ".join(text[c.start : c.end] for c in found).split() == text.split()
