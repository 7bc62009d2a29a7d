"""Candidates to context: rerankers, thresholds and diversity."""
