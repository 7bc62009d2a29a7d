"""Refusal of filters that cannot be honoured exactly, before anything is searched."""

from __future__ import annotations

import difflib
import math
from collections.abc import Collection, Mapping
from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_hybrid_pack.errors import FilterError
from llama_index_hybrid_pack.indexing.filters.fields import (
    FieldType,
    Scalar,
    check_schema,
    coerce,
    is_text,
    number,
)

#: Metadata keys that start so are this package's own records; nothing may be filtered by them.
RESERVED_PREFIX = "hybrid_pack_"
#: Groups may be nested this deep; a deeper filter is refused rather than half understood.
MAX_DEPTH = 100

_LISTS = frozenset({FilterOperator.IN, FilterOperator.NIN, FilterOperator.ANY, FilterOperator.ALL})
_TEXTS = frozenset({FilterOperator.TEXT_MATCH, FilterOperator.TEXT_MATCH_INSENSITIVE})


def validate_filters(
    filters: MetadataFilters | None,
    *,
    known_fields: Collection[str] | None = None,
    schema: Mapping[str, FieldType | str] | None = None,
) -> MetadataFilters | None:
    """Check a filter in full and return a normal form of it that means the same.

    The normal form has no empty group that only says "true", every condition set, and values
    that are coerced by the schema where the comparable form fits a filter (a date stays text).

    Args:
        filters: What to check; it is not changed.
        known_fields: Fields that exist in the store or are declared; a filter on another field
            is refused. ``None`` accepts every field.
        schema: Declared types; fields of the schema count as known.

    Returns:
        A new filter, or ``None`` when nothing is filtered.

    Raises:
        FilterError: If the object is not a ``MetadataFilters``, an operator or condition is
            unknown, a value does not fit its operator or the declared type, a field is unknown
            or reserved, an empty group would swallow its siblings, or groups nest deeper than
            :data:`MAX_DEPTH`.

    Example:
        >>> wish = MetadataFilters(filters=[MetadataFilter(key="yaer", value=2024)])
        >>> validate_filters(wish, known_fields={"year", "tenant"})
        Traceback (most recent call last):
        ...
        llama_index_hybrid_pack.errors.FilterError: Unknown filter field 'yaer'. Did you mean \
'year'? Known fields: 'tenant', 'year'. Declare the field in the schema if it is meant to exist.
    """
    given: object = filters
    if given is None:
        return None
    if not isinstance(given, MetadataFilters):
        msg = (
            f"The filter is a {type(given).__name__}. Give MetadataFilters of "
            "llama_index.core.vector_stores.types, or None for no filter."
        )
        raise FilterError(msg)
    types = check_schema(schema)
    known = None if known_fields is None else frozenset(known_fields) | types.keys()
    group = _check_group(given, known, types, depth=1)
    return None if _is_true(group) else group


def _is_true(item: MetadataFilter | MetadataFilters) -> bool:
    return (
        isinstance(item, MetadataFilters)
        and not item.filters
        and item.condition is not FilterCondition.OR
    )


def _check_group(
    group: MetadataFilters,
    known: frozenset[str] | None,
    schema: Mapping[str, FieldType],
    depth: int,
) -> MetadataFilters:
    if depth > MAX_DEPTH:
        msg = f"Filter groups nest deeper than {MAX_DEPTH}. Write the filter with fewer levels."
        raise FilterError(msg)
    condition = _condition(group.condition)
    held: object = group.filters
    if not isinstance(held, list | tuple):
        msg = f"The filters of a group are a {type(held).__name__}. Give a list."
        raise FilterError(msg)
    members: list[MetadataFilter | MetadataFilters] = []
    for item in held:
        if isinstance(item, MetadataFilters):
            checked: MetadataFilter | MetadataFilters = _check_group(item, known, schema, depth + 1)
        elif isinstance(item, MetadataFilter):
            checked = _check_filter(item, known, schema)
        else:
            msg = (
                f"A filter group holds a {type(item).__name__}. Give MetadataFilter or "
                "MetadataFilters."
            )
            raise FilterError(msg)
        if not _is_true(checked):
            members.append(checked)
        elif condition is not FilterCondition.AND:
            # It is always true, so an OR would let everything pass and a NOT nothing.
            msg = (
                f"An {condition.value.upper()} group holds an empty group, which matches every "
                "node. Leave the empty group out."
            )
            raise FilterError(msg)
    return MetadataFilters.model_construct(filters=members, condition=condition)


def _condition(condition: object) -> FilterCondition:
    if condition is None:  # LlamaIndex reads None as AND
        return FilterCondition.AND
    try:
        return FilterCondition(condition)
    except ValueError as error:
        msg = f"Unknown filter condition {condition!r}. Allowed: 'and', 'or', 'not'."
        raise FilterError(msg) from error


def _check_filter(
    item: MetadataFilter, known: frozenset[str] | None, schema: Mapping[str, FieldType]
) -> MetadataFilter:
    try:
        operator = FilterOperator(item.operator)
    except ValueError as error:
        allowed = ", ".join(repr(member.value) for member in FilterOperator)
        msg = (
            f"Unknown filter operator {item.operator!r} on field {item.key!r}. Allowed: {allowed}."
        )
        raise FilterError(msg) from error
    _check_key(item.key, known)
    value: Any = item.value
    if operator is FilterOperator.IS_EMPTY:
        if value not in (None, "", []) or isinstance(value, bool):
            msg = (
                f"Operator 'is_empty' on field {item.key!r} received the value {value!r}. Give "
                "None; for fields that have a value, put the filter into a NOT group."
            )
            raise FilterError(msg)
        checked: Any = None
    elif operator in _LISTS:
        checked = _check_list(item.key, operator, value, schema.get(item.key))
    else:
        checked = _check_scalar(item.key, operator, value, schema.get(item.key))
    return MetadataFilter.model_construct(key=item.key, value=checked, operator=operator)


def _check_key(key: object, known: frozenset[str] | None) -> None:
    if not isinstance(key, str) or not is_text(key):
        msg = f"The filter field {key!r} is not a name. Give a text that has a UTF-8 form."
        raise FilterError(msg)
    if key.startswith(RESERVED_PREFIX):
        msg = (
            f"Filter field {key!r} is reserved: names that start with {RESERVED_PREFIX!r} are "
            "records of this package. Filter by a field of your own."
        )
        raise FilterError(msg)
    if known is not None and key not in known:
        names = sorted(known)
        near = difflib.get_close_matches(key, names, n=3, cutoff=0.6)
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        shown = ", ".join(map(repr, names[:20])) + (", …" if len(names) > 20 else "")
        msg = (
            f"Unknown filter field {key!r}.{hint} Known fields: {shown or 'none'}. Declare the "
            "field in the schema if it is meant to exist."
        )
        raise FilterError(msg)


def _check_list(
    key: str, operator: FilterOperator, value: object, kind: FieldType | None
) -> list[Scalar]:
    if not isinstance(value, list | tuple):
        msg = (
            f"Operator {operator.value!r} on field {key!r} received {value!r}. Give a list of "
            "values; for one value use '=='."
        )
        raise FilterError(msg)
    return [_check_scalar(key, operator, element, kind) for element in value]


def _check_scalar(
    key: str, operator: FilterOperator, value: object, kind: FieldType | None
) -> Scalar:
    what = f"Operator {operator.value!r} on field {key!r} received"
    if value is None:
        msg = f"{what} None. Give a value; to ask for a missing field use 'is_empty'."
        raise FilterError(msg)
    if isinstance(value, list | tuple | dict | set):
        msg = (
            f"{what} {value!r}. Give one text or number; to compare with several values use "
            "'in', 'nin', 'any' or 'all'."
        )
        raise FilterError(msg)
    if not isinstance(value, str | int | float):
        msg = f"{what} a {type(value).__name__}. Give a text or a number (dates as ISO 8601 text)."
        raise FilterError(msg)
    if isinstance(value, float) and math.isnan(value):
        msg = (
            f"{what} NaN, which equals nothing. Give a number; for a missing field use 'is_empty'."
        )
        raise FilterError(msg)
    if isinstance(value, str) and not is_text(value):
        msg = f"{what} a text with lone surrogates, which has no UTF-8 form. Give valid text."
        raise FilterError(msg)
    if operator in _TEXTS:
        return _check_text(what, value, kind)
    return _normal(what, value, kind)


def _check_text(what: str, value: Scalar, kind: FieldType | None) -> str:
    if not isinstance(value, str):
        msg = f"{what} {value!r}. Give the text to look for."
        raise FilterError(msg)
    if kind is not None and kind is not FieldType.STR:
        msg = (
            f"{what} {value!r}, but the field is declared as {kind.value!r}, which has no text to "
            "look into. Use a comparison, or declare the field as 'str'."
        )
        raise FilterError(msg)
    return value


def _normal(what: str, value: Scalar, kind: FieldType | None) -> Scalar:
    if kind is None:
        if isinstance(value, bool):
            return int(value)
        return value if isinstance(value, str) else number(value)
    try:
        coerced = coerce(value, kind)
    except ValueError as error:
        msg = f"{what} {value!r}, but the field is declared as {kind.value!r}: {error}."
        raise FilterError(msg) from error
    # A date's comparable form is a count of microseconds; the filter keeps the text that every
    # engine can read.
    return value if kind is FieldType.DATE else coerced
