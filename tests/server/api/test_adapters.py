"""A body asks for a LoRA adapter of the engine's command line by its `model`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from media_files import png_url

from mmroute import InexactError, Lora, Normalizer, Reason, Request, from_openai
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.server.engines.vllm import LoadedModel, answer_body

LINE: Final = "vllm serve org/m --enable-lora --lora-modules sql=/adapters/sql"
IMAGE: Final = {"type": "image_url", "image_url": {"url": png_url(100, 60)}}
TEXT: Final = "one two three four five six seven eight nine ten eleven twelve thirteen fourteen "
CHAT: Final = {"messages": [{"role": "user", "content": [IMAGE, {"type": "text", "text": TEXT}]}]}
BODIES: Final = [CHAT, {"prompt": TEXT * 4}, {"prompt": [*range(5, 50)]}]


@pytest.fixture(scope="module")
def load(small_model: Callable[[str], Path]) -> Callable[[str], Normalizer]:
    def loaded(line: str) -> Normalizer:
        settings = VllmSettings.from_args(line)
        return Normalizer.from_pretrained(small_model("small-llava-1.5"), engine_settings=settings)

    return loaded


@pytest.mark.parametrize("body", BODIES)
def test_hashes_are_those_of_the_named_adapter(
    load: Callable[[str], Normalizer], body: dict[str, Any]
) -> None:
    normalizer = load(LINE)
    asked = from_openai({**body, "model": "sql"})
    routing = normalizer.answer(asked)
    assert routing.lora == Lora("sql", "/adapters/sql")
    explicit = from_openai({**body, "model": "other"})
    given = explicit._replace(lora=Lora("sql", "/adapters/sql"))
    assert routing.block_hashes() == normalizer.answer(given).block_hashes()
    for name in ("org/m", "anything"):  # names of models are not checked
        plain = normalizer.answer(from_openai({**body, "model": name}))
        assert plain.token_ids.tolist() == routing.token_ids.tolist()
        assert plain.lora is None
        assert plain.block_hashes() != routing.block_hashes()


@pytest.mark.parametrize("body", BODIES)
def test_a_route_answers_for_the_adapter(
    load: Callable[[str], Normalizer], body: dict[str, Any]
) -> None:
    model = LoadedModel.of(load(LINE), "m")
    path = "chat/completions" if "messages" in body else "completions"
    reply = answer_body(model, f"/v1/{path}/render", {**body, "model": "sql"})
    assert [routing.lora for routing in reply.routings] == [Lora("sql", "/adapters/sql")]


def test_identities_of_towers_begin_with_the_named_adapter(
    load: Callable[[str], Normalizer],
) -> None:
    normalizer = load(f"{LINE} --enable-tower-connector-lora")
    plain, asked = (
        normalizer.answer(from_openai({**CHAT, "model": name})).identities for name in ("m", "sql")
    )
    assert plain[0] is not None
    assert asked[0] is not None
    assert asked[0].value == f"sql:{plain[0].value}"


def test_each_worker_of_a_fleet_has_its_own_path(load: Callable[[str], Normalizer]) -> None:
    first = load(LINE)
    lines = (LINE.replace("/adapters", "/mnt"), "vllm serve org/m")
    others = [first.matching("vllm", engine_settings=VllmSettings.from_args(x)) for x in lines]
    for normalizer in (first, others[0], others[1]):
        rest = [each for each in (first, *others) if each is not normalizer]
        request = from_openai({**CHAT, "model": "sql"})
        found = normalizer.answer_with(rest, request)
        alone = [each.answer(request) for each in (normalizer, *rest)]
        assert [routing.lora for routing in found] == [routing.lora for routing in alone]
    assert others[0].answer(Request(prompt="a", model="sql")).lora == Lora("sql", "/mnt/sql")


@pytest.mark.parametrize(
    ("name", "part"),
    [("image", IMAGE), ("text", {"type": "text", "text": TEXT}),
     ("refusal", {"type": "refusal", "refusal": TEXT})],
)  # fmt: skip
def test_an_adapter_named_like_a_part_may_be_taken_for_a_chat_with_such_parts(
    load: Callable[[str], Normalizer], name: str, part: dict[str, Any]
) -> None:
    normalizer = load(f"{LINE} {name}=/adapters/one")
    role = "assistant" if name == "refusal" else "user"
    message = {"role": role, "content": [part]}
    chat = {"messages": [message, {"role": "user", "content": TEXT * 2}]}
    plain = load(LINE).answer(from_openai({**chat, "model": "m"}))
    refused = normalizer.answer(from_openai({**chat, "model": "m"}))
    assert refused.token_ids.tolist() == plain.token_ids.tolist()
    with pytest.raises(InexactError, match=f"the adapter '{name}'") as error:
        refused.block_hashes()
    assert error.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING
    for named in (name, "sql"):
        routing = normalizer.answer(from_openai({**chat, "model": named}))
        assert routing.lora is not None
        assert routing.block_hashes() != plain.block_hashes()
    for other in ({"prompt": TEXT * 4}, {"messages": [{"role": "user", "content": TEXT * 4}]}):
        request = from_openai({**other, "model": "m"})
        expected = load(LINE).answer(request).block_hashes()
        assert normalizer.answer(request).block_hashes() == expected


def test_a_name_of_another_type_names_no_adapter(load: Callable[[str], Normalizer]) -> None:
    name: Any = ["sql"]
    assert load(LINE).normalize(prompt="a", model=name).lora is None
