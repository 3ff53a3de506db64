"""The compiled part: `_holders`, of ``holders.c``; see `mmroute.kv_events.holders`."""
