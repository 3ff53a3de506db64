"""The rules of SGLang, up to the point where a request enters its scheduler."""
