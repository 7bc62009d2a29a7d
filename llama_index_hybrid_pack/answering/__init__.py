"""Context to answer."""
