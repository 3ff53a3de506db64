"""The tokens that a configuration adds to a `tokenizers.Tokenizer`, and what it puts around."""

from __future__ import annotations

import tokenizers
from tokenizers import processors

from mmroute.errors import ModelError, Reason
from mmroute.model.files import ModelFiles
from mmroute.tokenizers.formats.huggingface import (
    MATCHING_FLAGS,
    all_special_tokens,
    check_added_token,
    configured_tokens,
    named_special_tokens,
)

__all__ = [
    "add_configured_tokens",
    "apply_bos_rule",
    "put_around",
    "special_texts",
    "tokens_with_ids",
]

_CONFIG = "tokenizer_config.json"


def add_configured_tokens(backend: tokenizers.Tokenizer, files: ModelFiles) -> list[str]:
    """Add the tokens that tokenizer_config.json and its older companions name.

    First those with an ID of their own, then the named special tokens that are still missing, in
    the order in which transformers goes through them; the latter get the next free IDs.
    Source: transformers 5.20.2 ``tokenization_utils_tokenizers.py`` (`TokenizersBackend`).

    Returns:
        What is not sure about them, in words.

    Raises:
        ModelError: `malformed_file`; `special_token_split` if a token cannot have its ID.
    """
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    notes = []
    for token_id, token in tokens_with_ids(files):
        if token.content not in known:
            backend.add_tokens([token])
            known[token.content] = token
        elif any(getattr(token, f) != getattr(known[token.content], f) for f in MATCHING_FLAGS):
            notes.append(f"the configuration has other flags for {token.content!r} than are used")
        if backend.token_to_id(token.content) != token_id:
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{files.name}: the configuration gives {token.content!r} the ID {token_id}, but "
                f"in this vocabulary it has {backend.token_to_id(token.content)}.",
            )
    for text in special_texts(files):
        if text in known:
            continue
        if backend.token_to_id(text) is None:
            notes.append(
                f"{text!r} has no ID in any file: it got the next free one, as transformers does"
            )
        backend.add_tokens([tokenizers.AddedToken(text, special=True, normalized=False)])
    return notes


def tokens_with_ids(files: ModelFiles) -> list[tuple[int, tokenizers.AddedToken]]:
    """The added tokens that a configuration gives an ID, by ID.

    Raises:
        ModelError: `malformed_file`.
    """
    return configured_tokens(files) or _tokens_of_older_files(files)


def special_texts(files: ModelFiles) -> tuple[str, ...]:
    """The tokens that a configuration names as special, with an ID or without."""
    return all_special_tokens(files.object(_CONFIG)) or all_special_tokens(
        files.object("special_tokens_map.json")
    )


def _tokens_of_older_files(files: ModelFiles) -> list[tuple[int, tokenizers.AddedToken]]:
    special = {
        *all_special_tokens(files.object(_CONFIG)),
        *all_special_tokens(files.object("special_tokens_map.json")),
    }
    tokens = []
    for text, token_id in files.object("added_tokens.json").items():
        if type(token_id) is not int:
            raise ModelError(
                Reason.MALFORMED_FILE,
                f"{files.path('added_tokens.json')}: {text!r} must have an ID, found {token_id!r}.",
            )
        check_added_token(files.path("added_tokens.json"), text, token_id)
        flags = {"special": text in special, "normalized": text not in special}
        tokens.append((token_id, tokenizers.AddedToken(text, **flags)))
    return sorted(tokens, key=lambda pair: pair[0])


def apply_bos_rule(backend: tokenizers.Tokenizer, files: ModelFiles) -> None:
    """Where a configuration says whether BOS and EOS are added, that replaces the file's rule.

    Source: transformers 5.20.2 ``tokenization_utils_tokenizers.py`` (`update_post_processor`).
    """
    config = files.object(_CONFIG)
    if not {"add_bos_token", "add_eos_token"} & config.keys():
        return
    named = named_special_tokens(config)
    bos = named.get("bos_token") if config.get("add_bos_token") else None
    eos = named.get("eos_token") if config.get("add_eos_token") else None
    put_around(backend, bos, eos)


def put_around(backend: tokenizers.Tokenizer, bos: str | None, eos: str | None) -> None:
    """Have these tokens of the vocabulary added to a sequence, and nothing else."""
    used = {name: text for name, text in (("bos", bos), ("eos", eos)) if text is not None}
    # By names of their own: the library reads a colon in a token's text as its own syntax.
    backend.post_processor = processors.TemplateProcessing(
        single=[*["bos"] * ("bos" in used), "$A", *["eos"] * ("eos" in used)],
        special_tokens=[
            {"id": name, "ids": [backend.token_to_id(text)], "tokens": [text]}
            for name, text in used.items()
        ],
    )
