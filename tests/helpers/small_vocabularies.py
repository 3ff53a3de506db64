"""Small vocabularies in every format, made from nothing: no training, so always the same."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import gguf
from small_tokenizers import ALPHABET

SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_WORDS: Final = (
    " the", " The", "Hello", " world", "ing", "est", " 's", "'s", "'ll", "12", "123", " 1", "\n\n",
    "  ", "    ", "\r\n", "..", "!!", " !", "://", "é", "école", " É", "中文", "日本", "ко",
    "привет", "مر", "ab", "abc", "cam", "camel", "Case", "HTTP", "ſ", "👍", "\u0301", "e\u0301",
)  # fmt: skip


def byte_pairs() -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """Tokens by ID, and the merges that build them, in their order."""
    tokens = [bytes([byte]) for byte in range(256)]
    merges = []
    for word in _WORDS:
        whole = word.encode()
        for end in range(2, len(whole) + 1):
            if whole[:end] not in tokens:
                tokens.append(whole[:end])
                merges.append((whole[: end - 1], whole[end - 1 : end]))
    return tokens, merges


def written(token: bytes) -> str:
    """As byte-level vocabularies write it."""
    return "".join(ALPHABET[byte] for byte in token)


def write_vocab_and_merges(directory: Path, config: dict[str, Any]) -> Path:
    tokens, merges = byte_pairs()
    vocabulary = {written(token): i for i, token in enumerate(tokens)}
    lines = ["#version: 0.2", *(f"{written(a)} {written(b)}" for a, b in merges)]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
    (directory / "merges.txt").write_text("\n".join([*lines, ""]), encoding="utf-8")
    added = {
        str(len(tokens) + i): {"content": text, "special": True} for i, text in enumerate(SPECIALS)
    }
    config = {"added_tokens_decoder": added} | config
    (directory / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return directory


def write_ranks(path: Path) -> Path:
    tokens, _ = byte_pairs()
    lines = [f"{base64.b64encode(token).decode()} {i}" for i, token in enumerate(tokens)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*lines, ""]), encoding="ascii")
    return path


def write_gguf_bpe(path: Path, pre: str | None, **flags: Any) -> Path:
    """A ``gpt2`` vocabulary: the byte pairs and three control tokens."""
    tokens, merges = byte_pairs()
    texts = [*map(written, tokens), *SPECIALS, "<think>", "ÿé", "[PAD1]"]
    types = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(SPECIALS)
    types += [gguf.TokenType.USER_DEFINED] * 2 + [gguf.TokenType.UNUSED]
    writer = _writer(path, "gpt2", texts, types, flags)
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_merges([f"{written(a)} {written(b)}" for a, b in merges])
    writer.add_bos_token_id(len(tokens) + 1)
    writer.add_eos_token_id(len(tokens))
    return _written(writer, path)


def write_gguf_spm(path: Path, **flags: Any) -> Path:
    """A ``llama`` vocabulary: bytes, characters, words by score, an unused piece."""
    pieces = [("<unk>", 0.0, gguf.TokenType.UNKNOWN), ("<s>", 0.0, gguf.TokenType.CONTROL),
              ("</s>", 0.0, gguf.TokenType.CONTROL)]  # fmt: skip
    pieces += [(f"<0x{byte:02X}>", 0.0, gguf.TokenType.BYTE) for byte in range(256)]
    seen = {text for text, _, _ in pieces}
    for word in ("\u2581", *(word.replace(" ", "\u2581") for word in _WORDS)):
        for end in range(1, len(word) + 1):
            if word[:end] not in seen and "\n" not in word and "\r" not in word:
                seen.add(word[:end])
                pieces.append((word[:end], -float(len(pieces)), gguf.TokenType.NORMAL))
    pieces += [("▁unus", -1000.0, gguf.TokenType.UNUSED), ("▁u", -990.0, gguf.TokenType.NORMAL),
               ("▁un", -991.0, gguf.TokenType.NORMAL), ("▁unu", -992.0, gguf.TokenType.NORMAL),
               ("<think>", 0.0, gguf.TokenType.USER_DEFINED),
               ("<|endoftext|>", 0.0, gguf.TokenType.CONTROL),
               ("<|user|>", 0.0, gguf.TokenType.CONTROL)]  # fmt: skip
    texts, scores, types = zip(*pieces, strict=True)
    writer = _writer(path, "llama", texts, types, flags)
    writer.add_token_scores(list(scores))
    return _written(writer, path)


def _writer(
    path: Path, model: str, texts: Sequence[str], types: Sequence[int], flags: dict[str, Any]
) -> gguf.GGUFWriter:
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name(flags.pop("name", "small"))
    writer.add_tokenizer_model(model)
    writer.add_token_list(list(texts))
    writer.add_token_types(list(types))
    writer.add_chat_template("{{ messages }}")
    for key, value in flags.items():
        writer.add_bool(f"tokenizer.ggml.{key}", value)
    return writer


def _written(writer: gguf.GGUFWriter, path: Path) -> Path:
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.close()
    return path
