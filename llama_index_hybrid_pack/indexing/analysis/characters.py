r"""What a character is to the analyzer, and which forms of a word are the same word.

A text is cut with regular expressions over its *shadow*: a string of the same length in which
every character is replaced by one that stands for its class. So the patterns stay ASCII, and
combining marks of Indic scripts, which ``\w`` leaves out, belong to their words.
"""

from __future__ import annotations

import unicodedata

#: Shadow of a combining mark: belongs to the word before it, starts none.
MARK = "\u0300"
#: Shadow of a letter of a script that puts no spaces between words.
UNSPACED = "\u4e00"
#: Shadow of everything that is no part of any word.
GAP = " "

_APOSTROPHES = frozenset("\u2018\u2019\u201b\u02bc\u02b9\u05f3")
_DASHES = frozenset("\u2010\u2011\u2012\u2013\u2212\u05be")
_INVISIBLE = frozenset("\u034f\u0640\u05f4")  # grapheme joiner, tatweel, Hebrew gershayim
_ZERO_WIDTH_SPACES = frozenset("\u200b\ufeff")
_UNSPACED_RANGES = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul letters
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # Han radicals
    (0x3005, 0x3007),  # Han repetition mark, closing mark and zero
    (0x3021, 0x3035),  # Hangzhou numerals, kana repetition marks
    (0x3040, 0x312F),  # kana, bopomofo
    (0x3130, 0x318F),  # Hangul letters
    (0x31A0, 0x31FF),  # bopomofo, kana
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),  # Han
    (0xA960, 0xA97F),  # Hangul letters
    (0xAC00, 0xD7FF),  # Hangul syllables and letters
    (0xF900, 0xFAFF),  # Han
    (0x1B000, 0x1B16F),  # kana
    (0x20000, 0x3FFFF),  # Han
)
#: Latin letters that Unicode does not decompose; the pairs are those of Lucene's ASCIIFolding.
_LATIN = str.maketrans(
    {
        "\u00e6": "ae",
        "\u0153": "oe",
        "\u00f8": "o",
        "\u0142": "l",
        "\u0111": "d",
        "\u00f0": "d",
        "\u00fe": "th",
        "\u0127": "h",
        "\u0167": "t",
        "\u0131": "i",
        "\u0138": "k",
        "\u014b": "n",
    }
)
#: Unicode category → shadow; what is missing here is a gap.
_SHADOWS = {
    "Lu": "A", "Lt": "A", "Ll": "a", "Lm": "a", "Lo": "a", "Nl": "a", "No": "0",
    "Mn": MARK, "Mc": MARK,
}  # fmt: skip


def _is_unspaced(code: int) -> bool:
    return any(first <= code <= last for first, last in _UNSPACED_RANGES)


def _classify_exception(char: str, code: int) -> tuple[str, str] | None:
    """Return the pair of a character whose Unicode category says the wrong thing, or None."""
    if code < 0x80:
        return char, char
    if char in _APOSTROPHES:
        return "'", "'"
    if char in _DASHES:
        return "-", "-"
    if char in _INVISIBLE or 0xFE00 <= code <= 0xFE0F or 0xE0100 <= code <= 0xE01EF:
        return "", ""
    if char in _ZERO_WIDTH_SPACES:
        return " ", GAP
    return None


def _classify(char: str) -> tuple[str, str]:
    """Return what stands for the character in the text and in the shadow."""
    code = ord(char)
    exception = _classify_exception(char, code)
    if exception is not None:
        return exception
    category = unicodedata.category(char)
    if category == "Nd":
        return str(unicodedata.digit(char)), "0"
    if category in ("Cf", "Me"):  # format characters, and what encloses a character
        return "", ""
    if category[0] in "LN" and _is_unspaced(code):
        return char, UNSPACED
    shadow = _SHADOWS.get(category, GAP)
    return (" " if shadow == GAP else char), shadow


class _Classes(dict[str, tuple[str, str]]):
    """Classes of the characters seen so far; there are at most 0x110000 of them."""

    def __missing__(self, char: str) -> tuple[str, str]:
        pair = self[char] = _classify(char)
        return pair


_CLASSES = _Classes()


def prepare(token: str) -> tuple[str, str]:
    """Return the compatibility-normalised token and its shadow, both of one length.

    Args:
        token: Any string; lone surrogates and control characters count as gaps.

    Returns:
        The text that terms are cut from, and the shadow that tells where to cut.
    """
    if token.isascii():
        return token, token
    pairs = [_CLASSES[char] for char in unicodedata.normalize("NFKC", token)]
    return "".join(pair[0] for pair in pairs), "".join(pair[1] for pair in pairs)


def _drops(base: int, mark: int) -> bool:
    """Tell whether a mark on this base is an accent that many people do not type."""
    if 0x0300 <= mark <= 0x036F:
        if base < 0x0400 or 0x1E00 <= base <= 0x1FFF:  # Latin, Greek
            return True
        # Cyrillic: stress marks and the dots of io; short i is a letter of its own.
        return 0x0400 <= base <= 0x052F and (
            mark in (0x0300, 0x0301) or (mark == 0x0308 and base == 0x0435)
        )
    # Vowel points and cantillation of Hebrew, vowel marks and hamza of Arabic.
    return 0x0591 <= mark <= 0x05C7 or 0x064B <= mark <= 0x065F or 0x06D6 <= mark <= 0x06ED


def fold(word: str) -> str:
    """Return a case-folded word without accents: ``café`` and ``cafe`` become the same.

    Marks that make another letter (Indic vowel signs, Japanese voicing, Cyrillic short i) stay.

    Args:
        word: A word in lower case.

    Returns:
        The folded word in composed form.
    """
    if word.isascii():
        return word
    kept: list[str] = []
    base = 0
    for char in unicodedata.normalize("NFD", word):
        code = ord(char)
        if code == 0x0670 or (unicodedata.combining(char) and _drops(base, code)):
            continue
        if not unicodedata.combining(char):
            base = code
        kept.append(char)
    return unicodedata.normalize("NFC", "".join(kept)).translate(_LATIN)


def lower(word: str) -> str:
    """Return the word case-folded and composed."""
    if word.isascii():
        return word.lower()
    return unicodedata.normalize("NFKC", word.casefold())
