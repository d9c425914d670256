"""Lets `pytest corpora/` replay every trace as a test of its own."""
