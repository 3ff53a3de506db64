"""The compiled part: `_messages`, of ``messages.c``; see `mmroute.chat.cache`."""
