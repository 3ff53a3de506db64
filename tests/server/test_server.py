"""The server's routes, in process: forms, names, errors."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from chat_requests import CHAT, COMPLETION, DETOKENIZE, EMBEDDINGS, HI, TOKENIZE, picture, user
from media_files import png_url
from paths import ROOT
from server_helpers import DIRECTORIES, error_of, serving
from small_models import Files
from starlette.testclient import TestClient

from mmroute import ImageSize, InexactError, Lora, Normalizer, Reason
from mmroute.cli import main
from mmroute.engines.vllm.forwarding import mm_metadata
from mmroute.engines.vllm.settings import VllmSettings, as_vllm
from mmroute.errors import RandomSeedWarning
from mmroute.server import ModelSource, ServerSettings
from mmroute.server.api_errors import REFUSED_BY_ENGINE, USUALLY_REFUSED
from mmroute.server.models import Models


@pytest.fixture(scope="module")
def client(models: Models) -> Iterator[TestClient]:
    with serving(models) as found:
        yield found


# --- answers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*DIRECTORIES, "embedded"])
def test_text_comes_back(client: TestClient, name: str) -> None:
    body = {"model": name, "prompt": "what is in this image", "add_special_tokens": False}
    tokens = client.post(TOKENIZE, json={**body, "return_token_strs": True}).json()
    assert len(tokens["token_strs"]) == tokens["count"]
    back = client.post(DETOKENIZE, json={"model": name, "tokens": tokens["tokens"]}).json()
    assert back["prompt"].strip() == body["prompt"]
    rendered = client.post(COMPLETION, json=body).json()
    assert rendered[0]["token_ids"] == tokens["tokens"]


def test_what_mistral_common_encodes_has_no_template(client: TestClient) -> None:
    body = {"model": "embedded", "messages": HI}
    variants: tuple[dict[str, Any], ...] = ({"x": 1}, {})
    for kwargs in variants:
        more = {"chat_template_kwargs": kwargs}
        response = client.post(CHAT, json=body | more)
        assert error_of(response) == (400, "BadRequestError", "chat_template")
        assert client.post(TOKENIZE, json=body | more).status_code == 200
    plain = client.post(TOKENIZE, json=body).json()
    assert client.post(TOKENIZE, json=body | {"tools": []}).json() == plain


def test_rows_of_pixtral_are_told_apart(client: TestClient) -> None:
    body = {"model": "small-pixtral-hf", "messages": user(picture(64, 48))}
    (placed,) = client.post(CHAT, json=body).json()["features"]["mm_placeholders"]["image"]
    assert len(placed["is_embed"]) == placed["length"]
    assert placed["is_embed"] == ([True] * 4 + [False]) * 3


def test_tensors_that_are_not_sent_are_announced(client: TestClient) -> None:
    # The metadata of Pixtral in Mistral's format was not compared.
    body: dict[str, Any] = {"model": "embedded", "messages": user(picture(32, 32))}
    asked = client.post(CHAT, json={**body, "mm_payload": "tensors"})
    assert asked.headers["x-mmroute-mm-payload"] == "none"
    assert asked.json()["features"]["kwargs_data"] is None
    assert client.post(CHAT, json=body).headers["x-mmroute-mm-payload"] == "none"  # the default
    for other in ({**body, "mm_payload": "none"}, {"messages": HI}):
        assert "x-mmroute-mm-payload" not in client.post(CHAT, json=other).headers


def test_metadata_is_sent_in_place_of_tensors(small_model: Callable[[str], Path]) -> None:
    directory = str(small_model("small-qwen2.5-vl"))
    messages = user(picture(64, 48))
    routing = Normalizer.from_pretrained(directory).normalize(messages=messages)
    with serving([ModelSource(directory, ("a",))]) as client:
        asked = client.post(CHAT, json={"messages": messages})
        assert asked.headers["x-mmroute-mm-payload"] == "metadata"
        features = asked.json()["features"]
        assert features["mm_metadata"] == mm_metadata(routing)
        # vLLM's item: {"image_grid_thw": {"data": ("int64", (3,), 24 bytes), "field": ...}}
        (item,) = features["mm_metadata"]["image"]
        assert b"image_grid_thw" in base64.b64decode(item)
        without = client.post(CHAT, json={"messages": messages, "mm_payload": "none"}).json()
        assert without["features"]["mm_metadata"] is None


def test_sampling_has_the_defaults_of_the_model(changed_model: Callable[..., Path]) -> None:
    def change(files: Files) -> None:
        files["generation_config.json"] = {
            "repetition_penalty": 1.05, "temperature": 0.000001,
            "top_k": math.inf, "top_p": math.nan,
        }  # fmt: skip

    source = ModelSource(str(changed_model("small-qwen2.5-vl", change)), ("a",))
    with serving([source]) as client:
        sampling = client.post(CHAT, json={"messages": HI}).json()["sampling_params"]
    # The lower bound of temperatures is vLLM's.
    assert (sampling["repetition_penalty"], sampling["temperature"]) == (1.05, 0.01)
    assert ("top_k" in sampling, sampling["top_p"]) == (False, 1.0)  # no number is none


@pytest.mark.parametrize("algorithm", ["sha256", "sha256_cbor"])
def test_block_hashes_on_demand(client: TestClient, models: Models, algorithm: str) -> None:
    messages = user(picture(64, 48), {"type": "text", "text": "what is this " * 20})
    routing = models.find(None).normalizer.normalize(messages=messages, cache_salt="t")
    answer = client.post(
        f"{CHAT}?block_size=8&algorithm={algorithm}", json={"messages": messages, "cache_salt": "t"}
    ).json()
    assert answer["block_hashes"] == routing.block_hashes(algorithm, block_size=8).hex()
    assert list(answer)[-1] == "block_hashes"
    text = client.post(f"{COMPLETION}?block_size=2", json={"prompt": [1, 2, 3, 4, 5]}).json()
    assert len(text[0]["block_hashes"]) == 2


@pytest.mark.parametrize(
    ("query", "param"),
    [
        ("block_size=0", "block_size"),
        ("block_size=x", "block_size"),
        ("block_size=99999999999", "block_size"),
        ("algorithm=md5", "algorithm"),
        ("algorithm=xxhash", "algorithm"),  # needs a seed
        ("hashes=base64", "hashes"),
        ("block_sise=16", "block_sise"),
    ],
)
def test_bad_block_forms(client: TestClient, query: str, param: str) -> None:
    response = client.post(f"{CHAT}?{query}", json={"messages": HI})
    assert error_of(response) == (400, "BadRequestError", param)


def test_dynamos_hashes_on_demand(client: TestClient, models: Models) -> None:
    messages = user(picture(64, 48), {"type": "text", "text": "what is this " * 20})
    routing = models.find(None).normalizer.normalize(messages=messages)
    query = f"{CHAT}?block_size=8&hashes=dynamo"
    answer = client.post(query, json={"messages": messages}).json()
    assert (answer["local_hashes"], answer["sequence_hashes"]) == routing.dynamo_hashes(8)
    assert "block_hashes" not in answer


def test_ids_that_no_engine_holds_have_no_block_hashes(client: TestClient) -> None:
    assert client.post(COMPLETION, json={"prompt": [999999]}).json()[0]["token_ids"] == [999999]
    response = client.post(f"{COMPLETION}?block_size=1", json={"prompt": [999999]})
    assert error_of(response) == (400, "BadRequestError", None)
    assert error_of(client.post(COMPLETION, json={"prompt": [2**40]}))[0] == 400


def test_the_header_names_the_request(client: TestClient) -> None:
    headers = {"X-Request-Id": "from-the-header"}
    body = {"messages": HI, "request_id": "from-the-body"}
    answer = client.post(CHAT, json=body, headers=headers)
    assert answer.json()["request_id"] == "chatcmpl-from-the-header"
    assert "x-request-id" not in answer.headers
    prompts = client.post(COMPLETION, json={"prompt": ["a", "b"]}, headers=headers).json()
    assert [p["request_id"] for p in prompts] == [
        "cmpl-from-the-header-0", "cmpl-from-the-header-1",
    ]  # fmt: skip


def test_request_id_headers_by_option(models: Models) -> None:
    with serving(models, ServerSettings(request_id_headers=True)) as client:
        given = client.post(CHAT, json={"messages": HI}, headers={"X-Request-Id": "a"})
        assert given.headers["x-request-id"] == "a"
        assert re.fullmatch("[0-9a-f]{32}", client.get("/version").headers["x-request-id"])


def test_a_long_prompt_has_tokens_but_cannot_be_rendered(client: TestClient) -> None:
    text = "a b " * 20000
    messages = [{"role": "user", "content": text}]
    for body in ({"prompt": text}, {"messages": messages}):
        answer = client.post(TOKENIZE, json=body).json()
        assert answer["count"] > answer["max_model_len"]
    response = client.post(CHAT, json={"messages": messages})
    assert error_of(response) == (400, "BadRequestError", None)


def test_warm_up_of_llm_d(client: TestClient) -> None:
    """Its body as buildChatRenderRequest makes it, and one without types."""
    types: tuple[dict[str, Any], ...] = ({"type": "text"}, {})
    for kind in types:
        text = {**kind, "text": "warmup"}
        image = {**({"type": "image_url"} if kind else {}), "image_url": {"url": png_url(1, 1)}}
        for parts in ((text,), (text, image)):
            answer = client.post(CHAT, json={"messages": user(*parts)})
            assert answer.status_code == 200
            assert (answer.json()["features"] is None) == (len(parts) == 1)
    assert client.post(CHAT, json={"messages": user({"text": "other"})}).status_code == 400


# --- names ------------------------------------------------------------------------------------


def test_every_name_is_listed_and_answers(client: TestClient) -> None:
    cards = client.get("/v1/models").json()["data"]
    names = [name for base in DIRECTORIES for name in (base, f"{base}-b")]
    assert [card["id"] for card in cards] == [*names, "embedded"]
    assert all(card["max_model_len"] for card in cards)
    first = client.post(TOKENIZE, json={"prompt": "this"}).json()
    for name in ("small-qwen2.5-vl-b", "", None):
        assert client.post(TOKENIZE, json={"prompt": "this", "model": name}).json() == first
    other = client.post(TOKENIZE, json={"prompt": "this", "model": "embedded"}).json()
    assert other != first
    nobody = client.post(TOKENIZE, json={"prompt": "this", "model": "nobody"})
    aliases = ", ".join([*names, "embedded"])
    told = f"The model `nobody` does not exist. Valid aliases: {aliases}."
    assert nobody.json()["error"]["message"] == told


def test_answers_are_not_made_out_of_token_ids(client: TestClient) -> None:
    for path in ("/v1/chat/completions/derender", "/v1/completions/derender"):
        answer = client.post(path, json={"generate_response": {"choices": []}})
        assert error_of(answer) == (422, "InexactRouting", "unsupported_field")
        assert client.post(path, json={"model": "nope"}).status_code == 404


def test_the_prompt_of_the_prefill_is_taken_as_it_was_rendered(client: TestClient) -> None:
    def answered(messages: Any, **forwarded: Any) -> Any:
        return client.post(CHAT, json={"messages": messages, "kv_transfer_params": forwarded})

    found = answered(HI, prompt_token_ids=[5, 3], engine="p").json()
    assert (found["token_ids"], found["kv_transfer_params"]) == ([5, 3], {"engine": "p"})
    reply = answered(HI, prompt_token_ids=[10**6])
    assert error_of(reply) == (400, "BadRequestError", "kv_transfer_params.prompt_token_ids")
    parts = [{"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
    reply = answered(parts, prompt_token_ids=[5, 3])
    assert error_of(reply) == (422, "InexactRouting", "unsupported_field")


def test_what_the_engine_was_started_with(small_model: Callable[[str], Path]) -> None:
    """Adapters have names of their own."""
    directory = str(small_model(DIRECTORIES[0]))
    given = "vllm serve org/name --lora-modules adapter=/adapters/one --reasoning-parser qwen3"
    settings = VllmSettings.from_args(given)
    expected = Normalizer.from_pretrained(directory).normalize(
        messages=HI, lora=Lora("adapter", "/adapters/one")
    )
    hashes = [key.hex() for key in expected.block_hashes("sha256_cbor", block_size=2)]
    prompt = expected.token_ids.tolist()
    source = ModelSource(directory, ("base",), engine_settings=settings)
    with serving([source]) as client:
        for path, body in ((CHAT, {"messages": HI}), (COMPLETION, {"prompt": prompt})):
            query = "?block_size=2&algorithm=sha256_cbor"
            found = client.post(path + query, json={"model": "adapter", **body}).json()
            answer = found[0] if isinstance(found, list) else found
            assert (answer["model"], answer["block_hashes"]) == ("adapter", hashes)
        cards = {card["id"]: card for card in client.get("/v1/models").json()["data"]}
        assert (cards["adapter"]["parent"], cards["adapter"]["root"]) == ("base", "/adapters/one")
        assert cards["base"]["root"] == "org/name"


@pytest.mark.parametrize("query", ["algorithm=xxhash&block_size=2", "block_size=2"])
@pytest.mark.parametrize("of_server", [None, "8"])
def test_the_seed_is_the_model_s_where_the_server_has_none(
    small_model: Callable[[str], Path], query: str, of_server: str | None
) -> None:
    directory = str(small_model(DIRECTORIES[0]))
    line = "PYTHONHASHSEED=7 vllm serve org/name --prefix-caching-hash-algo xxhash"
    source = ModelSource(directory, ("base",), engine_settings=VllmSettings.from_args(line))
    with serving([source], ServerSettings(hash_seed=of_server)) as client:
        found = client.post(f"{CHAT}?{query}", json={"messages": HI}).json()
    routing = Normalizer.from_pretrained(directory).normalize(messages=HI)
    expected = routing.block_hashes("xxhash", block_size=2, seed=of_server or "7")
    assert found["block_hashes"] == expected.hex()


@pytest.mark.filterwarnings("default::mmroute.errors.RandomSeedWarning")  # in the server's thread
def test_a_random_seed_is_told_at_once_and_takes_no_token_ids(
    small_model: Callable[[str], Path],
) -> None:
    directory = str(small_model(DIRECTORIES[0]))
    settings = VllmSettings.from_args("vllm serve m --prefix-caching-hash-algo xxhash_cbor")
    with pytest.warns(RandomSeedWarning, match="no block hashes: .* set PYTHONHASHSEED"):
        normalizer = Normalizer.from_pretrained(directory, engine_settings=settings)
    routing = normalizer.normalize(messages=HI)
    with pytest.raises(InexactError) as refused:
        routing.block_hashes()
    assert refused.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING
    with serving([ModelSource(directory, ("base",), engine_settings=settings)]) as client:
        answer = client.post(CHAT, json={"messages": HI}).json()
        assert answer["token_ids"] == routing.token_ids.tolist()
        reply = client.post(f"{CHAT}?block_size=2", json={"messages": HI})
        assert error_of(reply) == (422, "InexactRouting", "unsupported_engine_setting")
        assert "PYTHONHASHSEED" in reply.text


def test_the_seed_of_the_command_is_the_engine_s(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then a model whose line lacks it does not warn."""
    started: list[Sequence[ModelSource]] = []
    monkeypatch.setattr("mmroute.server.run.serve", lambda sources, *_: started.append(sources))
    for seed, line in (("7", "vllm serve m"), ("8", "PYTHONHASHSEED=7 vllm serve m")):
        assert main(["serve", "m", "--hash-seed", seed, "--engine-args", line]) == 0
        assert [as_vllm(source.engine_settings).hash_seed for source in started[-1]] == [seed]


def test_names_must_tell_models_apart() -> None:
    for sources in (
        [], [ModelSource("x", ())], [ModelSource("x", ("a",)), ModelSource("y", ("a",))],
    ):  # fmt: skip
        with pytest.raises(ValueError, match=r"name|model"):
            Models(sources)


def test_strict_refuses_what_vllm_lets_pass_by_accident(models: Models) -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    with serving(models, ServerSettings(strict=True)) as client:
        both = client.post(TOKENIZE, json={"prompt": "a", "messages": HI})
        assert error_of(both) == (400, "BadRequestError", "prompt")
        tools = client.post(CHAT, json={"messages": HI, "tools": [tool]})
        assert error_of(tools) == (400, "BadRequestError", None)


def test_trusted_processor_kwargs(models: Models) -> None:
    body = {"messages": user(picture(640, 480)), "mm_processor_kwargs": {"max_pixels": 20000}}
    with serving(models, ServerSettings(trust_request_mm_kwargs=True)) as client:
        small = client.post(TOKENIZE, json=body).json()["count"]
        assert small < client.post(TOKENIZE, json={"messages": body["messages"]}).json()["count"]
        of_none = {"image": {"a": 1}, "nothing": {}}  # vLLM reads what it knows, where it needs it
        media = client.post(CHAT, json={"messages": HI, "media_io_kwargs": of_none})
        assert media.status_code == 200  # there is no image that it could change
        with_image = {"messages": user(picture(64, 48)), "media_io_kwargs": {"image": {"a": 1}}}
        refused = client.post(CHAT, json=with_image)
        assert error_of(refused) == (422, "InexactRouting", "unsupported_processor_kwargs")


# --- requests without an exact answer -----------------------------------------------------------


@pytest.mark.parametrize("reason", sorted(Reason))
def test_each_reason_has_a_status(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, reason: Reason
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise InexactError(reason, "why")

    monkeypatch.setattr("mmroute.answering.pipeline.prepare", refuse)
    status, kind, param = error_of(client.post(CHAT, json={"messages": HI}))
    if reason in REFUSED_BY_ENGINE | USUALLY_REFUSED:
        assert (status, kind) == (400, "BadRequestError")
    else:
        assert (status, kind, param) == (422, "InexactRouting", reason.value)


def test_what_the_page_says_of_each_reason() -> None:
    page = (ROOT / "docs" / "reasons.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` \|.*\(refused\)", page, re.MULTILINE)
    assert set(rows) == {reason.value for reason in REFUSED_BY_ENGINE | USUALLY_REFUSED}


def test_headers_tell_the_outcome(models: Models) -> None:
    refused = [{"role": "user", "content": [{"type": "image"}]}]
    with serving(models) as client:
        for messages, expected in (
            (HI, ("exact", None)),
            (EMBEDDINGS, ("inexact", "unsupported_modality")),
            (refused, ("refused", "image_count_mismatch")),
            ("no messages", (None, None)),
        ):
            headers = client.post(CHAT, json={"messages": messages}).headers
            found = tuple(headers.get(f"x-mmroute-{name}") for name in ("outcome", "reason"))
            assert found == expected


# --- paths ------------------------------------------------------------------------------------


def test_the_document_lists_what_there_is(client: TestClient, models: Models) -> None:
    assert client.get("/tokenizer_info").status_code == 404  # by option
    document = client.get("/openapi.json").json()
    for path, item in document["paths"].items():
        for method in item:
            answer = client.request(method, path, json={} if method == "post" else None)
            assert answer.status_code not in (404, 405), path
    with serving(models, ServerSettings(tokenizer_info=True)) as other:
        assert "/tokenizer_info" in other.get("/openapi.json").json()["paths"]
        assert other.get("/tokenizer_info?model=nope").status_code == 404
        info = other.get("/tokenizer_info").json()
        assert next(iter(info)) == "tokenizer_class"


def test_sizes_only_never_pass_for_an_image(models: Models) -> None:
    """What the server does not read must not enter an answer."""
    routing = models.find(None).normalizer.normalize(
        messages=user({"type": "image"}), images=[ImageSize(32, 32)]
    )
    assert routing.exact
    with serving(models) as client:
        body = {"messages": user({"type": "image"}), "images": [{"width": 32, "height": 32}]}
        assert error_of(client.post(CHAT, json=body)) == (400, "BadRequestError", None)
