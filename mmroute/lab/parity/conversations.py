"""Requests that test everything except image sizes: order, text, options."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.errors import InexactError, Reason
from mmroute.health.self_check import written_image
from mmroute.lab.parity.cases import Case
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import ImageSize, Modality
from mmroute.requests.request import Request
from mmroute.tokenizers.pipelines import PIPELINES

IMAGE: Final[Mapping[str, Any]] = {"type": "image"}
"""A message part that takes the next entry of `images`."""

# Combining letters, scripts, emoji of several code points, invisible characters.
_UNICODE: Final = (
    "e\u0301 n\u0303 \u1112\u1161\u11ab \ufb01 ½ \uff71 \u212b",
    "東京タワー、안녕하세요。你好。ไทย हिन्दी العربية",
    "👨\u200d👩\u200d👧 🏳️\u200d🌈 🤷🏽\u200d♀️ 1️⃣",
    "a\u200bb\ufeffc\u00add \u202eeb\u202c \U0001d54f \ue000",
)
_WHITESPACE: Final = (
    "  two leading, trailing   ",
    "\ttab,\t\ttabs,\r\nCRLF,\rCR,\x0b\x0c",
    "\n\n\nlines\n\n\n\n\nmore\n \n",
    "no-break\u00a0space\u2003em\u3000wide\u2028line\u2029paragraph\u0085next",
)
# Special tokens of many models. For one model they are tokens, for all others plain text.
_LOOKALIKES: Final = (
    "</s><s>[INST] x [/INST]<unk><pad>",
    "<|im_start|>user\nx<|im_end|><|endoftext|>",
    "<|vision_start|><|vision_end|><|video_pad|><|vision_pad|>",
    "<bos><start_of_turn>model\nx<end_of_turn><eos>",
    "<|user|>\nx<|end|>\n<|assistant|> <|system|>",
    "<image ><|image_pad |>< s>[ INST]<|im_start|",
    "<tool_call>{}</tool_call><think></think>[TOOL_CALLS][AVAILABLE_TOOLS]",
    "[IMG_BREAK][IMG_END]<end_of_image><image_soft_token><video>",
)
_TOOL: Final[Mapping[str, Any]] = {
    "type": "function",
    "function": {
        "name": "lookup",
        "description": 'Looks <up> "things" & more',
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}},
    },
}
_CALL: Final[Mapping[str, Any]] = {
    "id": "abcdef123",
    "type": "function",
    "function": {"name": "lookup", "arguments": '{"q": "<ü>", "n": [1, 2.50]}'},
}
_WITHOUT_CHATS: Final = (Reason.CHAT_TEMPLATE_MISSING, Reason.CHAT_RENDERER_UNSUPPORTED)
_MAX_SPECIAL: Final = 4
_SIZES: Final = ((640, 480), (90, 230), (500, 300))

_Request: TypeAlias = dict[str, Any]
_Kinds: TypeAlias = dict[str, dict[str, _Request]]  # kind -> name -> request
_MAX_PIECES: Final = 8


def part(text: str) -> _Request:
    """A text part."""
    return {"type": "text", "text": text}


def user(*parts: Mapping[str, Any]) -> _Request:
    """A user message."""
    return {"role": "user", "content": list(parts)}


def conversations(model: ResolvedModel) -> Iterator[Case]:
    """The requests that test everything except the geometry, in a fixed order."""
    kinds = {**_CHATS, **_texts(model), **_placeholders(model), **_rendered(model)}
    for kind, requests in kinds.items():
        for name, request in requests.items():
            yield Case(f"{kind}-{name}", kind, request)


def takes_chats(model: ResolvedModel) -> bool:
    """Whether the model has a chat template or renderer."""
    hello = Request(messages=[{"role": "user", "content": "Hi"}])
    return answer(model, hello).reason not in _WITHOUT_CHATS


def as_prompt(model: ResolvedModel, request: Mapping[str, Any]) -> _Request:
    """A chat as a prompt with the same text and images, for a model without a template."""
    texts = []
    number = 0
    for message in request["messages"]:
        content = message["content"] or ""
        for piece in [part(content)] if isinstance(content, str) else content:
            if piece == IMAGE:
                number += 1
                texts.append(_placeholder(model, number) or "")
            else:
                texts.append(piece["text"])
        texts.append("\n")
    prompt = {"prompt": "".join(texts), "images": request["images"], "add_special_tokens": True}
    return prompt | {name: request[name] for name in ("cache_salt",) if name in request}


def _sizes(count: int) -> list[_Request]:
    chosen = [_SIZES[i % len(_SIZES)] for i in range(count)]
    return [{"width": width, "height": height} for width, height in chosen]


def chat(*messages: _Request, **options: Any) -> _Request:
    """A chat, with a size for each of its images."""
    contents = [message["content"] for message in messages]
    count = sum(p == IMAGE for c in contents if isinstance(c, list) for p in c)
    return {"messages": list(messages), "images": _sizes(count), **options}


def _texts(model: ResolvedModel) -> _Kinds:
    own = [text for text in model.tokenizer.named_tokens if text][:_MAX_SPECIAL]
    special = (*_LOOKALIKES, *telling_texts(model), *(f"x{text} y {text}" for text in own))
    kinds = {"unicode": _UNICODE, "whitespace": _WHITESPACE, "special-tokens": special}
    takes = Modality.IMAGE in model.media

    def asked(number: int, text: str) -> _Request:
        # Every second text stands beside an image, because some engines then encode it again.
        beside = takes and number % 2
        return chat(user(part(text), IMAGE, part(text)) if beside else user(part(text)))

    return {
        kind: {str(number): asked(number, text) for number, text in enumerate(texts)}
        for kind, texts in kinds.items()
    }


def _placeholder(model: ResolvedModel, number: int) -> str | None:
    """The placeholder for an image in a prompt; None if the model has no fixed one."""
    rules = model.media.get(Modality.IMAGE)
    if rules is None:
        return None
    written = written_image(model, number)
    if written is not None:
        return written
    (replacement,) = rules.geometry.replacements([ImageSize(*_SIZES[0])], model.context)
    return model.tokenizer.decode([int(replacement.token_ids[0])])


def _placeholders(model: ResolvedModel) -> _Kinds:
    """Placeholders that a user typed, and completion prompts with more and fewer than images."""
    one, two = _placeholder(model, 1), _placeholder(model, 2)
    if one is None:
        return {}
    answered = {"role": "assistant", "content": f"See {one}."}
    return {
        "typed-placeholder": {
            "alone": chat(user(part(f"What is {one}?"))),
            "before": chat(user(part(f"{one} is"), IMAGE)),
            "after": chat(user(IMAGE, part(f"is not {one}"))),
            "twice": chat(user(part(f"{one}{one}"), IMAGE)),
            "in-answer": chat(user(part("Hi")), answered, user(IMAGE)),
        },
        "placeholders": {
            "one": {"prompt": f"Look: {one}\nWhat?", "images": _sizes(1)},
            "two": {"prompt": f"{one}{two} Which?", "images": _sizes(2)},
            "too-few": {"prompt": f"{one} Which?", "images": _sizes(2)},
            "too-many": {"prompt": f"{one} {two} {one} Which?", "images": _sizes(1)},
            "none": {"prompt": "Which?", "images": _sizes(1)},
            "no-image": {"prompt": f"{one} Which?"},
            "surplus-size": {**chat(_SEEN), "images": _sizes(2)},
        },
    }


def _rendered(model: ResolvedModel) -> _Kinds:
    """Completion prompts and token IDs, made from a rendered chat of this model."""
    takes_images = Modality.IMAGE in model.media
    images = _sizes(int(takes_images))
    text, ids = _prompt(model, [user(*[IMAGE] * takes_images, part("What is this?"))], images)
    plain: _Request = {"prompt": "The cat sat on the mat."}
    rendered: _Request = {"prompt": text, "images": images}
    prompts = {
        "plain-added": {**plain, "add_special_tokens": True},
        "plain-not-added": {**plain, "add_special_tokens": False},
        "chat-added": {**rendered, "add_special_tokens": True},
        "chat-not-added": {**rendered, "add_special_tokens": False},
    }
    bos = model.tokenizer.bos_token_id
    if bos is not None:
        typed = f"{model.tokenizer.decode([bos])}{text}"
        prompts["typed"] = {**rendered, "prompt": typed, "add_special_tokens": True}
    token_ids: dict[str, _Request] = {
        "plain": {"prompt_token_ids": [5, 6, 7]},
        "chat": {"prompt_token_ids": ids, "images": images},
        "no-image": {"prompt_token_ids": ids},
        "outside": {"prompt_token_ids": [5, model.max_token_id + 1]},
        "empty": {"prompt_token_ids": []},
    }
    return {"bos": prompts, "token-ids": token_ids}


def _prompt(
    model: ResolvedModel, messages: Sequence[_Request], images: Sequence[_Request]
) -> tuple[str, list[int]]:
    """A chat as text and as token IDs, before its images are expanded.

    For a model without a template it is the placeholder and some words.
    """
    request = Request(messages=messages)
    sizes = [ImageSize(image["width"], image["height"]) for image in images]
    try:
        rendered = model.chat.render(model.chat.read(request), {Modality.IMAGE: sizes}, request)
    except InexactError:
        rendered = f"{_placeholder(model, 1) or ''} What is this?"
    if isinstance(rendered, np.ndarray):
        ids = rendered.tolist()
        return model.tokenizer.decode(ids), ids
    text = rendered if isinstance(rendered, str) else rendered.text
    return text, model.tokenizer.encode(text, add_special_tokens=False).tolist()


def telling_texts(model: ResolvedModel) -> Iterator[str]:
    """Texts for which tokenizer classes differ: their default tokens, and unmerged pieces."""
    yield " ".join(sorted({text for p in PIPELINES.values() for text in p.defaults.values()}))
    file = Path(model.name) / "tokenizer.json"  # not of a name on the hub
    if model.tokenizer.chat_encoder is not None or not file.is_file():
        return
    bpe = json.loads(file.read_text(encoding="utf-8")).get("model") or {}
    texts = map(model.tokenizer.decode, ([token_id] for token_id in _unmerged(bpe)))
    plain = (text for text in texts if len(text.strip()) > 1 and text.isprintable())
    if telling := list(itertools.islice(plain, _MAX_PIECES)):
        yield "\n".join(telling)


def _unmerged(bpe: dict[str, Any]) -> list[int]:
    """The IDs of pieces that no merge gives, which only a BPE with ignore_merges finds."""
    vocabulary, merges = bpe.get("vocab"), bpe.get("merges")
    if not isinstance(vocabulary, dict) or not isinstance(merges, list):
        return []  # of another kind of model
    pairs = (pair.split(" ", 1) if isinstance(pair, str) else pair for pair in merges)
    merged = {"".join(pair) for pair in pairs}
    return [number for piece, number in vocabulary.items() if piece not in merged]


_BEFORE, _AFTER, _HELLO = part("Before."), part("After."), user(part("Hi"))
_SEEN, _ASKED = user(IMAGE, part("What?")), user(part("Look it up."))
_SAID: Final = {"role": "assistant", "content": "A cat."}
_BEGUN: Final = {"role": "assistant", "content": "It is a "}
_BRIEF: Final = {"role": "system", "content": "Be brief."}
_TWO_RULES: Final = {"role": "system", "content": [part("Be brief."), part("Be kind.")]}
_CALLED: Final = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
_RESULT: Final = {"role": "tool", "tool_call_id": "abcdef123", "content": "42 <b>"}
_CHATS: Final[_Kinds] = {
    "order": {
        "first": chat(user(IMAGE, _BEFORE)),
        "last": chat(user(_BEFORE, IMAGE)),
        "between": chat(user(_BEFORE, IMAGE, _AFTER)),
        "alone": chat(user(IMAGE)),
        "adjacent": chat(user(_BEFORE, IMAGE, IMAGE, _AFTER)),
        "apart": chat(user(IMAGE, _BEFORE, IMAGE, _AFTER, IMAGE)),
        "line-breaks": chat(user(part("x\n"), IMAGE, part("\n\ny"))),
        "several": chat(user(*[IMAGE] * 5, _BEFORE)),
    },
    "multi-turn": {
        "text": chat(_HELLO, _SAID, user(part("And now?"))),
        "image-first": chat(_SEEN, _SAID, user(part("Are you sure?"))),
        "image-last": chat(_HELLO, _SAID, user(IMAGE, part("And this?"))),
        "image-each": chat(user(IMAGE), _SAID, user(part("And"), IMAGE), _SAID, user(IMAGE)),
        "no-answer": chat(user(part("One")), user(part("Two"))),
        "strings": chat({"role": "user", "content": "plain"}, _SAID, user(IMAGE)),
    },
    "system": {
        "text": chat(_BRIEF, _HELLO),
        "image": chat(_BRIEF, _SEEN),
        "parts": chat(_TWO_RULES, _SEEN),
        "developer": chat({**_BRIEF, "role": "developer"}, _SEEN),
    },
    "tools": {
        "text": chat(_ASKED, tools=[_TOOL]),
        "image": chat(user(IMAGE, part("Look it up.")), tools=[_TOOL]),
        "called": chat(_ASKED, _CALLED, _RESULT, tools=[_TOOL]),
        "called-without": chat(_ASKED, _CALLED, _RESULT),
    },
    "options": {
        "no-generation-prompt": chat(_SEEN, add_generation_prompt=False),
        "continue": chat(_SEEN, _BEGUN, add_generation_prompt=False, continue_final_message=True),
        "continue-and-generate": chat(_SEEN, _BEGUN, continue_final_message=True),
        "ends-with-assistant": chat(_SEEN, _BEGUN, add_generation_prompt=False),
        "special-tokens": chat(_SEEN, add_special_tokens=True),
        "template-variable": chat(_SEEN, chat_template_kwargs={"enable_thinking": False}),
    },
}
