"""Benchmarks: core time on a request log, the memory floor, the harness, the swarm engine."""
