"""Vector stores that search by vector and by words, with filters in both."""
