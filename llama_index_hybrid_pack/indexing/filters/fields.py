"""What a metadata value looks like to a filter: its faces, and coercion by a declared schema.

Every engine of this package filters over the same faces, so that they agree on edge cases:

================================  ===================================================
metadata value                    faces
================================  ===================================================
``2007``, ``2007.0``              the number 2007 (whole and decimal numbers are one kind)
``"red"``                         the text ``red``; never a number, not even ``"2007"``
``True`` / ``False``              the number 1 / 0 and the text ``true`` / ``false``
``date``, ``datetime``, ``Enum``  what LlamaIndex stores for it as JSON (ISO text, value)
list, tuple, set                  the faces of all elements together
``None``, NaN, infinity           none, and empty: LlamaIndex stores null for all three
``dict``, list in a list          none, and not empty
================================  ===================================================
"""

from __future__ import annotations

import math
import numbers
import re
from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import datetime, timedelta, timezone
from enum import Enum
from typing import Any

import numpy as np
from pydantic_core import PydanticSerializationError, to_jsonable_python

from llama_index_hybrid_pack.errors import FilterError

#: A value that can be compared: a number or a text.
Scalar = int | float | str

#: SQLite keeps whole numbers exactly in this range; beyond it they compare as floats.
_INT64 = 2**63

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_ISO_8601 = re.compile(
    r"(\d{4}-\d{2}-\d{2})"
    r"(?:[Tt ](\d{2}:\d{2}(?::\d{2})?)(?:[.,](\d{1,9}))?([Zz]|[+-]\d{2}:?\d{2})?)?",
    re.ASCII,
)


class FieldType(str, Enum):
    """Declared type of a metadata field; stored values and filter values are coerced to it.

    Example:
        >>> coerce("2007", FieldType.INT)
        2007
    """

    INT = "int"
    """Whole numbers; ``"2007"`` and ``2007.0`` count as 2007."""
    FLOAT = "float"
    """Numbers; ``"2.5"`` counts as 2.5."""
    STR = "str"
    """Texts; the number 2007 counts as ``"2007"``."""
    BOOL = "bool"
    """True or false; ``1``, ``0``, ``"true"`` and ``"false"`` in any case count too."""
    DATE = "date"
    """Instants; ISO 8601 dates and times, a date is its midnight, no time zone means UTC."""


#: Field name → declared type.
Schema = Mapping[str, FieldType]


def check_schema(schema: Mapping[str, FieldType | str] | None) -> dict[str, FieldType]:
    """Return the schema with every type as a :class:`FieldType`.

    Args:
        schema: Field name → type, or ``None`` for no declared field.

    Returns:
        A new dict.

    Raises:
        FilterError: If a type is unknown.
    """
    checked: dict[str, FieldType] = {}
    for name, kind in (schema or {}).items():
        try:
            checked[name] = FieldType(kind)
        except ValueError as error:
            allowed = ", ".join(repr(member.value) for member in FieldType)
            msg = f"The schema declares field {name!r} as {kind!r}. Allowed types: {allowed}."
            raise FilterError(msg) from error
    return checked


def number(value: float) -> int | float:
    """Return the one form in which equal numbers are equal in Python and in SQLite.

    Args:
        value: Any number but NaN.

    Returns:
        An ``int`` for whole numbers that fit 64 bits, else a ``float``; numbers beyond the
        largest float become infinite.
    """
    if isinstance(value, int):
        if -_INT64 <= value < _INT64:
            return int(value)
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    if math.isfinite(value) and value == math.floor(value) and -_INT64 <= value < _INT64:
        return int(value)
    return float(value)


def is_text(value: str) -> bool:
    """Return whether the text can be stored: lone surrogates have no UTF-8 form."""
    if value.isascii():
        return True
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def is_list(value: object) -> bool:
    """Return whether a metadata value counts as a list of values."""
    return isinstance(value, Set) or (
        isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
    )


def is_empty(value: Any) -> bool:
    """Return whether the operator ``is_empty`` holds: for ``None``, NaN, infinity, ``""``, ``[]``.

    Args:
        value: Metadata value; pass ``None`` for an absent field.

    Returns:
        The same as LlamaIndex's reference; ``[None]``, ``[""]`` and ``{}`` are not empty.
    """
    if isinstance(value, str):
        return value == ""
    if isinstance(value, float):
        return not math.isfinite(value)
    return value is None or (is_list(value) and len(value) == 0)


def faces(value: Any, kind: FieldType | None = None) -> tuple[Scalar, ...]:
    """Return what a filter can compare of a metadata value, without repeats.

    Args:
        value: Metadata value of any type.
        kind: Declared type of the field, if any; what cannot be coerced to it has no face.

    Returns:
        Numbers and texts in the order of the elements; see the table at the top of the module.

    Example:
        >>> faces(["red", True, 2.0])
        ('red', 1, 'true', 2)
    """
    if kind is None:  # the two commonest types need none of what follows
        exact = type(value)
        if exact is str:
            return (value,) if is_text(value) else ()
        if exact is int and -_INT64 <= value < _INT64:
            return (value,)
    elements: Iterable[Any] = value if is_list(value) else (value,)
    found: dict[Scalar, None] = {}
    for element in elements:
        found.update(dict.fromkeys(_scalar_faces(element, kind)))
    return tuple(found)


def _scalar_faces(value: Any, kind: FieldType | None) -> tuple[Scalar, ...]:
    plain = _plain(value)
    if plain is None:
        return ()
    if kind is not None:
        try:
            return (coerce(plain, kind),)
        except ValueError:
            return ()
    if isinstance(plain, bool):
        return (1, "true") if plain else (0, "false")
    return (plain if isinstance(plain, str) else number(plain),)


def _plain(value: Any) -> bool | Scalar | None:
    """Reduce a value to a bool, number or text; ``None`` when it is none of these."""
    if isinstance(value, Enum):
        value = value.value
    if not isinstance(value, str | bool | numbers.Real | np.bool_ | Mapping) and not is_list(value):
        try:
            value = to_jsonable_python(value)
        except (PydanticSerializationError, ValueError):
            return None
    if isinstance(value, str):
        return str(value) if is_text(value) else None
    if isinstance(value, bool | np.bool_):
        return bool(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        real = float(value)
        return real if math.isfinite(real) else None
    return None


def coerce(value: bool | Scalar, kind: FieldType) -> Scalar:
    """Bring a value to a declared type.

    Args:
        value: A bool, number or text.
        kind: Declared type.

    Returns:
        The comparable form: a number for ``int``, ``float``, ``bool`` (1 or 0) and ``date``
        (microseconds since 1970-01-01 UTC), a text for ``str``.

    Raises:
        ValueError: If the value has no form of that type.

    Example:
        >>> coerce("1970-01-01T00:00:01Z", FieldType.DATE)
        1000000
    """
    if kind is FieldType.STR:
        if isinstance(value, bool):
            return "true" if value else "false"
        return value if isinstance(value, str) else str(number(value))
    if kind is FieldType.DATE:
        return _microseconds(value)
    if kind is FieldType.BOOL:
        return _truth(value)
    return _coerce_number(value, whole=kind is FieldType.INT)


def _coerce_number(value: bool | Scalar, *, whole: bool) -> int | float:
    if isinstance(value, str):
        text = value.strip()
        if "_" in text:
            msg = f"{value!r} is not a number"
            raise ValueError(msg)
        try:
            value = int(text)
        except ValueError:
            value = float(text)
    if isinstance(value, float) and math.isnan(value):
        msg = "NaN equals nothing"
        raise ValueError(msg)
    result = number(value)
    if whole and isinstance(result, float) and not (result.is_integer() or math.isinf(result)):
        msg = f"{value!r} is not a whole number"
        raise ValueError(msg)
    return result


def _truth(value: bool | Scalar) -> int:
    key = value.strip().lower() if isinstance(value, str) else value
    for accepted, result in (((1, "true", "1"), 1), ((0, "false", "0"), 0)):
        if key in accepted:
            return result
    msg = f"{value!r} is neither true nor false"
    raise ValueError(msg)


def _microseconds(value: bool | Scalar) -> int:
    match = _ISO_8601.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        msg = f"{value!r} is not an ISO 8601 date such as 2024-01-31 or 2024-01-31T10:00:00Z"
        raise ValueError(msg)
    day, clock, fraction, zone = match.groups()
    # Python 3.10's fromisoformat knows fewer forms than 3.11's: give it the one that both know.
    moment = datetime.fromisoformat(f"{day}T{clock or '00:00'}")
    if zone and zone not in "Zz":
        sign = -1 if zone[0] == "-" else 1
        moment = moment.replace(
            tzinfo=timezone(sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:])))
        )
    else:
        moment = moment.replace(tzinfo=timezone.utc)
    delta = moment - _EPOCH
    return (delta.days * 86_400 + delta.seconds) * 1_000_000 + int(
        (fraction or "").ljust(6, "0")[:6]
    )
