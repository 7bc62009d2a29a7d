"""Joining of filters that come from different places: user, policy, model."""

from __future__ import annotations

from llama_index.core.vector_stores.types import FilterCondition, MetadataFilters

from llama_index_hybrid_pack.errors import FilterError


def combine(*filters: MetadataFilters | None) -> MetadataFilters | None:
    """Join filters so that a node must pass every one of them.

    Each filter stays one nested group, so an OR or a NOT keeps its meaning, and no filter can
    widen another: use it to hold a mandatory filter (tenant, access) beside any other.

    Args:
        *filters: Filters to join; ``None`` stands for no filter. They are not changed.

    Returns:
        One filter that shares nothing with the given ones, or ``None`` if all were ``None``.

    Raises:
        FilterError: If an argument is neither ``MetadataFilters`` nor ``None``.

    Example:
        >>> from llama_index.core.vector_stores.types import MetadataFilter
        >>> tenant = MetadataFilters(filters=[MetadataFilter(key="tenant", value="red")])
        >>> wish = MetadataFilters(
        ...     filters=[MetadataFilter(key="kind", value="draft")], condition="not"
        ... )
        >>> [group.condition.value for group in combine(tenant, None, wish).filters]
        ['and', 'not']
    """
    groups: list[MetadataFilters] = []
    untrusted: tuple[object, ...] = filters
    for given in untrusted:
        if given is None:
            continue
        if not isinstance(given, MetadataFilters):
            msg = (
                f"combine() received a {type(given).__name__}. Give MetadataFilters of "
                "llama_index.core.vector_stores.types, or None for no filter."
            )
            raise FilterError(msg)
        groups.append(given.model_copy(deep=True))
    if len(groups) < 2:
        return groups[0] if groups else None
    return MetadataFilters(filters=[*groups], condition=FilterCondition.AND)
