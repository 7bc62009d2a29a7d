"""Laws that hold for any text."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llama_index_hybrid_pack.indexing.analyzer import Analyzer

ANALYZERS = [
    Analyzer(),
    Analyzer(language=None),
    Analyzer(language="fr", fold_accents=False),
    Analyzer(language="de", max_term_length=8, ngram=3),
    Analyzer(language=None, identifier_parts=False, ngram=1),
]
#: Letters, digits and signs that stand in identifiers, so that generated text is full of them.
DENSE = st.text(alphabet="aBcE019-_./:+#'&@,\u2019é报销ก\u0301\u093f \n", max_size=60)
TEXTS = st.one_of(st.text(max_size=200), DENSE)


@pytest.mark.parametrize("analyzer", ANALYZERS)
@given(text=TEXTS)
def test_terms_are_non_empty_without_white_space_and_bounded(analyzer: Analyzer, text: str) -> None:
    for term in [*analyzer.terms(text), *analyzer.query_terms(text)]:
        assert term.split() == [term]
        assert len(term) <= analyzer.max_term_length
        term.encode("utf-8")


@pytest.mark.parametrize("analyzer", ANALYZERS)
@given(text=TEXTS)
def test_a_white_space_tokenizer_gives_the_same_terms_back(analyzer: Analyzer, text: str) -> None:
    terms = analyzer.terms(text)
    assert " ".join(terms).split() == terms
    assert " ".join(terms).split(" ") == (terms or [""])


@pytest.mark.parametrize("analyzer", ANALYZERS)
@given(text=TEXTS)
def test_a_document_is_found_by_its_own_text(analyzer: Analyzer, text: str) -> None:
    assert set(analyzer.query_terms(text)) <= set(analyzer.terms(text))
    assert bool(analyzer.query_terms(text)) == bool(analyzer.terms(text))


@pytest.mark.parametrize("analyzer", ANALYZERS)
@given(text=TEXTS)
def test_every_token_of_a_document_finds_it(analyzer: Analyzer, text: str) -> None:
    if text.isupper():  # shouted texts are read in lower case as a whole
        text = text.lower()
    terms = set(analyzer.terms(text))
    for token in text.split():
        assert set(analyzer.query_terms(token)) <= terms


@given(text=DENSE)
@example(text="BB\u093fa")  # a vowel sign belongs to the letter before it, capitals or not
def test_unstemmed_terms_find_themselves(text: str) -> None:
    analyzer = Analyzer(language=None)
    for term in analyzer.terms(text):
        assert term in analyzer.query_terms(term)


@given(first=TEXTS, second=TEXTS)
def test_texts_are_analysed_token_by_token(first: str, second: str) -> None:
    analyzer = Analyzer()
    both = analyzer.terms(f"x {first} {second}")
    assert both == analyzer.terms(f"x {first}") + analyzer.terms(f"x {second}")[1:]


@given(text=TEXTS)
def test_compatibility_forms_do_not_matter(text: str) -> None:
    analyzer = Analyzer(language=None)
    assert analyzer.terms(unicodedata.normalize("NFKC", text)) == analyzer.terms(text)


@given(text=TEXTS)
def test_queries_ignore_case_where_case_means_nothing(text: str) -> None:
    analyzer = Analyzer(language=None, identifier_parts=False)
    if len(text.upper()) == len(text) and text.upper().lower() == text.lower():
        assert analyzer.terms(text.upper()) == analyzer.terms(text.lower())


@pytest.mark.parametrize("analyzer", ANALYZERS)
@settings(max_examples=20, deadline=None)
@given(
    piece=st.text(alphabet="aA0-_.'+#/:&@,12é报\u0301", min_size=1, max_size=6),
    count=st.integers(1000, 3000),
)
def test_long_runs_give_terms_in_proportion(analyzer: Analyzer, piece: str, count: int) -> None:
    terms = analyzer.terms(piece * count)
    assert sum(map(len, terms)) <= 8 * len(piece) * count + 2 * analyzer.max_term_length


@pytest.mark.parametrize(
    "piece",
    ["12,", "1,000,", "a'", "a-", "a.", "a+", "C#", "aB", "a/", "a_", "报", "1a", "v1.", "://"],
)
def test_long_runs_take_time_in_proportion(piece: str) -> None:
    def seconds(count: int) -> float:
        analyzer = Analyzer()
        start = time.process_time()
        analyzer.terms(piece * count)
        return time.process_time() - start

    # Ten times the text: about ten times the time; a quadratic step would take a hundred times.
    assert seconds(40_000) < 40 * max(seconds(4_000), 0.005)
