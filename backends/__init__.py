"""The cores, the contract that they share, and the pools beside them."""
