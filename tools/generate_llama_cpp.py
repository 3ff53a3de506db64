"""Compute, with llama.cpp itself, what tests/tokenizers/test_gguf.py expects.

    python tools/generate_llama_cpp.py DIRECTORY

DIRECTORY holds the shared libraries of llama.cpp 0.5.0 (``ninja llama`` builds them). For every
vocabulary of `small_vocabularies` and every text of `hostile_corpus` one short digest of the IDs is
written, with BOS and EOS as the file says and special tokens read out of the text.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import vector_files
from hostile_corpus import hostile_texts
from small_vocabularies import write_gguf_bpe, write_gguf_spm

from mmroute.tokenizers.formats.gguf_splits import SPLITS

VECTORS: Final = vector_files.VECTORS / "llama_cpp.json"
VERSION: Final = "0.5.0"
CORPUS_SPECIALS: Final = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "<s>", "</s>",
                   "<|user|>")  # fmt: skip


def digest(ids: Sequence[int]) -> str:
    """Enough of a hash to see a difference by."""
    return hashlib.sha256(json.dumps(list(ids)).encode()).hexdigest()[:8]


def vocabularies(root: Path) -> Iterator[tuple[str, Path]]:
    """Name and file of every small vocabulary that llama.cpp was asked about."""
    seen = set()
    for pre, split in SPLITS.items():
        if split not in seen:
            seen.add(split)
            yield f"bpe/{pre}", write_gguf_bpe(root / f"{pre}.gguf", pre)
    yield "bpe/none", write_gguf_bpe(root / "none.gguf", None)
    flags = {"add_bos_token": False, "add_eos_token": True}
    yield "bpe/flags", write_gguf_bpe(root / "flags.gguf", "llama-bpe", **flags)
    yield "spm", write_gguf_spm(root / "spm.gguf")
    flags = {"add_bos_token": False, "add_eos_token": True, "add_space_prefix": False}
    yield "spm/flags", write_gguf_spm(root / "spm-flags.gguf", **flags)
    yield "spm/phi-3", write_gguf_spm(root / "spm-phi.gguf", name="Small Phi-3")


class _Parameters(ctypes.Structure):
    _fields_ = (
        *((f"pointers_{i}", ctypes.c_void_p) for i in range(2)),
        *((f"numbers_{i}", ctypes.c_int32) for i in range(5)),
        *((f"more_{i}", ctypes.c_void_p) for i in range(4)),
        ("vocab_only", ctypes.c_bool),
        *((f"flags_{i}", ctypes.c_bool) for i in range(5)),
    )


_Log = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
_SILENT = _Log(lambda *_: None)


def engine(libraries: Path) -> Any:
    """llama.cpp's functions."""
    for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
        ctypes.CDLL(str(libraries / name), mode=ctypes.RTLD_GLOBAL)
    llama = ctypes.CDLL(str(libraries / "libllama.so"))
    llama.llama_model_default_params.restype = _Parameters
    llama.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _Parameters]
    llama.llama_model_load_from_file.restype = ctypes.c_void_p
    llama.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
    llama.llama_model_get_vocab.restype = ctypes.c_void_p
    llama.llama_tokenize.argtypes = [
        ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_void_p, ctypes.c_int32,
        ctypes.c_bool, ctypes.c_bool,
    ]  # fmt: skip
    llama.llama_log_set(_SILENT, None)
    llama.llama_backend_init()
    return llama


def encoder(llama: Any, path: Path) -> Callable[[str], list[int]]:
    """Text to IDs by one vocabulary."""
    parameters = llama.llama_model_default_params()
    parameters.vocab_only = True
    model = llama.llama_model_load_from_file(str(path).encode(), parameters)
    if not model:
        raise SystemExit(f"llama.cpp cannot load {path}")
    vocabulary = llama.llama_model_get_vocab(model)

    def encode(text: str) -> list[int]:
        encoded = text.encode()
        room = len(encoded) + 16
        ids = (ctypes.c_int32 * room)()
        count = llama.llama_tokenize(vocabulary, encoded, len(encoded), ids, room, True, True)
        return list(ids[:count])

    return encode


def main() -> None:
    llama = engine(Path(sys.argv[1]))
    texts = list(hostile_texts(CORPUS_SPECIALS))
    found = {}
    with tempfile.TemporaryDirectory() as root:
        for name, path in vocabularies(Path(root)):
            encode = encoder(llama, path)
            found[name] = "".join(digest(encode(text)) for text in texts)
    corpus = hashlib.sha256("\0".join(texts).encode()).hexdigest()
    whole = {"llama.cpp": VERSION, "corpus": corpus, "texts": len(texts), "ids": found}
    VECTORS.write_text(json.dumps(whole, indent=1) + "\n", encoding="ascii")


if __name__ == "__main__":
    main()
