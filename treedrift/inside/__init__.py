"""Inside SGLang: our cores as backends of its own cache, a shadow core, and a recorder.

Runs in a server's process, where torch and msgspec are all that may be imported.
"""
