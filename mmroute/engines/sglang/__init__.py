"""What SGLang does before its scheduler sees a request."""
