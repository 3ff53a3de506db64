"""The formats in which tokenizers are kept, one module each."""
