"""What is compiled: `_holders`, of ``holders.c``; see `mmroute.kv_events.holders`."""
