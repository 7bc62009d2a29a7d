"""Pieces of the analyzer: characters, languages, and the way from a token to its terms."""
