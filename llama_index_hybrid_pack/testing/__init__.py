"""Fakes and contract suites that users can run on their own components."""
