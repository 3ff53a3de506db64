"""Chats of DeepSeek-V3.2, V4 and V4.1, which vLLM's frontends render by code of their own."""
