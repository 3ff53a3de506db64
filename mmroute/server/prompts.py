"""The prompts of a completion: texts, or token IDs.

Source: vLLM 0.33.0 ``entrypoints/openai/completion/protocol.py``, and its answers as observed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mmroute.errors import Reason, shown
from mmroute.routing import Routing
from mmroute.server.errors import ApiError, bad_request, of_reason, wrong_field
from mmroute.server.fields import Body, bounded, integer, list_of, read_nullable, text
from mmroute.server.models import ServedModel
from mmroute.server.truncation import Truncation

__all__ = ["Prompt", "encode_prompt", "read_prompts"]

_MAX_ID: Final = 2**32 - 1
_LONGEST_BATCH: Final = 1024
_TOKEN_IDS: Final = list_of(bounded(integer, low=0))


@dataclass(frozen=True, slots=True)
class Prompt:
    """One prompt of a completion: a text or token IDs."""

    text: str | None
    token_ids: Sequence[int] | None

    def offsets(self, served: ServedModel, with_special: bool) -> list[tuple[int, int]] | None:
        """Where in the text each token stands; None for token IDs, and where nobody can say."""
        if self.text is None:
            return None
        return served.model.tokenizer.offsets(self.text, add_special_tokens=with_special)


def read_prompts(body: Body) -> list[Prompt]:
    """The prompts of a request.

    Raises:
        ApiError: 400: there is none, or something else.
    """
    given = body.get("prompt")
    _check_embeds(body.get("prompt_embeds"))
    if given is None or given == "":
        raise bad_request(
            "Either prompt or prompt_embeds must be provided and non-empty.", "prompt"
        )
    if read_nullable(body, "suffix", text) is not None:
        raise bad_request("suffix is only supported for models with FIM rendering", "suffix")
    if isinstance(given, str):
        return [Prompt(given, None)]
    if not isinstance(given, list):
        raise wrong_field(
            "body.prompt", f"Input should be a string or a list, found {shown(given)}"
        )
    if not given:
        raise bad_request("You must pass at least one prompt", "prompt")
    if all(isinstance(item, str) for item in given):
        return [Prompt(item, None) for item in _batch(given)]
    if isinstance(given[0], list):
        return [Prompt(None, ids) for ids in _lists_of_ids(_batch(given))]
    return [Prompt(None, _TOKEN_IDS(given, "body.prompt"))]


def encode_prompt(
    served: ServedModel,
    prompt: Prompt,
    truncation: Truncation | None,
    *,
    add_special_tokens: bool,
    cache_salt: str | None,
    in_vocabulary: bool,
) -> Routing:
    """The token IDs of a prompt. Those that are given are handed back, as vLLM does it.

    Args:
        served: the model.
        prompt: to encode.
        truncation: of the request.
        add_special_tokens: put BOS before text.
        cache_salt: enters block hashes.
        in_vocabulary: whether token IDs outside the vocabulary are refused here. vLLM's render
            lets them pass, and its engine refuses them: they never have block hashes.

    Raises:
        ApiError: what vLLM refuses, and what has no exact answer.
    """
    if prompt.token_ids is None:
        normalizer = served.normalizer if truncation is None else served.unlimited
        routing = normalizer.normalize(
            prompt=prompt.text, add_special_tokens=add_special_tokens, cache_salt=cache_salt
        )
        if truncation is not None and routing.exact:
            truncation.check_untouched(served, len(routing.token_ids))
        return routing
    ids = prompt.token_ids
    if truncation is not None:
        ids = truncation.of_ids(served, ids)
    if not ids:
        raise of_reason(Reason.EMPTY_PROMPT, "No token_ids rendered", model=served.name)
    if in_vocabulary:
        return served.normalizer.normalize(prompt_token_ids=ids, cache_salt=cache_salt)
    if len(ids) > served.max_model_len:
        message = f"{len(ids)} tokens do not fit the context of {served.max_model_len}"
        raise of_reason(Reason.PROMPT_TOO_LONG, message, model=served.name)
    if max(ids) > _MAX_ID:
        message = f"{shown(max(ids))} is no token ID of any model"
        raise of_reason(Reason.TOKEN_OUT_OF_VOCABULARY, message, model=served.name)
    return Routing(cache_salt=cache_salt, _token_ids=np.array(ids, dtype=np.uint32))


def _check_embeds(given: object) -> None:
    if given is None or given == []:
        return
    listed = given if isinstance(given, list) else [given]
    if not all(isinstance(item, str) for item in listed):
        raise wrong_field("body.prompt_embeds", "Input should be a string or a list of strings")
    raise bad_request(
        "You must set `--enable-prompt-embeds` to input `prompt_embeds`.", "prompt_embeds"
    )


def _lists_of_ids(given: list[Any]) -> list[list[Any]]:
    try:
        return [_TOKEN_IDS(item, "body.prompt") for item in given]
    except ApiError:
        # vLLM reads one list of IDs first, of which a list is none: that is what it reports.
        raise wrong_field("body.prompt.0", "Input should be a valid integer") from None


def _batch(given: list[Any]) -> list[Any]:
    if len(given) > _LONGEST_BATCH:
        raise bad_request(f"at most {_LONGEST_BATCH} prompts in one request", "prompt")
    return given
