"""`python -m treedrift`."""

from .cli import main

main()
