"""The meaning of LlamaIndex's metadata filters: the reference that every engine must equal.

Rules, beside the table of faces in :mod:`~llama_index_hybrid_pack.indexing.filters.fields`:

- **A list is a field with several values; a single value is a list of one.** A positive operator
  holds if any value satisfies it (``all``: if every value asked for is there). So ``==`` finds a
  list that holds the value, ``contains`` is ``==``, and ``any`` is ``in``.
- **Negative operators are the exact complement**: ``!=`` is NOT ``==``, ``nin`` is NOT ``in``. So
  they hold for a missing field; every other operator but ``is_empty`` fails for it.
- **Types do not mix**: numbers compare with numbers, texts with texts by code point. Another
  type is no match, never an error. A declared schema brings both sides to one type first.
- ``text_match`` finds a part of a text, case-sensitive; ``text_match_insensitive`` folds case by
  Unicode's rules (``STRASSE`` finds ``Straße``). Other operators never look at parts of a text.
- ``is_empty`` holds for an absent field, ``None`` (and NaN), ``""`` and ``[]``.
- ``in []``, ``any []`` and ``all []`` match nothing, ``nin []`` everything.
- AND: all members hold; OR: at least one; NOT: none of them. An empty OR matches nothing; an
  empty AND or NOT is no filter, and is refused inside an OR or NOT.

Where this differs from ``build_metadata_filter_fn`` of llama-index-core 0.14: nesting works; a
type mismatch is no error; ``==`` and ``in`` see list elements; ``contains``, ``any`` and ``all``
never match a part of a text (there ``any ["hr"]`` lets ``"hr-admins"`` pass); an empty OR and
``all []`` match nothing.
"""

from __future__ import annotations

import operator as op
from collections.abc import Callable, Mapping
from typing import Any

from llama_index.core.vector_stores.types import (
    FilterCondition,
    FilterOperator,
    MetadataFilter,
    MetadataFilters,
)

from llama_index_hybrid_pack.indexing.filters.fields import (
    FieldType,
    Scalar,
    check_schema,
    coerce,
    faces,
    is_empty,
)
from llama_index_hybrid_pack.indexing.filters.validation import validate_filters

#: Decides about the metadata of one node.
Predicate = Callable[[Mapping[str, Any]], bool]

_ORDERINGS: dict[FilterOperator, Callable[[Any, Any], bool]] = {
    FilterOperator.GT: op.gt,
    FilterOperator.GTE: op.ge,
    FilterOperator.LT: op.lt,
    FilterOperator.LTE: op.le,
}
#: Operators that are the complement of another one.
NEGATIVE = {FilterOperator.NE: FilterOperator.EQ, FilterOperator.NIN: FilterOperator.IN}


def matches(
    filters: MetadataFilters | None,
    metadata: Mapping[str, Any],
    *,
    schema: Mapping[str, FieldType | str] | None = None,
) -> bool:
    """Return whether a node with this metadata passes the filter.

    Args:
        filters: Any filter, nested or not; ``None`` passes everything.
        metadata: The node's metadata; it is not changed.
        schema: Declared field types.

    Returns:
        The decision by the rules at the top of this module.

    Raises:
        FilterError: If the filter cannot be honoured; see
            :func:`~llama_index_hybrid_pack.indexing.filters.validate_filters`.

    Example:
        >>> wish = MetadataFilters(filters=[MetadataFilter(key="tags", value="red")])
        >>> matches(wish, {"tags": ["red", "blue"]}), matches(wish, {})
        (True, False)
    """
    return compile_predicate(filters, schema=schema)(metadata)


def compile_predicate(
    filters: MetadataFilters | None,
    *,
    schema: Mapping[str, FieldType | str] | None = None,
) -> Predicate:
    """Validate a filter once and return a function that applies it to many nodes.

    Args:
        filters: Any filter; ``None`` passes everything.
        schema: Declared field types.

    Returns:
        A function from metadata to the decision, the same as :func:`matches`.

    Raises:
        FilterError: If the filter cannot be honoured.

    Example:
        >>> passes = compile_predicate(MetadataFilters(filters=[], condition="or"))
        >>> passes({"tenant": "red"})
        False
    """
    checked = validate_filters(filters, schema=schema)
    if checked is None:
        return lambda metadata: True  # noqa: ARG005 - no filter looks at nothing
    return _group(checked, check_schema(schema))


def _group(group: MetadataFilters, schema: Mapping[str, FieldType]) -> Predicate:
    members = [
        _group(item, schema) if isinstance(item, MetadataFilters) else _leaf(item, schema)
        for item in group.filters
    ]
    if group.condition is FilterCondition.OR:
        return lambda metadata: any(member(metadata) for member in members)
    if group.condition is FilterCondition.NOT:
        return lambda metadata: not any(member(metadata) for member in members)
    return lambda metadata: all(member(metadata) for member in members)


def _leaf(item: MetadataFilter, schema: Mapping[str, FieldType]) -> Predicate:
    key, kind = item.key, schema.get(item.key)
    if item.operator is FilterOperator.IS_EMPTY:
        return lambda metadata: is_empty(metadata.get(key))
    test = _test(NEGATIVE.get(item.operator, item.operator), comparable(item, kind))
    if item.operator in NEGATIVE:
        return lambda metadata: not test(faces(metadata.get(key), kind))
    return lambda metadata: test(faces(metadata.get(key), kind))


def comparable(item: MetadataFilter, kind: FieldType | None) -> Any:
    """Return the value of a validated filter in the form in which it is compared.

    Args:
        item: A member of what ``validate_filters`` returned.
        kind: Declared type of its field.

    Returns:
        A number or text, or a list of them.
    """
    value: Any = item.value
    if kind is not FieldType.DATE or value is None:
        return value
    if isinstance(value, list):
        return [coerce(element, kind) for element in value]
    return coerce(value, kind)


def _test(operator: FilterOperator, value: Any) -> Callable[[tuple[Scalar, ...]], bool]:
    if operator in (FilterOperator.EQ, FilterOperator.CONTAINS):
        return lambda found: value in found
    if operator in (FilterOperator.IN, FilterOperator.ANY):
        wanted = frozenset(value)
        return lambda found: not wanted.isdisjoint(found)
    if operator is FilterOperator.ALL:
        wanted = frozenset(value)
        return lambda found: bool(wanted) and wanted.issubset(found)
    if operator in _ORDERINGS:
        compare = _ORDERINGS[operator]
        text = isinstance(value, str)
        return lambda found: any(
            compare(face, value) for face in found if isinstance(face, str) is text
        )
    if operator is FilterOperator.TEXT_MATCH:
        return lambda found: any(value in face for face in found if isinstance(face, str))
    folded = value.casefold()
    return lambda found: any(folded in face.casefold() for face in found if isinstance(face, str))
