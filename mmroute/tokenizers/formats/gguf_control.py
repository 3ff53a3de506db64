"""Tokens that llama.cpp treats as control tokens because of their texts.

Files made by older converters mark end and fill-in-the-middle tokens as ordinary ones. llama.cpp
corrects that when it loads a file, and then cuts text at these tokens. Source: llama.cpp 0.5.0
``src/llama-vocab.cpp`` (`llama_vocab::impl::load`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

_ENDS: Final = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>",
    "<end_of_turn>", "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]",
    "<|end_of_text|>", "<end_of_utterance>", "<eos>", "<turn|>", "<|tool_response>",
    "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip
# The header's key for a fill-in-the-middle token -> its possible texts if the file lacks the key.
_FILL_IN: Final = {
    "fim_pre_token_id": ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>",
                         "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
    "fim_suf_token_id": ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>",
                         "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"),
    "fim_mid_token_id": ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>",
                         "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"),
    "fim_pad_token_id": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep_token_id": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep_token_id": ("<|file_sep|>",),
}  # fmt: skip
_CHANNELS: Final = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")


def known_control_tokens(tokens: Collection[str], named: Mapping[str, object]) -> set[str]:
    """The texts that llama.cpp takes for control tokens.

    Where a file has several of the names that one fill-in token may have, llama.cpp takes the one
    that its hash table gives first; here it is the first of the list.

    Args:
        tokens: the texts of the vocabulary.
        named: the keys of the header, without their prefix ``tokenizer.ggml.``.
    """
    ends = {text for text in _ENDS if text in tokens}
    for key, names in _FILL_IN.items():
        if key not in named:
            ends |= set([text for text in names if text in tokens][:1])
    return ends


def always_shown(tokens: Collection[str]) -> set[str]:
    """The texts of control tokens that llama.cpp never leaves out of decoded text (gpt-oss)."""
    shown = {text for text in _CHANNELS if text in tokens}
    if all(text in tokens for text in ("<|return|>", "<|call|>", "<|end|>")) or all(
        text in tokens for text in ("<|calls|>", "<|flush|>", "<|end|>")
    ):
        shown.add("<|end|>")
    return shown
