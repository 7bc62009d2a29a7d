"""The example corpus and its golden set: offsets, counts and front matter are what they say."""

from __future__ import annotations

import datetime as dt
import hashlib
import itertools
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from llama_index_hybrid_pack.chunking.reader import read_folder
from llama_index_hybrid_pack.chunking.structure import StructureNodeParser
from llama_index_hybrid_pack.evaluation.golden_set import GoldenSet

DATA = Path(__file__).resolve().parents[2] / "examples" / "data"
HELP_CENTRE = DATA / "help_centre"
PAGES = sorted(path for path in HELP_CENTRE.rglob("*") if path.is_file())
QUESTIONS: list[dict[str, Any]] = [
    json.loads(line) for line in (DATA / "golden.jsonl").read_text(encoding="utf-8").splitlines()
]
README = (DATA / "README.md").read_text(encoding="utf-8")
KINDS = {
    "identifier",
    "keyword",
    "semantic",
    "table",
    "code",
    "multi_page",
    "near_duplicate",
    "version",
    "unanswerable",
}


def name_of(path: Path) -> str:
    return path.relative_to(HELP_CENTRE).as_posix()


def read(path: Path) -> str:
    with path.open(encoding="utf-8", newline="") as file:
        return file.read()


def front_matter(path: Path) -> dict[str, Any] | None:
    match = re.match(r"---\n(.*?)\n---\n", read(path), flags=re.DOTALL)
    return yaml.safe_load(match[1]) if match else None


def answers(question: dict[str, Any]) -> list[str]:
    return [
        read(HELP_CENTRE / span["document"])[span["start"] : span["end"]]
        for span in question["relevant_spans"]
    ]


by_id = pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question["id"])
by_page = pytest.mark.parametrize("path", PAGES, ids=name_of)


@by_page
def test_a_page_is_utf8_with_unix_line_ends_and_says_something(path: Path) -> None:
    data = path.read_bytes()
    text = data.decode("utf-8")
    assert not text.startswith("\ufeff")
    assert b"\r" not in data
    assert text.endswith("\n")
    assert len(text.split()) > 100


@by_page
def test_front_matter_parses_and_has_the_same_keys_everywhere(path: Path) -> None:
    matter = front_matter(path)
    if path.suffix == ".txt" or path.name == "missing-readings.md":
        assert matter is None
        return
    assert matter is not None
    assert {"title", "category", "product_area", "audience", "version", "updated"} <= set(matter)
    assert isinstance(matter["audience"], list)
    assert isinstance(matter["version"], str)
    assert isinstance(matter["updated"], dt.date)
    assert matter["category"] == path.parent.name
    assert f"\n# {matter['title']}\n" in read(path)


@by_page
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", read(path)):
        assert (path.parent / target).resolve().is_file(), f"{name_of(path)} links to {target}"


@by_page
def test_addresses_are_reserved_ones(path: Path) -> None:
    text = read(path)
    for host in re.findall(r"https?://([\w.-]+)|@([\w-]+(?:\.[\w-]+)+)", text):
        name = "".join(host).rstrip(".")
        if name != "host":  # a placeholder
            assert re.fullmatch(r"(?:[\w-]+\.)*example\.(?:com|org)|10\.0\.0\.\d+", name), name
    for address in re.findall(r"\b\d{1,3}(?:\.\d{1,3}){3}\b", text):
        assert address.startswith(("192.0.2.", "10.0.0.")), address


def test_ids_are_unique_and_in_order() -> None:
    assert [question["id"] for question in QUESTIONS] == [f"q{n:02d}" for n in range(1, 61)]


@by_id
def test_every_span_lies_in_its_document_and_starts_and_ends_at_text(
    question: dict[str, Any],
) -> None:
    for span in question["relevant_spans"]:
        text = read(HELP_CENTRE / span["document"])
        assert 0 <= span["start"] < span["end"] <= len(text)
        assert span["grade"] in {1, 2}
    for answer in answers(question):
        assert answer
        assert answer == answer.strip()


@by_id
def test_a_span_is_no_front_matter_and_breaks_no_line_of_a_table(question: dict[str, Any]) -> None:
    for span in question["relevant_spans"]:
        text = read(HELP_CENTRE / span["document"])
        opening = re.match(r"---\n.*?\n---\n", text, flags=re.DOTALL)
        assert span["start"] >= (opening.end() if opening else 0)
        if text[span["start"]] == "|":
            assert text[: span["start"]].rstrip(" ").endswith("\n")
            assert text[span["end"]] == "\n"


@by_id
def test_spans_of_one_question_do_not_overlap(question: dict[str, Any]) -> None:
    ordered = sorted(
        (span["document"], span["start"], span["end"]) for span in question["relevant_spans"]
    )
    for left, right in itertools.pairwise(ordered):
        assert left[0] != right[0] or left[2] <= right[1]


@by_id
def test_only_answerable_questions_have_spans_and_an_answer(question: dict[str, Any]) -> None:
    unanswerable = "unanswerable" in question["tags"]
    assert question["answerable"] is not unanswerable
    assert bool(question["relevant_spans"]) is not unanswerable
    assert bool(question["answer"]) is not unanswerable


@by_id
def test_a_question_about_several_pages_has_spans_in_several(question: dict[str, Any]) -> None:
    if question["tags"][0] == "multi_page":
        assert len({span["document"] for span in question["relevant_spans"]}) >= 2


@by_id
def test_tags_are_known_and_the_first_is_the_kind(question: dict[str, Any]) -> None:
    assert set(question["tags"]) <= KINDS


def test_the_golden_set_loads_and_splits_as_the_readme_says() -> None:
    golden = GoldenSet.from_jsonl(DATA / "golden.jsonl")
    assert [question.id for question in golden] == [question["id"] for question in QUESTIONS]
    assert sum(not question.answerable for question in golden) == 6
    development, held_out = golden.split()
    assert (len(development), len(held_out)) == (30, 30)


def test_the_reader_takes_every_page_and_every_span_lies_in_its_passages() -> None:
    documents, skipped = read_folder(HELP_CENTRE)
    assert skipped == []
    assert [document.id_ for document in documents] == sorted(map(name_of, PAGES))
    covered: dict[str, list[tuple[int, int]]] = {}
    for node in StructureNodeParser().get_nodes_from_documents(documents):
        covered.setdefault(node.ref_doc_id, []).append((node.start_char_idx, node.end_char_idx))
    for question in QUESTIONS:
        for span in question["relevant_spans"]:
            text = read(HELP_CENTRE / span["document"])
            missing = [
                place
                for place in range(span["start"], span["end"])
                if not text[place].isspace()
                and not any(start <= place < end for start, end in covered[span["document"]])
            ]
            assert missing == [], question["id"]


def test_the_readme_counts_the_kinds_right() -> None:
    stated = {
        kind: int(count)
        for kind, count in re.findall(r"^\| (\w+) \| (\d+) \|", README, flags=re.MULTILINE)
    }
    assert stated == Counter(question["tags"][0] for question in QUESTIONS)
    assert set(stated) == KINDS


def test_the_readme_counts_the_pages_and_the_halves_right() -> None:
    markdown = [path for path in PAGES if path.suffix == ".md"]
    assert f"{len(PAGES)} pages in {len({path.parent for path in PAGES})} folders" in README
    assert f"{len(markdown)} Markdown files" in README
    assert f"{len(PAGES) - len(markdown)} plain text files" in README
    assert f"{sum(front_matter(path) is not None for path in PAGES)} of the Markdown" in README
    even = [
        question
        for question in QUESTIONS
        if int(hashlib.sha1(question["id"].encode()).hexdigest(), 16) % 2 == 0
    ]
    assert f"is even ({len(even)})" in README
    assert f"the odd ones ({len(QUESTIONS) - len(even)})" in README
    answerable = sum(question["answerable"] for question in QUESTIONS)
    assert f"With {answerable} answerable questions" in README


def test_the_readme_shows_a_real_question() -> None:
    example = re.search(r"```json\n(.*?)```", README, flags=re.DOTALL)
    assert example is not None
    assert json.loads(example[1]) in QUESTIONS


def test_identifiers_that_the_unanswerable_questions_name_are_nowhere() -> None:
    corpus = "\n".join(read(path) for path in PAGES)
    for absent in ("E-506", "v2.1.5", "Rust", "charit", "colour"):
        assert absent not in corpus


def test_the_two_refund_policies_say_which_one_is_current() -> None:
    old, new = (
        front_matter(HELP_CENTRE / f"policies/refunds-{year}.md") or {} for year in (2023, 2024)
    )
    assert old["status"] == "superseded"
    assert old["superseded_by"] == "policies/refunds-2024.md"
    assert new["status"] == "current"
    assert old["effective"] < new["effective"]


def test_codes_mean_the_same_everywhere() -> None:
    """Every code that any page names is in the table that explains it."""
    corpus = "\n".join(read(path) for path in PAGES)
    for pattern, page in (
        (r"\bE-\d{3}\b", "devices/hub-error-codes.md"),
        (r"\bERR-\d{4}\b", "api/errors.md"),
        (r"\bTLN-\d{4}-\d{4}\b", "security/advisories.md"),
    ):
        defined = set(
            re.findall(rf"^(?:\| |## )({pattern})", read(HELP_CENTRE / page), re.MULTILINE)
        )
        assert set(re.findall(pattern, corpus)) <= defined
