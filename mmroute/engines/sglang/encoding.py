"""How SGLang encodes a rendered chat: some are decoded and encoded again, with special tokens.

Source: SGLang 0.5.23 ``srt/entrypoints/openai/serving_chat.py``
(`_can_reuse_text_only_prompt_ids`), ``srt/managers/tokenizer_manager.py`` (`_tokenize_texts`),
``srt/multimodal/processors/base_processor.py`` (`process_mm_data`) and ``transformers_auto.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from mmroute.engines.sglang.message_schema import AS_TEXT, NOT
from mmroute.errors import invalid
from mmroute.token_ids import TokenIds
from mmroute.tokenizers import Tokenizer


class Kept(NamedTuple):
    """What a version keeps of a chat without items, in place of a text that it encodes again."""

    ids: bool = True  # the token IDs, where no special tokens are added to a text
    control_tokens: bool = True  # those that mistral-common encodes


@dataclass(frozen=True, slots=True)
class PromptEncoder:
    """Encodes the prompts of one model."""

    tokenizer: Tokenizer
    multimodal: bool  # whether it is served with items, be it without any in a request
    always_adds_bos: bool  # whether a prompt with items gets BOS in front, be it there or not
    # Whether items take their places in the text, which is encoded once more after that.
    placed_in_text: bool
    kept: Kept

    def prompt(self, text: str, *, with_items: bool) -> TokenIds:
        """The token IDs of a prompt that was handed on as text."""
        return self.encode(text, add_special_tokens=not self.is_begun(text, with_items=with_items))

    def is_begun(self, text: str, *, with_items: bool) -> bool:
        """Whether the engine adds no special tokens, because the text has BOS already."""
        bos = self.tokenizer.template_tokens.get("bos_token")
        return bool(with_items and bos and text.startswith(bos) and not self.always_adds_bos)

    def handed_on(self, ids: TokenIds, *, with_items: bool, how: object = None) -> TokenIds:
        """The token IDs of a rendered chat, as the engine holds them; `how` is as `HANDED_ON`."""
        added = self.encode("", add_special_tokens=True)
        kept = self.kept.ids and not with_items and not len(added) and how != AS_TEXT
        if not self.multimodal or kept or how == NOT:
            return ids
        text = self.tokenizer.decode(ids.tolist())
        if with_items and self.placed_in_text:
            begun = self.is_begun(text, with_items=with_items)
            return ids if begun else np.concatenate([added, ids])
        return self.prompt(text, with_items=with_items)

    def continued(self, text: str) -> TokenIds:
        """The token IDs of the assistant's words that a prompt continues."""
        ids = self.encode(text, add_special_tokens=True)
        begins = len(ids) and ids[0] == self.tokenizer.bos_token_id
        return ids[1:] if begins else ids

    def encode(self, text: str, *, add_special_tokens: bool = False) -> TokenIds:
        """Token IDs of a text. Raises `InexactError` for one that cannot be encoded."""
        try:
            return self.tokenizer.encode(text, add_special_tokens=add_special_tokens)
        except ValueError as error:
            raise invalid(f"the prompt cannot be encoded: {error}") from error
