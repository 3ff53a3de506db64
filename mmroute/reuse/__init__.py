"""The caches of work that earlier requests did, and the options for them."""
