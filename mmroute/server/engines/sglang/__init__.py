"""Routes for SGLang, which has no render server of its own."""
