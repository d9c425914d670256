"""treedrift finds semantic drift between implementations of SGLang's TreeCore.

Users, docs and generated files import this package alone. `treedrift.backends`,
`treedrift.harness`, `treedrift.models` and `treedrift.reports` are the rooms of the house.
This module imports nothing, so that a worker in a foreign environment can load it.
"""
