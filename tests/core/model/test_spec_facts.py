"""What a family spec says beside counts: chats only, requirements, identities."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from small_models import ALL_MODELS, Files, as_qwen3_5, write_model

from mmroute import ModelError, Normalizer, Reason
from mmroute.geometry import Overrides
from mmroute.images import read_image
from mmroute.requests.items import IdentitySource, ImageSize
from mmroute.requests.lines import request_of

_TOOL = {"type": "function", "function": {"name": "f"}}
ChangedModel = Callable[..., Path]
IMAGE = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what is it"}]}
PNG_RGBA = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAC"
    "hwGA60e6kgAAAABJRU5ErkJggg=="
)


_TEMPLATE = (
    "{%- for message in messages -%}[{{ message.role }}"
    "{%- if message.tool %} {{ message.tool }} {{ message.index }}{% endif %}]"
    "{%- if message.content is string -%}{{ message.content }}"
    "{%- else -%}{%- for part in message['content'] -%}"
    "{%- if part.type == 'image' -%}<|media_pad|>{%- else -%}{{ part.text }}{%- endif -%}"
    "{%- endfor -%}{%- endif -%}{%- endfor -%}"
    "{%- if thinking_effort %} {{ thinking_effort }}{% endif %}"
    "{%- if thinking is defined %} {{ thinking }}{% endif %}"
)


@pytest.fixture(scope="module")
def kimi_k2_5(normalizer: Callable[[str], Normalizer]) -> Normalizer:
    return normalizer("small-kimi-k2.5")


@pytest.fixture(scope="module")
def kimi_k3(tmp_path_factory: pytest.TempPathFactory) -> Normalizer:
    files = ALL_MODELS["small-kimi-k3"]() | {"chat_template.jinja": _TEMPLATE}
    directory = write_model(files, tmp_path_factory.mktemp("kimi") / "k3")
    return Normalizer.from_pretrained(directory)


def test_marks_stay_with_the_letters_before_them(changed_model: ChangedModel) -> None:
    """Qwen3.5's tokenizer class splits so, whatever tokenizer.json says; Qwen2's does not."""

    def merge_mark(files: Files) -> None:
        vocabulary, merges = (files["tokenizer.json"]["model"][n] for n in ("vocab", "merges"))
        # The bytes of q and of a combining accent, in place of the last two words.
        for at, pair in ((-2, ("q", "\u00cc")), (-1, ("q\u00cc", "\u0123"))):
            vocabulary["".join(pair)] = vocabulary.pop(merges[at].replace(" ", ""))
            merges[at] = " ".join(pair)

    def merge_mark_for_qwen3_5(files: Files) -> None:
        merge_mark(files)
        as_qwen3_5(files)

    text, lengths = "q\u0301", []
    for change in (merge_mark_for_qwen3_5, merge_mark):
        model = Normalizer.from_pretrained(changed_model("small-qwen3-vl", change)).model
        lengths.append(len(model.tokenizer.encode(text, add_special_tokens=False)))
    assert lengths == [1, 3]


def test_images_beside_a_prompt_are_refused_where_the_engine_takes_them_in_chats_only(
    kimi_k2_5: Normalizer,
) -> None:
    images = [ImageSize(100, 50)]
    refused = kimi_k2_5.normalize(prompt="<|media_pad|>", images=images)
    assert refused.reason is Reason.UNSUPPORTED_MODALITY
    assert kimi_k2_5.normalize(messages=[IMAGE], images=images).exact


def test_a_field_that_the_spec_does_not_hold_for_is_named(changed_model: ChangedModel) -> None:
    def change(files: Files) -> None:
        files["config.json"]["use_thumbnail"] = False

    with pytest.raises(ModelError, match=r"config\.json:use_thumbnail") as error:
        Normalizer.from_pretrained(changed_model("small-nvlm-d", change))
    assert error.value.reason is Reason.INVALID_CONFIG_FIELD


def test_an_image_hashed_by_its_pixels_has_no_identity_but_its_name(kimi_k2_5: Normalizer) -> None:
    by_file = kimi_k2_5.normalize(messages=[_with(PNG_RGBA)])
    assert by_file.exact
    assert by_file.identities == (None,)
    named = kimi_k2_5.normalize(messages=[IMAGE], images=[ImageSize(9, 9, "cat")])
    assert [str(identity) for identity in named.identities] == ["cat"]
    mixed = kimi_k2_5.normalize(
        messages=[IMAGE, IMAGE], images=[ImageSize(9, 9, "cat"), ImageSize(9, 9)]
    )
    assert mixed.reason is Reason.INVALID_REQUEST


def test_what_an_image_is_converted_to_enters_its_identity_only_where_it_is(
    kimi_k3: Normalizer, normalizer: Callable[[str], Normalizer]
) -> None:
    assert read_image(PNG_RGBA).converted
    model_id = "one"
    identities = []
    for model in (kimi_k3.model, normalizer("small-qwen3-vl").model):
        form = next(iter(model.media.values())).identity
        found = model.engine.naming.identify(
            read_image(PNG_RGBA),
            overrides=Overrides({}, {}),
            frames=None,
            model_id=model_id,
            form=form,
        )
        assert found is not None
        assert found.source is IdentitySource.CONTENT_HASH
        identities.append(found.value)
    assert identities[0] != identities[1]


def _with(url: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}


def _call(call_id: str, name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": "{}"}
    return {"id": call_id, "type": "function", "function": function}


def _result(call_id: str, content: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


@pytest.mark.parametrize(
    ("results", "rendered"),
    [
        (("b", "a"), "[tool f 1]a[tool g 2]b"),
        (("g:1", "f:0"), "[tool f 1]f:0[tool g 2]g:1"),
        (("b", "unknown"), "[tool]b[tool]unknown"),
    ],
)
def test_kimi_k3_orders_the_results_of_tools(
    kimi_k3: Normalizer, results: tuple[str, ...], rendered: str
) -> None:
    calls = [_call("a", "f"), _call("b", "g")]
    messages = [
        {"role": "assistant", "tool_calls": calls},
        *(_result(name, name) for name in results),
    ]
    routing = kimi_k3.normalize(messages=messages)
    text = kimi_k3.model.tokenizer.decode(routing.token_ids.tolist())
    assert text == f"[assistant]{rendered}"


@pytest.mark.parametrize(
    ("kwargs", "end"),
    [
        ({"reasoning_effort": "low"}, " low"),
        ({"reasoning_effort": "none"}, " False"),
        ({"enable_thinking": False, "thinking": True}, " True"),
        ({"thinking_effort": "medium"}, None),
        ({"truncation": True}, None),
    ],
)
def test_kimi_k3_reads_effort_by_other_names(
    kimi_k3: Normalizer, kwargs: dict[str, Any], end: str | None
) -> None:
    routing = kimi_k3.normalize(
        messages=[{"role": "user", "content": "x"}], chat_template_kwargs=kwargs
    )
    if end is None:
        assert routing.reason is Reason.INVALID_REQUEST
    else:
        text = kimi_k3.model.tokenizer.decode(routing.token_ids.tolist())
        assert text == f"[user]x{end}"


def test_identities_of_kimi_k2_5_cover_the_media_kwargs_of_all_modalities(
    kimi_k2_5: Normalizer,
) -> None:
    """What vLLM 0.33.0 names an image with a uuid, started as ``org/m``."""
    model = Normalizer.from_pretrained(kimi_k2_5.model.name, model_id="org/m")
    routing = model.normalize(
        messages=[{"role": "user", "content": [{"type": "image"}]}],
        images=[ImageSize(60, 40, "u")],
        media_io_kwargs={"video": {"num_frames": 4}},
    )
    (identity,) = routing.identities
    assert identity is not None
    assert identity.value == "07328eb627052033d4f78b25728864324aa4aedb88a42f9c699fadf66e1a1076"


_OF_KIMI_K3: list[tuple[dict[str, Any], str | None]] = [
    ({"response_format": {"type": "json_object"}}, "unsupported_field"),
    ({"tools": [_TOOL], "tool_choice": "none"}, "unsupported_field"),
    ({"tools": [_TOOL], "tool_choice": "auto"}, None),
    ({"tool_choice": "none"}, None),
]


@pytest.mark.parametrize(("fields", "reason"), _OF_KIMI_K3)
def test_lines_refuse_fields_that_change_prompts_of_kimi_k3(
    kimi_k3: Normalizer, fields: dict[str, Any], reason: str | None
) -> None:
    request = request_of({"messages": [{"role": "user", "content": "x"}], **fields})
    assert kimi_k3.answer(request).reason == reason
