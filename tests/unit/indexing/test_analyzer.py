"""The analyzer: identifiers, scripts, languages, and what a value object must do."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys
import threading

import pytest

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.analyzer import Analyzer

ENGLISH = Analyzer()
PLAIN = Analyzer(language=None)

IDENTIFIERS = {
    "E-504": ["e-504", "e", "504"],
    "ERR-4012": ["err-4012", "err", "4012"],
    "v2.1.3": ["v2.1.3", "2.1.3", "v2", "1", "3"],
    "C++": ["c++", "c"],
    "C#": ["c#", "c"],
    "F#": ["f#", "f"],
    "C++17": ["c++17", "c++", "17"],
    ".NET": [".net", "net"],
    "ASP.NET": ["asp.net", "asp", "net"],
    "88-210": ["88-210", "88", "210"],
    "user_id": ["user_id", "user", "id"],
    "CVE-2024-1234": ["cve-2024-1234", "cve", "2024", "1234"],
    "10.0.0.1": ["10.0.0.1", "10", "0", "1"],
    "X-9": ["x-9", "x", "9"],
    "AT&T": ["at&t", "at", "t"],
    "foo.bar()": ["foo.bar", "foo", "bar"],
    "std::io::Error": ["std::io::error", "std", "io", "error"],
    "camelCase": ["camelcase", "camel", "case"],
    "HTTPServer": ["httpserver", "http", "server"],
    "APIs": ["apis"],
    "/usr/lib": ["usr/lib", "usr", "lib"],
    "a/b": ["a/b", "a", "b"],
    "src/main_test.py": ["src/main_test.py", "main_test.py", "src", "main", "test", "py"],
    "j.doe@example.com": ["j.doe@example.com", "j.doe", "example.com", "doe", "example"],
    "https://example.com/a-b?x=1": ["https://example.com/a-b", "example.com", "ab", "example"],
    "3f2a9c1e7b": ["3f2a9c1e7b"],
    "3.14": ["3.14", "3", "14"],
    "1,000": ["1,000", "1000"],
    "1,234,567": ["1,234,567", "1234567"],
    "1,00,000": ["1,00,000", "100000"],
    "R": ["r"],
    "C": ["c"],
    "CD4+": ["cd4+", "cd4"],
    "sha256": ["sha256", "sha", "256"],
    "U.S.": ["us"],
    "U.S.A": ["usa"],
    "e.g.": ["eg"],
    "12:30": ["12:30", "12", "30"],
    "E-504/E-505": ["e-504/e-505", "e-504", "e-505", "504", "505"],
}


@pytest.mark.parametrize("text", IDENTIFIERS)
def test_an_identifier_stays_whole_and_counts_as_parts(text: str) -> None:
    terms = PLAIN.terms(text)
    assert terms[0] == IDENTIFIERS[text][0], "the whole comes first"
    assert set(IDENTIFIERS[text]) <= set(terms)


@pytest.mark.parametrize("text", IDENTIFIERS)
@pytest.mark.parametrize("frame", ["see {}.", "({}),", '"{}"!', "[{}];", "{}?", "**{}**", "`{}`:"])
def test_punctuation_around_an_identifier_is_no_part_of_it(text: str, frame: str) -> None:
    framed = PLAIN.terms(frame.format(text))
    assert [term for term in framed if term != "see"] == PLAIN.terms(text)


@pytest.mark.parametrize("text", IDENTIFIERS)
def test_a_query_for_an_identifier_looks_for_the_whole(text: str) -> None:
    assert IDENTIFIERS[text][0] in PLAIN.query_terms(text.upper())


@pytest.mark.parametrize(
    ("text", "whole"),
    [(text, terms[0]) for text, terms in IDENTIFIERS.items() if not terms[0].isalpha()],
)
def test_stemming_leaves_identifiers_alone(text: str, whole: str) -> None:
    assert whole in ENGLISH.terms(text)


def test_parts_can_be_left_out() -> None:
    wholes = Analyzer(language=None, identifier_parts=False)
    assert wholes.terms("E-504 user_id v2.1.3 HTTPServer C++ 1,000 a/b-c") == [
        *["e-504", "user_id", "v2.1.3", "httpserver", "c++", "1,000", "1000", "a/b-c"]
    ]


def test_hyphenated_words_are_found_joined_and_by_their_parts() -> None:
    assert PLAIN.terms("re-rank") == ["rerank", "re", "rank"]
    assert PLAIN.terms("state-of-the-art")[1:] == ["state", "of", "the", "art"]
    assert PLAIN.terms("e\u2011mail") == PLAIN.terms("e-mail"), "a non-breaking hyphen is one"
    assert PLAIN.terms("E\u2013504") == PLAIN.terms("E-504"), "so is a dash between two parts"
    assert PLAIN.terms("one\u2014two") == ["one", "two"], "a long dash parts sentences"


@pytest.mark.parametrize(
    ("text", "terms"),
    [
        ("don't", ["dont"]),
        ("don\u2019t", ["dont"]),
        ("user's", ["user"]),
        ("users'", ["users"]),
        ("they'll", ["they"]),
        ("l'eau", ["eau"]),
        ("L\u2019eau", ["eau"]),
        ("qu'il", ["il"]),
        ("O'Brien", ["obrien", "brien"]),
        ("'quoted'", ["quoted"]),
        ("rock'n'roll", ["rocknroll", "rock", "roll"]),
    ],
)
def test_apostrophes(text: str, terms: list[str]) -> None:
    assert PLAIN.terms(text) == terms


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("café", "cafe"),
        ("cafe\u0301", "café"),
        ("Straße", "STRASSE"),
        ("İstanbul", "istanbul"),
        ("ısı", "isi"),
        ("ＡＢＣ１２３", "abc123"),
        ("ﬁne", "fine"),
        ("Ærø", "aero"),
        ("Łódź", "lodz"),
        ("Ελλάδα", "ΕΛΛΑΔΑ"),
        ("Όμηρος", "ομηροσ"),
        ("ёлка", "елка"),
        ("за\u0301мок", "замок"),
        ("مُحَمَّد", "محمد"),
        ("محـــمد", "محمد"),
        ("أحمد", "احمد"),
        ("שָׁלוֹם", "שלום"),
        ("צה״ל", "צהל"),
        ("٤٥", "45"),
        ("soft\u00adware", "software"),
        ("ｶﾞｽ", "ガス"),
    ],
)
def test_spellings_of_one_word_are_one_term(one: str, other: str) -> None:
    assert PLAIN.terms(one) == PLAIN.terms(other) != []


@pytest.mark.parametrize(
    ("one", "other"),
    [("мой", "мои"), ("が", "か"), ("हिन्दी", "हनद"), ("ك", "ق")],
)
def test_marks_that_make_another_letter_stay(one: str, other: str) -> None:
    assert PLAIN.terms(one) != PLAIN.terms(other)


def test_accents_stay_when_asked() -> None:
    kept = Analyzer(language=None, fold_accents=False)
    assert kept.terms("Café") == ["café"]


def test_words_of_indic_scripts_are_whole() -> None:
    assert PLAIN.terms("हिन्दी भाषा।") == ["हिन्दी", "भाषा"]
    assert PLAIN.terms("தமிழ் மொழி") == ["தமிழ்", "மொழி"]


@pytest.mark.parametrize(
    ("document", "query"),
    [
        ("报销标准每天三百元", "报销"),
        ("東京都の天気予報", "天気"),
        ("東京都の天気予報", "東京都"),
        ("コンピューターの画面", "画面"),
        ("학교에서 공부한다", "학교"),
        ("ภาษาไทยง่าย", "ไทย"),
        ("ພາສາລາວ", "ລາວ"),
        ("ភាសាខ្មែរ", "ខ្មែរ"),
        ("一", "一"),
        ("報告書", "書"),
        ("iPhone15を買う", "iphone15"),
        ("𠮷野家", "𠮷野"),
    ],
)
def test_scripts_without_spaces_are_found_by_any_piece(document: str, query: str) -> None:
    wanted = PLAIN.query_terms(query)
    assert wanted
    assert set(wanted) <= set(PLAIN.terms(document))


def test_a_query_in_such_a_script_does_not_fall_apart_into_single_characters() -> None:
    assert PLAIN.query_terms("报销标准") == ["报销", "销标", "标准"]
    assert PLAIN.query_terms("报") == ["报"]
    assert Analyzer(language=None, ngram=3).query_terms("报销标准") == ["报销标", "销标准"]
    assert Analyzer(language=None, ngram=1).terms("报销") == ["报", "销"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "   ",
        "???",
        "-- // ++ ##",
        "😀👍🏽👨‍👩‍👧",
        "\ud800",
        "\x00\x01",
        "\u200b\u200d\ufeff",
        "\u0301",
    ],
)
def test_text_without_words_has_no_terms(text: str) -> None:
    assert ENGLISH.terms(text) == ENGLISH.query_terms(text) == []


def test_broken_text_keeps_its_words() -> None:
    assert PLAIN.terms("one\x00two \ud800three\udfff four\u200bfive") == [
        *["one", "two", "three", "four", "five"]
    ]


def test_unbroken_runs_are_cut() -> None:
    analyzer = Analyzer(language=None, max_term_length=16)
    assert analyzer.terms("a" * 1000) == ["a" * 16]
    assert max(map(len, analyzer.terms("ab-" * 1000 + "😀" + "Ab" * 1000))) == 16
    assert "a" * 16 in analyzer.query_terms("a" * 500), "the query is cut where the document is"


def test_numbers_in_a_list_are_parted() -> None:
    assert PLAIN.terms("1,2,3 10,5 1,2345") == ["1", "2", "3", "10", "5", "1", "2345"]


def test_a_hash_is_not_taken_apart() -> None:
    digest = "da39a3ee5e6b4b0d3255bfef95601890afd80709"
    assert PLAIN.terms(digest) == [digest]


def test_english_words_meet_in_their_stem() -> None:
    assert ENGLISH.terms("The refunds were refunded") == ["refund", "were", "refund"]
    assert ENGLISH.terms("re-ranking")[-1] == "rank", "parts are stemmed as words are"
    assert Analyzer(stemming=False).terms("The refunds") == ["refunds"]


@pytest.mark.parametrize(
    ("language", "one", "other"),
    [
        ("de", "Häuser", "Haus"),
        ("fr", "réglementée", "réglementer"),
        ("es", "operación", "operaciones"),
        ("pt-BR", "informação", "informações"),
        ("italian", "libri", "libro"),
        ("ru", "книги", "книга"),
        ("sv", "bilarna", "bilar"),
        ("tr", "kitaplar", "kitap"),
    ],
)
def test_inflected_words_meet_in_their_language(language: str, one: str, other: str) -> None:
    analyzer = Analyzer(language=language)
    assert analyzer.terms(one) == analyzer.terms(other)


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("en", "to be or not to be"),
        ("de", "der und die"),
        ("fr", "dans les"),
        ("es", "de la más"),
        ("it", "è della"),
        ("pt", "não são"),
        ("nl", "het een"),
        ("sv", "från och över"),
        ("da", "på og"),
        ("no", "når det"),
        ("fi", "että se"),
        ("ru", "и не ещё"),
    ],
)
def test_stop_words_leave_by_language(language: str, text: str) -> None:
    assert Analyzer(language=language).terms(text) == []
    assert len(Analyzer(language=language, stop_words=None).terms(text)) == len(text.split())


def test_a_language_without_stemmer_or_list_keeps_every_word() -> None:
    assert Analyzer(language="pl").terms("w domu i na polu") == ["w", "domu", "i", "na", "polu"]


def test_no_language_means_neither_stemming_nor_stop_words() -> None:
    assert PLAIN.terms("To be or not to be tested") == [
        *["to", "be", "or", "not", "to", "be", "tested"]
    ]


def test_own_stop_words_are_matched_as_terms_are() -> None:
    analyzer = Analyzer(language=None, stop_words=("CAFÉ",), query_stop_words=("Tell",))
    assert analyzer.terms("Cafe tell bar") == ["tell", "bar"]
    assert analyzer.query_terms("tell bar") == ["bar"]


def test_question_words_leave_a_query_only_when_others_remain() -> None:
    assert ENGLISH.query_terms("How do I cancel my order?") == ["cancel", "order"]
    assert ENGLISH.query_terms("the who") == ["who"], "the band can be found"
    assert ENGLISH.terms("the who") == ["who"], "because documents keep the word"
    assert Analyzer(query_stop_words=None).query_terms("how to cancel") == ["how", "cancel"]


def test_a_query_of_stop_words_has_no_terms() -> None:
    assert ENGLISH.query_terms("to be or not to be") == []
    assert PLAIN.query_terms("to be or not to be") == ["to", "be", "or", "not", "to", "be"]


def test_abbreviations_in_capitals_are_no_stop_words() -> None:
    assert "it" in ENGLISH.terms("Ask the IT department")
    assert ENGLISH.query_terms("What does the WHO say?") == ["who", "say"]
    assert ENGLISH.query_terms("IT") == ["it"]
    assert ENGLISH.query_terms("HOW DO I CANCEL THE ORDER") == ["cancel", "order"], "shouting"


@pytest.mark.parametrize(
    "options",
    [
        {"language": "xx"},
        {"language": "klingon"},
        {"languages": "en"},
        {"max_term_length": 0},
        {"ngram": 4},
        {"stop_words": "none"},
        {"stemming": "maybe"},
    ],
)
def test_impossible_options_are_named(options: dict[str, object]) -> None:
    name = next(iter(options))
    with pytest.raises(ConfigError, match=name):
        Analyzer(**options)  # type: ignore[arg-type]


def test_it_is_an_immutable_value() -> None:
    analyzer = Analyzer(language="de", stop_words=["und"])  # type: ignore[arg-type]
    assert analyzer == Analyzer(language="de", stop_words=("und",))
    assert hash(analyzer) == hash(Analyzer(language="de", stop_words=("und",)))
    assert analyzer != Analyzer(language="de")
    analyzer.terms("auch nach Gebrauch")
    assert analyzer == Analyzer(language="de", stop_words=("und",))
    with pytest.raises(ValueError, match="frozen"):
        analyzer.language = "en"  # type: ignore[misc]


@pytest.mark.parametrize(
    "analyzer", [ENGLISH, PLAIN, Analyzer(language="de", stop_words=("und",), ngram=1)]
)
def test_copies_give_the_same_terms(analyzer: Analyzer) -> None:
    text = "Und the E-504 Häuser 报销"
    analyzer.terms(text)
    for twin in (
        pickle.loads(pickle.dumps(analyzer)),
        copy.deepcopy(analyzer),
        copy.copy(analyzer),
        Analyzer.from_dict(json.loads(json.dumps(analyzer.to_dict()))),
    ):
        assert twin == analyzer
        assert twin.terms(text) == analyzer.terms(text)
        assert twin.fingerprint() == analyzer.fingerprint()


def test_the_pickle_is_small_however_much_was_analysed() -> None:
    analyzer = Analyzer()
    analyzer.terms(" ".join(f"word{number}" for number in range(1000)))
    assert len(pickle.dumps(analyzer)) < 1000


def test_the_dictionary_names_class_and_version() -> None:
    data = Analyzer().to_dict()
    assert data["class_name"] == "Analyzer"
    assert data["version"] == 1
    for wrong in ({"version": 2}, {"class_name": "Other"}, {"version": "1"}):
        with pytest.raises(ConfigError, match="version"):
            Analyzer.from_dict({**data, **wrong})
    with pytest.raises(ConfigError, match="colour"):
        Analyzer.from_dict({**data, "colour": 1})


def test_the_fingerprint_tells_settings_apart() -> None:
    variants = [
        Analyzer(),
        Analyzer(language="de"),
        Analyzer(language=None),
        Analyzer(stemming=False),
        Analyzer(stop_words=None),
        Analyzer(stop_words=()),
        Analyzer(query_stop_words=None),
        Analyzer(fold_accents=False),
        Analyzer(identifier_parts=False),
        Analyzer(max_term_length=64),
        Analyzer(ngram=1),
    ]
    assert len({variant.fingerprint() for variant in variants}) == len(variants)


def test_the_fingerprint_changes_with_the_stemmer(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Analyzer().fingerprint()
    monkeypatch.setattr("llama_index_hybrid_pack.indexing.analyzer.stemmer_version", lambda: "99")
    assert Analyzer().fingerprint() != before


def test_the_fingerprint_is_the_same_in_another_process() -> None:
    code = (
        "from llama_index_hybrid_pack.indexing.analyzer import Analyzer;"
        "print(Analyzer(stop_words=('b', 'a')).fingerprint())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={"PYTHONHASHSEED": "7"},
    )
    assert done.stdout.strip() == Analyzer(stop_words=("b", "a")).fingerprint()


def test_threads_share_one_analyzer() -> None:
    analyzer = Analyzer()
    texts = [f"running{number} studies E-{number} connections" for number in range(300)]
    expected = [Analyzer().terms(text) for text in texts]
    results: list[list[list[str]]] = []

    def work() -> None:
        results.append([analyzer.terms(text) for text in texts])

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [expected] * 8


def test_the_memory_of_tokens_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "llama_index_hybrid_pack.indexing.analysis.pipeline._REMEMBERED_TOKENS", 100
    )
    analyzer = Analyzer()
    for number in range(1000):
        analyzer.terms(f"token{number} {'x' * 200}{number}")
    assert len(analyzer._pipeline._documents) <= 100
    assert analyzer.terms("token7 tokens") == Analyzer().terms("token7 tokens")
