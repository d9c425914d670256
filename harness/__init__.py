"""Op language, cache, lockstep, comparison, oracles, workers and campaigns."""
