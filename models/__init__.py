"""Engines that make operation sequences."""
