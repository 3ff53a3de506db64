"""What is compiled: `_chain`, of ``chain.c``; see `mmroute.hashing.chain`."""
