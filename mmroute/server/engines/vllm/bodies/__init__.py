"""Bodies of the routes of vLLM's API that no router in Python parses, and the rules of chats."""
