"""The file formats of tokenizers, one module each."""
