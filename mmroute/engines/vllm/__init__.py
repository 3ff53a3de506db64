"""The rules of vLLM for requests, chats, identities, hashes and limits."""
