"""What a client asks: a request, checked once, and the items in it."""
