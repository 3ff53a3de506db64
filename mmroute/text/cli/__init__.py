"""Commands of tokenizers."""
