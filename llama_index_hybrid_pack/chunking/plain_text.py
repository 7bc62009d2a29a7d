"""Where plain text may be cut: paragraphs, lines, sentences, words, characters.

Every ``*_cuts`` function takes a text and a range without trailing white space, and returns the
positions inside the range at which a new piece begins. White space between two pieces that holds
a line break is cut after its last one, so that a line keeps its indentation; other white space
goes with the piece behind it. Tokenizers that look at the white space in front of a word
therefore count a piece as they count it in its place.
"""

from __future__ import annotations

import re
import unicodedata
from itertools import accumulate, pairwise

from llama_index_hybrid_pack.chunking.blocks import Block, BlockKind, ParsedText

_NEWLINE = r"(?:\r\n|\r(?!\n)|\n)"
_NEWLINES = re.compile(r"\r\n?|\n")
_BLANK_LINES = re.compile(rf"(?:{_NEWLINE}[^\S\r\n]*)+{_NEWLINE}(?=[^\S\r\n]*\S)")
_LINE_BREAK = re.compile(rf"{_NEWLINE}(?=[^\S\r\n]*\S)")
_GAP = re.compile(r"\s+")
#: A sentence's end: before white space, or after full-width marks, which need none.
_SENTENCE_END = re.compile(
    r"(?:[.!?…؟۔।॥]+[\"'”’»)\]*_`]*(?=\s)|[。！？｡]+[」』”’）】》]*)"  # noqa: RUF001
)
_ABBREVIATION_LIST = """
abb abs al approx apr art assn aug ave bd bldg blvd bzw ca capt cf ch chap cit co col corp dec
dept dr ed eds eg eq esp est etc ex feb fig figs fr gen gov hon hr ie inc jan jr jul jun lt ltd
mar messrs mr mrs ms mt nb nos nov nr oct op pp prof pt ref refs rep rev sec sect sen sep sept
sgt sr st str tab tel vol vols vs z.b
"""
_ABBREVIATIONS = frozenset(_ABBREVIATION_LIST.split())
_DOTTED = re.compile(r"(?:[^\W\d_]\.)+[^\W\d_]", re.UNICODE)
_LONGEST_WORD = 24
#: Characters of white space at the start of a line that are taken for its indentation.
MAX_INDENT = 64


def line_starts(text: str) -> list[int]:
    r"""Return the offset of every line's first character, and the text's length at the end.

    A line ends at ``\n``, ``\r\n`` or a lone ``\r``.

    Args:
        text: Any text.

    Returns:
        Offsets in ascending order; one more than there are lines.

    Example:
        >>> line_starts("a\r\nb")
        [0, 3, 4]
    """
    if "\r" in text:
        starts = [0, *(match.end() for match in _NEWLINES.finditer(text))]
    else:
        starts = [0, *accumulate(len(line) + 1 for line in text.split("\n"))]
        starts.pop()  # the last line has no line break
    starts.append(len(text))
    return starts


def trimmed_end(text: str, start: int, end: int) -> int:
    """Return the end of ``text[start:end]`` without its trailing white space."""
    while end > start and text[end - 1].isspace():
        end -= 1
    return end


def trimmed_start(text: str, start: int, end: int) -> int:
    """Return where ``text[start:end]`` begins without blank lines, its indentation kept.

    White space in front of a word inside a line is dropped, and so is an indentation of more
    than :data:`MAX_INDENT` characters.
    """
    first = start
    while first < end and text[first].isspace():
        first += 1
    line = first
    floor = max(start, first - MAX_INDENT)
    while line > floor and text[line - 1] not in "\r\n":
        line -= 1
    begins_line = line == 0 or text[line - 1] in "\r\n"
    return line if begins_line else first


def parse_plain_text(text: str) -> ParsedText:
    r"""Read a text without markup: its blocks are the paragraphs between blank lines.

    Args:
        text: Any text.

    Returns:
        Paragraphs in order; no headings, no metadata.

    Example:
        >>> [block.span for block in parse_plain_text("One.\n\nTwo.").blocks]
        [Span(start=0, end=4), Span(start=6, end=10)]
    """
    end = trimmed_end(text, 0, len(text))
    start = trimmed_start(text, 0, end)
    if start == end:
        return ParsedText(())
    bounds = [start, *paragraph_cuts(text, start, end), end]
    return ParsedText(
        tuple(
            Block(BlockKind.PARAGRAPH, first, trimmed_end(text, first, last))
            for first, last in pairwise(bounds)
        )
    )


def paragraph_cuts(text: str, start: int, end: int) -> list[int]:
    """Return the starts of the paragraphs behind the first one."""
    return [match.end() for match in _BLANK_LINES.finditer(text, start, end)]


def line_cuts(text: str, start: int, end: int) -> list[int]:
    """Return the starts of the lines behind the first one; blank lines start none."""
    return [match.end() for match in _LINE_BREAK.finditer(text, start, end)]


def sentence_cuts(text: str, start: int, end: int) -> list[int]:
    """Return the positions behind each sentence but the last.

    Abbreviations, initials, decimals, list numbers and dots before a lower-case word end no
    sentence; full-width marks end one without white space behind them.

    Args:
        text: The text that holds the range.
        start: Start of the range.
        end: End of the range, without trailing white space.

    Returns:
        Positions in ascending order, each inside the range.

    Example:
        >>> text = "See e.g. Fig. 2. It costs 3.50 EUR! Really?"
        >>> [text[:cut] for cut in sentence_cuts(text, 0, len(text))]
        ['See e.g. Fig. 2.', 'See e.g. Fig. 2. It costs 3.50 EUR!']
    """
    cuts = []
    for match in _SENTENCE_END.finditer(text, start, end):
        stop = match.end()
        if stop >= end:
            break
        if not text[stop].isspace():
            cuts.append(stop)
            continue
        gap = _GAP.match(text, stop, end)
        following = gap.end() if gap else stop
        if match.group()[0] == "." and not _ends_sentence(text, start, match.start(), following):
            continue
        cuts.append(_cut_in_gap(text, stop, following))
    return cuts


def _ends_sentence(text: str, start: int, dot: int, following: int) -> bool:
    """Tell whether the full stop at ``dot`` ends a sentence, given what follows it."""
    if text[following].islower():
        return False
    word_start = dot
    floor = max(start, dot - _LONGEST_WORD)
    while word_start > floor and not text[word_start - 1].isspace():
        word_start -= 1
    word = text[word_start:dot].lstrip("([{\"'“‘«*_").lower()  # noqa: RUF001
    if word == "no" and text[following].isdigit():
        return False
    if word in _ABBREVIATIONS or _DOTTED.fullmatch(word):
        return False
    if len(word) == 1 and word.isalpha():  # an initial
        return False
    begins_line = word_start == start or text[word_start - 1] in "\r\n"
    return not (begins_line and word.isdigit())  # the number of a list item


def word_cuts(text: str, start: int, end: int, *, width: int) -> list[int]:
    """Return cuts between words such that a piece has at least ``width`` characters.

    Args:
        text: The text that holds the range.
        start: Start of the range.
        end: End of the range, without trailing white space.
        width: Fewest characters of a piece but the last; 0 cuts between all words.

    Returns:
        Positions in ascending order, each inside the range.
    """
    cuts = []
    last = start
    for match in _GAP.finditer(text, start, end):
        if match.start() > start and match.end() - last > width:
            last = _cut_in_gap(text, match.start(), match.end())
            cuts.append(last)
    return cuts


def _cut_in_gap(text: str, start: int, end: int) -> int:
    """Return where to cut the white space ``text[start:end]``: behind its last line break."""
    last = max(text.rfind("\n", start, end), text.rfind("\r", start, end))
    return start if last < 0 else last + 1


def character_cuts(text: str, start: int, end: int, *, width: int) -> list[int]:
    """Return a cut about every ``width`` characters, none inside a grapheme cluster.

    Args:
        text: The text that holds the range.
        start: Start of the range.
        end: End of the range.
        width: Characters of a piece, at least 1; a longer cluster stays whole.

    Returns:
        Positions in ascending order, each inside the range.
    """
    cuts: list[int] = []
    position = start + width
    while position < end:
        last = cuts[-1] if cuts else start
        while position < end and _joined(text, position, last):
            position += 1
        if position < end:
            cuts.append(position)
        position += width
    return cuts


def _joined(text: str, position: int, start: int) -> bool:
    """Tell whether a reader sees the characters around ``position`` as one."""
    previous, following = text[position - 1], text[position]
    if following.isascii() and previous.isascii():
        return previous == "\r" and following == "\n"
    if (
        following == "\u200d"
        or previous == "\u200d"
        or "\U0001f3fb" <= following <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= following <= "\U000e007f"  # tags of regional flags
        or ("\ud800" <= previous <= "\udbff" and "\udc00" <= following <= "\udfff")
        or unicodedata.category(following) in {"Mn", "Me", "Mc"}
        or "\u1160" <= following <= "\u11ff"  # vowels and finals of decomposed Hangul
    ):
        return True
    if _is_regional(previous) and _is_regional(following):
        run = position
        while run > start and _is_regional(text[run - 1]):
            run -= 1
        return (position - run) % 2 == 1
    return False


def _is_regional(character: str) -> bool:
    return "\U0001f1e6" <= character <= "\U0001f1ff"
