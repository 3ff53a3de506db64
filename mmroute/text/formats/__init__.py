"""Tokenizer formats that no request path reads."""
