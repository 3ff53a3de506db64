"""The tokens that a family spec names, each proved to be one token of the vocabulary."""

from __future__ import annotations

from collections.abc import Mapping

from mmroute.errors import ModelError, Reason
from mmroute.families.lookup import Lookup, TokenLookup
from mmroute.model.values import Values
from mmroute.tokenizers import Tokenizer


def resolve_tokens(
    lookups: Mapping[str, TokenLookup], tokenizer: Tokenizer, values: Values
) -> dict[str, int]:
    """The IDs of the spec's tokens, by name."""
    return {
        name: _token(f"{name}_token", lookup, tokenizer, values) for name, lookup in lookups.items()
    }


def _token(name: str, lookup: TokenLookup, tokenizer: Tokenizer, values: Values) -> int:
    """Resolve one token, and prove that its text is this one token and nothing else."""
    model = values.files.name
    if lookup.text is not None:
        text = values.required(f"{name}_text", lookup.text)
        if not isinstance(text, str):
            raise values.invalid(f"{name}_text", text, "a string")
        vocabulary_id = tokenizer.token_id(text)
        if vocabulary_id is None:
            raise _split(model, name, text, tokenizer)
        token_id = vocabulary_id
        present = [str(ref) for ref in lookup.equals if values.files.lookup(ref)[0]]
        agreeing = f"{', '.join(present)} and " if present else ""
        values.note(f"{name}_id", token_id, f"{agreeing}the vocabulary, {text!r}")
    else:
        token_id = values.integer(f"{name}_id", lookup.id or Lookup())
        # Of a vocabulary that was not read as a whole, the largest ID is slow to find.
        if tokenizer.token(token_id) is None and token_id > tokenizer.max_token_id:
            raise ModelError(
                Reason.SPECIAL_TOKEN_SPLIT,
                f"{model}: {name}_id is {token_id}, but the tokenizer's IDs end at "
                f"{tokenizer.max_token_id}.",
            )
        text = tokenizer.decode([token_id])
        values.note(f"{name}_text", text, f"the vocabulary's text of {token_id}")
    if tokenizer.reads_special_tokens:
        encoded = tokenizer.encode(text, add_special_tokens=False).tolist()
        if encoded != [token_id]:
            raise _split(model, name, text, tokenizer)
    values.agree(f"{name} is {token_id} ({text!r}) in the tokenizer", token_id, lookup.equals)
    return token_id


def _split(model: str, name: str, text: str, tokenizer: Tokenizer) -> ModelError:
    encoded = tokenizer.encode(text, add_special_tokens=False).tolist()
    return ModelError(
        Reason.SPECIAL_TOKEN_SPLIT,
        f"{model}: {name} {text!r} must be one token, but the tokenizer makes "
        f"{encoded} of it. Is it missing from added_tokens of tokenizer.json and from "
        "added_tokens_decoder of tokenizer_config.json?",
    )
