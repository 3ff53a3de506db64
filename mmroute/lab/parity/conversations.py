"""Requests that test everything except image sizes: order, text, options."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from mmroute.answering.pipeline import answer
from mmroute.errors import InexactError, Reason
from mmroute.health.probes import written_image
from mmroute.lab.parity.cases import Case
from mmroute.model.resolved import ResolvedModel
from mmroute.requests.items import ImageSize, Modality
from mmroute.requests.request import Request
from mmroute.tokenizers.pipelines import PIPELINES

IMAGE: Final[Mapping[str, Any]] = {"type": "image"}
"""A message part that takes the next entry of `images`."""

# Combining letters, scripts, emoji of several code points, invisible characters.
_TEXTS: Final = (
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

_Request = dict[str, Any]
_MAX_PIECES: Final = 8


def part(text: str) -> _Request:
    """A text part."""
    return {"type": "text", "text": text}


def user(*parts: Mapping[str, Any]) -> _Request:
    """A user message."""
    return {"role": "user", "content": list(parts)}


def conversations(model: ResolvedModel) -> Iterator[Case]:
    """The requests that test everything except the geometry, in a fixed order."""
    yield from _numbered("order", _order())
    yield from _numbered("multi-turn", _turns())
    yield from _numbered("system", _systems())
    yield from _texts(model)
    yield from _numbered("typed-placeholder", _typed(model))
    yield from _numbered("placeholders", _counts(model))
    yield from _numbered("tools", _tools())
    yield from _numbered("options", _options())
    yield from _rendered(model)


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


def _numbered(kind: str, requests: Mapping[str, _Request]) -> Iterator[Case]:
    for name, request in requests.items():
        yield Case(f"{kind}-{name}", kind, request)


def _sizes(count: int) -> list[_Request]:
    chosen = [_SIZES[i % len(_SIZES)] for i in range(count)]
    return [{"width": width, "height": height} for width, height in chosen]


def chat(*messages: _Request, **options: Any) -> _Request:
    """A chat, with a size for each of its images."""
    contents = [message["content"] for message in messages]
    count = sum(p == IMAGE for c in contents if isinstance(c, list) for p in c)
    return {"messages": list(messages), "images": _sizes(count), **options}


def _order() -> dict[str, _Request]:
    a, b = part("Before."), part("After.")
    return {
        "first": chat(user(IMAGE, a)),
        "last": chat(user(a, IMAGE)),
        "between": chat(user(a, IMAGE, b)),
        "alone": chat(user(IMAGE)),
        "adjacent": chat(user(a, IMAGE, IMAGE, b)),
        "apart": chat(user(IMAGE, a, IMAGE, b, IMAGE)),
        "line-breaks": chat(user(part("x\n"), IMAGE, part("\n\ny"))),
        "several": chat(user(*[IMAGE] * 5, a)),
    }


def _turns() -> dict[str, _Request]:
    said = {"role": "assistant", "content": "A cat."}
    return {
        "text": chat(user(part("Hi")), said, user(part("And now?"))),
        "image-first": chat(user(IMAGE, part("What?")), said, user(part("Are you sure?"))),
        "image-last": chat(user(part("Hi")), said, user(IMAGE, part("And this?"))),
        "image-each": chat(user(IMAGE), said, user(part("And"), IMAGE), said, user(IMAGE)),
        "no-answer": chat(user(part("One")), user(part("Two"))),
        "strings": chat({"role": "user", "content": "plain"}, said, user(IMAGE)),
    }


def _systems() -> dict[str, _Request]:
    system = {"role": "system", "content": "Be brief."}
    parts = {"role": "system", "content": [part("Be brief."), part("Be kind.")]}
    return {
        "text": chat(system, user(part("Hi"))),
        "image": chat(system, user(IMAGE, part("What?"))),
        "parts": chat(parts, user(IMAGE, part("What?"))),
        "developer": chat({**system, "role": "developer"}, user(IMAGE, part("What?"))),
    }


def _texts(model: ResolvedModel) -> Iterator[Case]:
    own = [text for text in model.tokenizer.named_tokens if text][:_MAX_SPECIAL]
    special = [*_LOOKALIKES, *telling_texts(model), *(f"x{text} y {text}" for text in own)]
    for kind, texts in (
        ("unicode", _TEXTS),
        ("whitespace", _WHITESPACE),
        ("special-tokens", special),
    ):
        for number, text in enumerate(texts):
            # Every second text stands beside an image, because some engines then encode it again.
            parts: tuple[Mapping[str, Any], ...] = (part(text),)
            if number % 2:
                parts = (part(text), IMAGE, part(text))
            takes = Modality.IMAGE in model.media
            yield Case(f"{kind}-{number}", kind, chat(user(*parts) if takes else user(part(text))))


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


def _typed(model: ResolvedModel) -> dict[str, _Request]:
    typed = _placeholder(model, 1)
    if typed is None:
        return {}
    return {
        "alone": chat(user(part(f"What is {typed}?"))),
        "before": chat(user(part(f"{typed} is"), IMAGE)),
        "after": chat(user(IMAGE, part(f"is not {typed}"))),
        "twice": chat(user(part(f"{typed}{typed}"), IMAGE)),
        "in-answer": chat(
            user(part("Hi")), {"role": "assistant", "content": f"See {typed}."}, user(IMAGE)
        ),
    }


def _counts(model: ResolvedModel) -> dict[str, _Request]:
    one, two = _placeholder(model, 1), _placeholder(model, 2)
    if one is None:
        return {}
    return {
        "one": {"prompt": f"Look: {one}\nWhat?", "images": _sizes(1)},
        "two": {"prompt": f"{one}{two} Which?", "images": _sizes(2)},
        "too-few": {"prompt": f"{one} Which?", "images": _sizes(2)},
        "too-many": {"prompt": f"{one} {two} {one} Which?", "images": _sizes(1)},
        "none": {"prompt": "Which?", "images": _sizes(1)},
        "no-image": {"prompt": f"{one} Which?"},
        "surplus-size": {**chat(user(IMAGE, part("What?"))), "images": _sizes(2)},
    }


def _tools() -> dict[str, _Request]:
    asked = user(part("Look it up."))
    called = {"role": "assistant", "content": None, "tool_calls": [_CALL]}
    result = {"role": "tool", "tool_call_id": "abcdef123", "content": "42 <b>"}
    return {
        "text": chat(asked, tools=[_TOOL]),
        "image": chat(user(IMAGE, part("Look it up.")), tools=[_TOOL]),
        "called": chat(asked, called, result, tools=[_TOOL]),
        "called-without": chat(asked, called, result),
    }


def _options() -> dict[str, _Request]:
    asked = user(IMAGE, part("What?"))
    begun = {"role": "assistant", "content": "It is a "}
    return {
        "no-generation-prompt": chat(asked, add_generation_prompt=False),
        "continue": chat(asked, begun, add_generation_prompt=False, continue_final_message=True),
        "continue-and-generate": chat(asked, begun, continue_final_message=True),
        "ends-with-assistant": chat(asked, begun, add_generation_prompt=False),
        "special-tokens": chat(asked, add_special_tokens=True),
        "template-variable": chat(asked, chat_template_kwargs={"enable_thinking": False}),
    }


def _rendered(model: ResolvedModel) -> Iterator[Case]:
    """Completion prompts and token IDs, made from a rendered chat of this model."""
    takes_images = Modality.IMAGE in model.media
    asked = user(*[IMAGE] * takes_images, part("What is this?"))
    images = _sizes(int(takes_images))
    text, ids = _prompt(model, [asked], images)
    rendered: _Request = {"prompt": text, "images": images}
    plain: _Request = {"prompt": "The cat sat on the mat."}
    requests: dict[str, _Request] = {
        f"{name}-{'added' if special else 'not-added'}": {**prompt, "add_special_tokens": special}
        for name, prompt in (("plain", plain), ("chat", rendered))
        for special in (True, False)
    }
    bos = model.tokenizer.bos_token_id
    if bos is not None:
        typed = f"{model.tokenizer.decode([bos])}{text}"
        requests["typed"] = {**rendered, "prompt": typed, "add_special_tokens": True}
    yield from _numbered("bos", requests)
    requests = {
        "plain": {"prompt_token_ids": [5, 6, 7]},
        "chat": {"prompt_token_ids": ids, "images": images},
        "no-image": {"prompt_token_ids": ids},
        "outside": {"prompt_token_ids": [5, model.max_token_id + 1]},
        "empty": {"prompt_token_ids": []},
    }
    yield from _numbered("token-ids", requests)


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
