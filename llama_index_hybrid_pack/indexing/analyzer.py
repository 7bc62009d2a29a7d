"""Text to terms: one analyzer for every lexical engine, for documents and for queries."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from llama_index_hybrid_pack._options import StrictOptions
from llama_index_hybrid_pack.errors import ConfigError
from llama_index_hybrid_pack.indexing.analysis.characters import fold, lower
from llama_index_hybrid_pack.indexing.analysis.languages import (
    default_query_stop_words,
    default_stop_words,
    has_stemmer,
    language_name,
    stemmer_version,
)
from llama_index_hybrid_pack.indexing.analysis.pipeline import Pipeline, Rules

#: Grows with every change that gives other terms for the same text and settings.
ANALYZER_VERSION = 1


class Analyzer(StrictOptions, BaseModel):
    """Turns text into search terms; identifiers stay whole and also count as parts.

    Use the same analyzer for documents and for queries; every lexical engine of this package
    does. It is a value: frozen, hashable, equal when its settings are, and safe to share between
    threads, to pickle and to copy.

    - **Identifiers**: ``E-504`` gives ``e-504 e 504``, ``HTTPServer`` gives ``httpserver http
      server``; likewise v2.1.3, C++, .NET, user_id, paths, addresses. Hyphenated words give the
      joined spelling and the parts: re-rank is found as rerank. Punctuation around is dropped.
    - **Spelling**: compatibility forms, case, accents, vowel points and digits of any script.
    - **No spaces between words** (Chinese, Japanese, Korean, Thai, Lao, Khmer, Burmese): documents
      give single characters and overlapping pairs; queries give pairs, and a single character
      only where it stands alone. Simplified and traditional Chinese are not equated.
    - **Stop words** are few and leave documents and queries; abbreviations in capitals (IT, WHO)
      stay. A query of nothing else finds nothing: use ``stop_words=None`` for such texts.
      Question words (how, does, my) leave queries only, and only when another word remains.

    Against the usual tokenisation (words of two characters on, English stems and stop words),
    nDCG@10 of BM25 on held-out questions: source code .519 to .726, documentation .708 to .738,
    encyclopedia .886 to .902, abstracts .687 to .702 (``python -m benchmarks.bm25 --quality``).

    Raises:
        ConfigError: If an option is unknown or out of range.

    Example:
        >>> Analyzer().terms("See the manuals (E-504).")
        ['see', 'manual', 'e-504', 'e', '504']
        >>> Analyzer().query_terms("How do I reset E-504?")
        ['reset', 'e-504', 'e', '504']
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    language: str | None = Field(
        default="en",
        description=(
            "ISO 639-1 code, with or without region, or Snowball name; None = no stemming and no "
            "stop words. Default en, as elsewhere in LlamaIndex."
        ),
    )
    stemming: bool = Field(
        default=True,
        description="Stem words with Snowball where the language has a stemmer; identifiers never.",
    )
    stop_words: Literal["auto"] | tuple[str, ...] | None = Field(
        default="auto",
        description=(
            "Left out of documents and queries. auto = the short list of the language; or a list "
            "of your own; None = keep all words, at the cost of a larger index."
        ),
    )
    query_stop_words: Literal["auto"] | tuple[str, ...] | None = Field(
        default="auto",
        description=(
            "Left out of queries only, and only when another word remains: what, how, does, my. "
            "auto = by language (+.03 nDCG@10 on documentation, +.02 on code); or a list of your "
            "own; None = keep them."
        ),
    )
    fold_accents: bool = Field(
        default=True,
        description=(
            "Take accents and vowel points away, so that cafe finds café. Letters of their own, "
            "such as Indic vowel signs, stay."
        ),
    )
    identifier_parts: bool = Field(
        default=True,
        description=(
            "Index the parts of identifiers beside the whole. Without them nDCG@10 on source code "
            "falls by .11."
        ),
    )
    max_term_length: int = Field(
        default=128,
        ge=8,
        le=1024,
        description="Characters after which a term is cut; 128 holds a SHA-512 in hexadecimal.",
    )
    ngram: int = Field(
        default=2,
        ge=1,
        le=3,
        description=(
            "Characters per gram in scripts without spaces: 2 is most words of Chinese; 1 finds "
            "more and 3 less."
        ),
    )

    def model_post_init(self, _context: Any) -> None:
        """Refuse an unknown language now, not at the first text."""
        _ = self._pipeline

    @classmethod
    def class_name(cls) -> str:
        """Return the name used when serialising."""
        return "Analyzer"

    @cached_property
    def _pipeline(self) -> Pipeline:
        name = None if self.language is None else language_name(self.language)
        return Pipeline(
            Rules(
                stemmer=name if name and self.stemming and has_stemmer(name) else None,
                stop_words=self._words(self.stop_words, name, default_stop_words),
                query_stop_words=self._words(self.query_stop_words, name, default_query_stop_words),
                fold_accents=self.fold_accents,
                identifier_parts=self.identifier_parts,
                max_term_length=self.max_term_length,
                ngram=self.ngram,
            )
        )

    def _words(
        self,
        option: str | tuple[str, ...] | None,
        name: str | None,
        default: Callable[[str], frozenset[str]],
    ) -> frozenset[str]:
        """Resolve a list of words and bring it into the form that terms have before stemming."""
        if isinstance(option, str):
            option = tuple(default(name)) if name is not None else ()
        words = map(lower, option or ())
        return frozenset(map(fold, words) if self.fold_accents else words)

    def terms(self, text: str) -> list[str]:
        """Return the terms under which a text is indexed.

        Args:
            text: Any string.

        Returns:
            Terms in order, repeats kept; none is empty or holds white space, so that an engine
            may be given ``" ".join(terms)`` and a white-space tokenizer.
        """
        return self._pipeline.document(text)

    def query_terms(self, text: str) -> list[str]:
        """Return the terms that a query looks for: a subset of what :meth:`terms` gives.

        Args:
            text: The query.

        Returns:
            Terms in order, repeats kept; empty for a query of stop words or of symbols only.
        """
        return self._pipeline.query(text)

    def fingerprint(self) -> str:
        """Return a hash that changes whenever the terms of some text could.

        Returns:
            32 hexadecimal digits, the same in every process with the same versions of this
            package's analyzer, of the stemmers and of Python's Unicode tables.
        """
        state = [self.to_dict(), stemmer_version(), unicodedata.unidata_version]
        encoded = json.dumps(state, sort_keys=True, ensure_ascii=True).encode()
        return hashlib.sha256(encoded).hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """Return the settings as JSON-able values, with class name and version."""
        return {
            "class_name": self.class_name(),
            "version": ANALYZER_VERSION,
            **self.model_dump(mode="json"),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Analyzer:
        """Build an analyzer from what :meth:`to_dict` returned.

        Args:
            data: The settings.

        Returns:
            An equal analyzer.

        Raises:
            ConfigError: If the settings are unknown, or of a newer version of this package.
        """
        fields = dict(data)
        name = fields.pop("class_name", cls.class_name())
        version = fields.pop("version", ANALYZER_VERSION)
        if name != cls.class_name() or not isinstance(version, int) or version > ANALYZER_VERSION:
            msg = (
                f"These settings are of {name!r} version {version!r}; this package reads "
                f"{cls.class_name()!r} up to version {ANALYZER_VERSION}."
            )
            raise ConfigError(msg)
        return cls(**fields)

    def __reduce__(self) -> tuple[Any, ...]:
        # The memory of tokens stays behind.
        return type(self).from_dict, (self.to_dict(),)

    def __copy__(self) -> Analyzer:
        return self

    def __deepcopy__(self, memo: dict[int, Any] | None = None) -> Analyzer:
        return self
