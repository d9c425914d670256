"""SGLang's own cache under load, on CPU pools: a test bed for cores, and what they cost there.

It runs inside an environment with a released SGLang, with treedrift on the path, and imports
nothing else but torch and msgspec there. `python -m benchmarks.serving` runs a request log once;
`python -m benchmarks.serving.overhead` sets cores against each other.
"""
