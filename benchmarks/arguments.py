"""What the commands read from their arguments alike. Runs in an SGLang environment too."""

from __future__ import annotations

import argparse


def count(text: str) -> int:
    """A number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number
