"""The public names and their types; see `__init__.py`."""

from .agreeing import assert_agree, why_missing
from .harness import ops
from .harness.config import Config

__all__ = ["Config", "assert_agree", "ops", "why_missing"]
