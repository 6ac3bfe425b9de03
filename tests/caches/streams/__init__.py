"""Tests of streams that are kept while they come."""
