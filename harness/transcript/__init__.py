"""Transcripts: the calls that a cache makes on its core, told as ops of a trace."""
