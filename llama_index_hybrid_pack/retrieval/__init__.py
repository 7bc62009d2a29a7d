"""Query to candidates: retrievers, fusion and per-call scope."""
