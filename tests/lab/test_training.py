"""Training examples: what the loss covers is what the model wrote, and nothing else."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from mmroute import ImageSize, InexactError, Normalizer, Reason, Request
from mmroute.lab.training import training_example

IMAGE: Final = {"type": "image"}
CONVERSATION: Final[list[Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": [IMAGE, {"type": "text", "text": "What is it?"}]},
    {"role": "assistant", "content": "A cat."},
    {"role": "user", "content": [IMAGE, IMAGE, {"type": "text", "text": "And these?"}]},
    {"role": "assistant", "content": "Two dogs."},
]
SIZES: Final = [ImageSize(64, 48), ImageSize(640, 480), ImageSize(40, 90)]
Load = Callable[[str], Normalizer]


def test_the_loss_covers_the_turns_of_the_model(normalizer: Load) -> None:
    qwen = normalizer("small-qwen2.5-vl")
    request = Request(messages=CONVERSATION, images=SIZES)
    example = training_example(qwen, request)
    ids = example.routing.token_ids.tolist()
    texts = [qwen.model.tokenizer.decode(ids[start:end]) for start, end in example.loss_ranges]
    # Its template ends each turn so.
    assert texts == ["A cat.<|im_end|>", "Two dogs.<|im_end|>"]
    assert len(example.routing.placeholders) == 3
    mask = example.loss_mask()
    assert mask.sum() == sum(end - start for start, end in example.loss_ranges)
    for placed in example.routing.placeholders:
        assert not mask[placed.offset : placed.offset + placed.length].any()
    whole = qwen.normalize(messages=CONVERSATION, images=SIZES, add_generation_prompt=False)
    assert ids == whole.token_ids.tolist()


def test_ranges_are_those_that_a_search_for_the_marks_of_turns_finds(normalizer: Load) -> None:
    """The template writes ``<|im_start|>`` and the role, a turn, and ``<|im_end|>``."""
    qwen = normalizer("small-qwen2.5-vl")
    encode = qwen.model.tokenizer.encode
    opening = encode("<|im_start|>assistant", add_special_tokens=False).tolist()
    (closing,) = encode("<|im_end|>", add_special_tokens=False).tolist()
    draw = random.Random(35)
    for _ in range(50):
        messages: list[Any] = []
        sizes: list[ImageSize] = []
        for _ in range(draw.randint(1, 5)):
            shown = draw.randint(0, 3)
            sizes += [ImageSize(draw.randint(30, 900), draw.randint(30, 900)) for _ in range(shown)]
            asked = [*[IMAGE] * shown, {"type": "text", "text": _text(draw)}]
            messages.append({"role": "user", "content": asked})
            messages += [{"role": "assistant", "content": _text(draw)}] * draw.randint(1, 2)
        messages += [{"role": "user", "content": _text(draw)}] * draw.randint(0, 1)
        example = training_example(qwen, Request(messages=messages, images=sizes))
        ids = example.routing.token_ids.tolist()
        found = []
        for at in range(len(ids)):
            if ids[at : at + len(opening)] == opening:
                start = at + len(opening)
                found.append((start, ids.index(closing, start) + 1))
        assert example.loss_ranges == tuple(found)
        assert len(found) == sum(message["role"] == "assistant" for message in messages)


def _text(draw: random.Random) -> str:
    """Words, spaces and line breaks, which are not at the beginning, behind the role."""
    return "x" + "".join(draw.choices("ab é好.\n0 😀", k=draw.randint(0, 30)))


def test_what_cannot_be_told_is_refused(
    normalizer: Load, changed_model: Callable[..., Any]
) -> None:
    qwen = normalizer("small-qwen2.5-vl")
    with pytest.raises(InexactError, match="nothing to learn"):
        training_example(qwen, Request(messages=CONVERSATION[:2], images=SIZES[:1]))
    with pytest.raises(InexactError) as caught:  # sizes are missing
        training_example(qwen, Request(messages=CONVERSATION, images=SIZES[:2]))
    assert caught.value.reason is Reason.IMAGE_COUNT_MISMATCH

    def forget(files: dict[str, Any]) -> None:
        """Leave out what the model wrote once the conversation goes on."""
        files["chat_template.jinja"] = (
            "{% for m in messages %}{{ m.role }}:{% if m.role != 'assistant' or loop.last %}"
            "{{ m.content }}{% endif %}\n{% endfor %}"
            "{% if add_generation_prompt %}assistant:{% endif %}"
        )
        files.pop("chat_template.json", None)

    forgetful = Normalizer.from_pretrained(str(changed_model("small-qwen2.5-vl", forget)))
    texts = [{**message, "content": "hello"} for message in CONVERSATION]
    with pytest.raises(InexactError, match=r"messages\[:3\]") as caught:
        training_example(forgetful, Request(messages=texts))
    assert caught.value.reason is Reason.UNSUPPORTED_FIELD
    assert training_example(forgetful, Request(messages=texts[:3])).loss_ranges
