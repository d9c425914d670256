"""Importers: real request logs turned into request-level ops."""
