"""Languages: codes, stemmers and stop words."""

from __future__ import annotations

import threading
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol, cast

import Stemmer

from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.analysis.stop_words import QUERY_WORDS, STOP_WORDS

#: ISO 639-1 code → name of the Snowball stemmer, or the language's name where there is none.
LANGUAGES: dict[str, str] = {
    "ar": "arabic", "bg": "bulgarian", "ca": "catalan", "cs": "czech", "da": "danish",
    "de": "german", "el": "greek", "en": "english", "es": "spanish", "et": "estonian",
    "eu": "basque", "fa": "persian", "fi": "finnish", "fr": "french", "ga": "irish",
    "he": "hebrew", "hi": "hindi", "hr": "croatian", "hu": "hungarian", "hy": "armenian",
    "id": "indonesian", "it": "italian", "ja": "japanese", "ko": "korean", "lt": "lithuanian",
    "nb": "norwegian", "ne": "nepali", "nl": "dutch", "nn": "norwegian", "no": "norwegian",
    "pl": "polish", "pt": "portuguese", "ro": "romanian", "ru": "russian", "sk": "slovak",
    "sl": "slovenian", "sr": "serbian", "sv": "swedish", "ta": "tamil", "th": "thai",
    "tr": "turkish", "uk": "ukrainian", "vi": "vietnamese", "yi": "yiddish", "zh": "chinese",
}  # fmt: skip
#: Stemmers whose rules know no accents: folding first makes both spellings one word.
FOLD_FIRST = frozenset({"english", "porter"})


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...  # noqa: N802


class _Local(threading.local):
    """One stemmer per language and thread: the C objects are not safe to share."""

    def __init__(self) -> None:
        self.stemmers: dict[str, _Stemmer] = {}


_LOCAL = _Local()


@lru_cache(maxsize=1)
def snowball_names() -> frozenset[str]:
    """Return the names of the stemmers that are installed."""
    return frozenset(Stemmer.algorithms()) | {"porter"}


@lru_cache(maxsize=1)
def stemmer_version() -> str:
    """Return the version of PyStemmer, whose releases change what some words become."""
    try:
        return version("PyStemmer")
    except PackageNotFoundError:
        return str(Stemmer.version())


def language_name(language: str) -> str:
    """Return the full name of a language.

    Args:
        language: ISO 639-1 code, with or without a region (``"en"``, ``"pt-BR"``), or a name.

    Returns:
        The name in lower case, which is the Snowball stemmer's where there is one.

    Raises:
        ConfigError: If the language is not known.
    """
    name = language.strip().lower()
    code = name.replace("_", "-").split("-", maxsplit=1)[0]
    if code in LANGUAGES:
        return LANGUAGES[code]
    if name in snowball_names() or name in LANGUAGES.values():
        return name
    known = ", ".join(sorted(LANGUAGES))
    msg = (
        f"language is {language!r}. Give an ISO 639-1 code ({known}), the name of a Snowball "
        "stemmer, or None for no stemming and no stop words."
    )
    raise ConfigError(msg)


def has_stemmer(name: str) -> bool:
    """Tell whether there is a stemmer for the language of this full name."""
    return name in snowball_names()


def stem(name: str, word: str) -> str:
    """Return the stem of a lower-case word; safe to call from any thread.

    Args:
        name: Name of a Snowball stemmer.
        word: The word.

    Returns:
        The stem, or the word where the stemmer leaves nothing.
    """
    stemmer = _LOCAL.stemmers.get(name)
    if stemmer is None:
        # Cache size 0: the analyzer remembers whole tokens already.
        stemmer = _LOCAL.stemmers[name] = cast("_Stemmer", Stemmer.Stemmer(name, 0))
    return stemmer.stemWord(word) or word


def default_stop_words(name: str) -> frozenset[str]:
    """Return the stop words of a language; empty where this package has no list."""
    return STOP_WORDS.get(name, frozenset())


def default_query_stop_words(name: str) -> frozenset[str]:
    """Return the question words of a language; empty where this package has no list."""
    return QUERY_WORDS.get(name, frozenset())
