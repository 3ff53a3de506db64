"""The regular expressions with which llama.cpp cuts text, by the ``pre`` of a GGUF file.

They are for byte-level vocabularies. They are llama.cpp's own, and differ in some cases from the
model's tokenizer.json. Where there are several, each cuts what the ones before it have left.
Missing are the ``pre`` for which llama.cpp has code in place of an expression (``kimi-k2``,
``afmoe``), and those that are not byte-level (``gemma4``, ``sarvam-moe``, ``whitespace``).
Source: llama.cpp 0.5.0 ``src/llama-vocab.cpp`` (`llm_tokenizer_bpe`, `llama_vocab::impl::load`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Split:
    """The rules that a ``pre`` stands for.

    Attributes:
        patterns: the regular expressions that cut the text, applied one after the other.
        ignore_merges: whether a piece that is a vocabulary entry becomes that entry's token, even
            if the merges would split it.
        add_bos: whether BOS is added if the file does not say.
    """

    patterns: tuple[str, ...]
    ignore_merges: bool = False
    add_bos: bool = False


_CONTRACTIONS: Final = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_SPACES: Final = r"|\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*"
_START: Final = r"[^\r\n\p{L}\p{N}]?"


def _words(numbers: str, letters: str = r"\p{L}", signs: str = _SIGNS) -> str:
    return f"{_CONTRACTIONS}|{_START}{letters}+|{numbers}{signs}{_SPACES}"


def _by_case(numbers: str, contractions: str) -> str:
    upper, lower = r"((?=[\p{L}])([^a-z]))", r"((?=[\p{L}])([^A-Z]))"
    signs = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*"
    return (
        f"{_START}{upper}*{lower}+{contractions}|{_START}{upper}+{lower}*{contractions}"
        f"|{numbers}{signs}{_SPACES}"
    )


_GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_QWEN2: Final = _words(r"\p{N}")
_LLAMA3: Final = _words(r"\p{N}{1,3}")
_QWEN35: Final = _words(r"\p{N}", r"[\p{L}\p{M}]", r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*")
_DEEPSEEK3: Final = (
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"""
    r"| ?[\p{P}\p{S}]+[\r\n]*" + _SPACES,
)
_BAILING: Final = (
    rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_START}\p{{L}}+|\p{{N}}{_SIGNS}"
    r"|\s*[\r\n]|\s+(?!\S)|\s+"
)
_NO_STOPS: Final = r" ?[^(\s|.,!?…。，、।۔،)]+"
_DEFAULT: Final = (
    r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]",
)  # fmt: skip

_GROUPS: Final[tuple[tuple[tuple[str, ...], Split], ...]] = (
    (("default",), Split(_DEFAULT)),
    (
        ("gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0",
         "mellum", "modern-bert", "exaone4", "mpt", "olmo", "jais", "trillion", "granite-docling"),
        Split((_GPT2,)),
    ),
    (
        ("starcoder", "refact", "command-r", "smollm", "codeshell", "exaone", "minerva-7b",
         "mellum2"),
        Split((r"\p{N}", _GPT2)),
    ),
    (("falcon",), Split((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"))),
    (
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
         "jina-v5-nano"),
        Split((_LLAMA3,), ignore_merges=True, add_bos=True),
    ),
    (("dbrx", "smaug-bpe", "chatglm-bpe"), Split((_LLAMA3,))),
    (("glm4", "glm5"), Split((_LLAMA3,), ignore_merges=True)),
    (
        ("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan",
         "solar-open", "grok-2"),
        Split((_QWEN2,)),
    ),
    (("qwen35",), Split((_QWEN35,))),
    (("minicpm5",), Split((r"\p{N}{1,3}", _words(r"\p{N}+")), ignore_merges=True)),
    (
        ("bailingmoe", "bailingmoe2", "llada-moe"),
        Split((_BAILING,)),
    ),
    (("seed-coder",), Split((_words(r"\p{N}{1}", signs=r"| ?[^\s\p{L}\p{N}\r\n]+"),))),
    (
        ("deepseek-coder",),
        Split((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", "[一-龥ࠀ-一가-퟿]+", r"\p{N}")),
    ),
    (("poro-chat", "bloom", "gpt3-finnish"), Split((_NO_STOPS,))),
    (("viking",), Split((_NO_STOPS, r"\p{N}"))),
    (("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), Split(_DEEPSEEK3)),
    (("tekken",), Split((_by_case(r"\p{N}", ""),), ignore_merges=True, add_bos=True)),
    (
        ("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
        Split((_by_case(r"\p{N}{1,3}", f"{_CONTRACTIONS}?"),)),
    ),
)  # fmt: skip

SPLITS: Final = {name: split for names, split in _GROUPS for name in names}
"""The rules by the value of ``tokenizer.ggml.pre``."""
