"""The compiled part: `_chain`, of ``chain.c``; see `mmroute.hashing.chain`."""
