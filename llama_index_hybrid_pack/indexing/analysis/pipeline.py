"""From a token between two spaces to its terms."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain

from llama_index_hybrid_pack.indexing.analysis.characters import (
    MARK,
    UNSPACED,
    fold,
    lower,
    prepare,
)
from llama_index_hybrid_pack.indexing.analysis.languages import FOLD_FIRST, stem

_CHAR = f"[A-Za-z0-9{MARK}]"
_WORD = f"[A-Za-z0-9]{_CHAR}*(?:'[A-Za-z0-9]{_CHAR}*)*"
# C++ and CD4+ keep their plus, C# and F# their sharp; a plus or sharp between words is a gap.
_SUFFIX = (
    rf"(?:\+\+(?![A-Za-z+])|\+(?![A-Za-z0-9+])"
    rf"|(?<=[A-Za-z])(?<!{_CHAR}[A-Za-z])#(?![A-Za-z0-9]))"
)
_ATOM = f"{_WORD}{_SUFFIX}?"
# Western 1,000,000 and Indian 10,00,000; bounded, so that a long list of numbers stays linear.
_THOUSANDS = r"(?<=[0-9]),(?=(?:[0-9]{2,3},){0,6}[0-9]{3}(?![0-9]))"
_JOINER = rf"(?:_+|://|::?|//?|\\\\?|[-.&@]|{_THOUSANDS}|(?<=\+\+)(?=[0-9]))"
_RUN = re.compile(
    rf"{UNSPACED}[{UNSPACED}{MARK}]*"
    rf"|(?:(?<![A-Za-z0-9.{MARK}])\.(?=[A-Za-z]))?{_ATOM}(?:{_JOINER}{_ATOM})*"
)
_PLAIN = re.compile(f"[A-Za-z][A-Za-z{MARK}]*")
_SEGMENT = re.compile(rf"{_ATOM}(?:(?:_+|[-.]|(?<=\+\+)(?=[0-9])){_ATOM})*")
_ATOMS = re.compile(_ATOM)
_CLUSTER = re.compile(f"{UNSPACED}{MARK}*")
_HUMP = re.compile(f"[A-Z]+(?=[A-Z][a-z{MARK}])(?![A-Z]s$)|[A-Z]+s$|[A-Z]?[a-z{MARK}]+|[A-Z]+")
_PIECE = re.compile(f"[A-Za-z][A-Za-z{MARK}]*|[0-9]+")
_INITIALS = re.compile(r"[A-Za-z](?:\.[A-Za-z])+")
_VERSION = re.compile(r"[vV](?=[0-9]+\.[0-9])")
_HYPHENATED = re.compile(f"[A-Za-z{MARK}]+(?:-[A-Za-z{MARK}]+)+")
_ORDINAL = re.compile(r"[0-9]*(?:1st|2nd|3rd|[0-9]th)", re.IGNORECASE)
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{2,3})+")

#: What English puts after an apostrophe and what Romance languages put before one.
_ENCLITICS = frozenset({"s", "re", "ve", "ll", "d", "m"})
_ELISIONS = frozenset(
    {"c", "d", "j", "l", "m", "n", "s", "t", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu"}
    | {"un", "all", "dall", "dell", "nell", "sull"}
)
#: What may stand around a word and means nothing to :data:`_RUN` there.
_OPENING = "([{\"'"
_CLOSING = ".,;:!?)]}\"'"
#: Longer tokens are rare and would fill the memory of tokens.
_REMEMBERED_LENGTH = 64
_REMEMBERED_TOKENS = 65_536
#: More pieces than that are no name but a hash or an encoded value.
_MOST_PIECES = 5
_MOST_HUMPS = 10
#: A text of capitals only and of more words than that is shouted.
_SHOUTED_WORDS = 3


@dataclass(frozen=True)
class Rules:
    """Settings of a pipeline, resolved; stop words are folded as the terms are."""

    stemmer: str | None
    stop_words: frozenset[str]
    query_stop_words: frozenset[str]
    fold_accents: bool
    identifier_parts: bool
    max_term_length: int
    ngram: int


class _Memory(dict[str, tuple[str, ...]]):
    """Terms of the tokens seen before; text repeats its words, so most tokens are found here."""

    def __init__(self, compute: Callable[[str], tuple[str, ...]]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, token: str) -> tuple[str, ...]:
        terms = self._compute(token)
        if len(token) <= _REMEMBERED_LENGTH:
            if len(self) >= _REMEMBERED_TOKENS:
                self.clear()
            self[token] = terms
        return terms

    def terms(self, text: str) -> list[str]:
        return list(chain.from_iterable(map(self.__getitem__, text.split())))


class Pipeline:
    """Turns text into terms; safe to share between threads."""

    def __init__(self, rules: Rules) -> None:
        few, more = rules.stop_words, rules.stop_words | rules.query_stop_words
        self._documents = _Memory(Cutter(rules, stop_words=few, short_grams=True).terms)
        self._queries = _Memory(Cutter(rules, stop_words=more, short_grams=False).terms)
        self._bare_queries = _Memory(Cutter(rules, stop_words=few, short_grams=False).terms)

    def document(self, text: str) -> list[str]:
        """Return the terms under which a text is found."""
        return self._documents.terms(_without_shouting(text))

    def query(self, text: str) -> list[str]:
        """Return the terms that a query looks for."""
        text = _without_shouting(text)
        return self._queries.terms(text) or self._bare_queries.terms(text)


def _without_shouting(text: str) -> str:
    """Capitals that run through a whole text do not mark an abbreviation."""
    return text.lower() if text.isupper() and len(text.split()) > _SHOUTED_WORDS else text


class Cutter:
    """Cuts a token into its terms."""

    def __init__(self, rules: Rules, *, stop_words: frozenset[str], short_grams: bool) -> None:
        self._rules = rules
        self._stop_words = stop_words
        self._short_grams = short_grams

    def terms(self, token: str) -> tuple[str, ...]:
        """Return the terms of what stands between two spaces of a text.

        Args:
            token: A string without white space.

        Returns:
            Non-empty terms without white space.
        """
        longest = self._rules.max_term_length
        core = token.lstrip(_OPENING).rstrip(_CLOSING)
        if core.isascii() and core.isalpha():
            if core.islower() or core[1:].islower():  # most tokens: no need to look for anything
                word = core.lower()
                return () if word in self._stop_words else (self._normal(word)[:longest],)
            found = self._word(core, core)
        else:
            found = self._runs(token)
        return tuple(term[:longest] for term in found)

    def _runs(self, token: str) -> Iterator[str]:
        text, shadow = prepare(token)
        for match in _RUN.finditer(shadow):
            start, end = match.span()
            run = shadow[start:end]
            if run[0] == UNSPACED:
                yield from self._grams(text[start:end], run)
            elif _PLAIN.fullmatch(run):
                yield from self._word(text[start:end], run)
            elif _INITIALS.fullmatch(run):
                yield self._whole(text[start:end], run)
            else:
                yield from self._identifier(text[start:end], run)

    def _grams(self, text: str, shadow: str) -> Iterator[str]:
        """Cut a run without spaces into overlapping grams of its characters with their marks."""
        spans = [match.span() for match in _CLUSTER.finditer(shadow)]
        longest = min(self._rules.ngram, len(spans))
        for size in range(1 if self._short_grams else longest, longest + 1):
            for first in range(len(spans) - size + 1):
                yield self._form(lower(text[spans[first][0] : spans[first + size - 1][1]]))

    def _form(self, word: str) -> str:
        return fold(word) if self._rules.fold_accents else word

    def _normal(self, word: str) -> str:
        """Return the stem of a lower-case word without accents."""
        name = self._rules.stemmer
        if name is None:
            return self._form(word)
        if name in FOLD_FIRST:
            return stem(name, self._form(word))
        return self._form(stem(name, word))

    def _is_stop_word(self, word: str, shadow: str) -> bool:
        """Tell whether to leave a word out; IT and WHO in capitals are abbreviations."""
        capitals = len(shadow) > 1 and shadow.isupper()
        return not capitals and self._form(word) in self._stop_words

    def _word(self, text: str, shadow: str) -> Iterator[str]:
        """Yield the term of a word of letters, and the parts of one in camel case."""
        word = lower(text)
        if not self._is_stop_word(word, shadow):
            yield self._normal(word)
            yield from self._humps(text, shadow)

    def _humps(self, text: str, shadow: str) -> Iterator[str]:
        """Yield the words of camelCase in a run of letters, from two letters on."""
        if not self._rules.identifier_parts or shadow[1:].islower() or shadow.isupper():
            return
        spans = [match.span() for match in _HUMP.finditer(shadow)]
        if not 2 <= len(spans) <= _MOST_HUMPS:
            return
        for start, end in spans:
            word = lower(text[start:end])
            if end - start > 1 and not self._is_stop_word(word, shadow[start:end]):
                yield self._normal(word)

    def _pieces(self, text: str, shadow: str) -> Iterator[str]:
        """Yield the letters and the digits of a word that mixes them, from two on."""
        if not self._rules.identifier_parts or _ORDINAL.fullmatch(shadow):
            return
        spans = [match.span() for match in _PIECE.finditer(shadow)]
        if not 2 <= len(spans) <= _MOST_PIECES:
            return
        for start, end in spans:
            if end - start > 1:
                yield from self._word(text[start:end], shadow[start:end])

    def _identifier(self, text: str, shadow: str) -> Iterator[str]:
        """Yield an identifier whole, then its segments, then its words."""
        atoms = [match.span() for match in _ATOMS.finditer(shadow)]
        if len(atoms) == 1 and atoms[0] == (0, len(shadow)):
            yield from self._atom(text, shadow)
            return
        yield self._whole(text, shadow)
        if _GROUPED.fullmatch(shadow):
            yield text.replace(",", "")
            return
        if not self._rules.identifier_parts:
            return
        if _VERSION.match(shadow):
            yield self._form(lower(text[1:]))
        segments = [match.span() for match in _SEGMENT.finditer(shadow)]
        if len(segments) > 1:
            single = frozenset(atoms)
            for start, end in segments:
                if (start, end) not in single:
                    yield self._whole(text[start:end], shadow[start:end])
        for start, end in atoms:
            yield from self._atom(text[start:end], shadow[start:end])

    def _whole(self, text: str, shadow: str) -> str:
        """Return an identifier as one term; re-rank and U.S. become rerank and us."""
        if _HYPHENATED.fullmatch(shadow) or _INITIALS.fullmatch(shadow):
            return self._normal(lower(text).replace("-", "").replace(".", ""))
        return self._form(lower(text))

    def _atom(self, text: str, shadow: str) -> Iterator[str]:
        """Yield the terms of one word that may have digits, apostrophes or a trailing sign."""
        bare = shadow.rstrip("+#")
        if len(bare) < len(shadow):
            yield self._form(lower(text))
            if not self._rules.identifier_parts:
                return
            text = text[: len(bare)]
        if "'" in bare:
            yield from self._apostrophes(text)
        elif _PLAIN.fullmatch(bare):
            yield from self._word(text, bare)
        else:
            yield self._form(lower(text))
            yield from self._pieces(text, bare)

    def _apostrophes(self, text: str) -> Iterator[str]:
        pieces = lower(text).split("'")
        while len(pieces) > 1 and pieces[-1] in _ENCLITICS:
            pieces.pop()
        while len(pieces) > 1 and pieces[0] in _ELISIONS:
            pieces.pop(0)
        words = ["".join(pieces)]
        if len(pieces) > 1 and pieces[-1] != "t":
            words += [piece for piece in pieces if len(piece) > 1]
        for word in words:
            if self._form(word) not in self._stop_words:
                yield self._normal(word)
