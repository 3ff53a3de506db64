"""What SGLang does: its own answers (``vectors/sglang``), and what is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from comparison import expanded, read_vectors
from sglang_files import FOLDER, files_of, recorded
from small_models import fingerprint, write_model

from mmroute import ImageSize, InexactError, ModelError, Normalizer, Reason
from mmroute.answering.routing import Routing
from mmroute.engines.sglang.message_schema import arguments_of
from mmroute.engines.sglang.settings import SglangSettings
from mmroute.engines.sglang.versions import ERAS
from mmroute.families.matching import known_families
from mmroute.forwarding import sglang_generate
from mmroute.requests.lines import request_of

FILES = sorted(FOLDER.glob("*.jsonl"))
EARLIER = sorted(FOLDER.glob("*/*.jsonl"))
PAGE = 16
# SGLang answers with another type in its place, and mmroute refuses it by name.
NOT_COVERED = "parameters of one type twice"


def load(name: str, directory: Path, backend: str = "sglang") -> Normalizer:
    files = files_of(name)
    # As the answers were made: with the items that some families have off.
    settings = SglangSettings(model=name, enable_multimodal=True)
    return Normalizer.from_pretrained(
        write_model(files, directory), backend=backend, engine_settings=settings
    )


@pytest.mark.conformance
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_answers_are_the_engines(path: Path, tmp_path: Path) -> None:
    meta, cases = read_vectors(path)
    assert meta["fingerprint"] == fingerprint(files_of(meta["model"]))
    assert not differences(load(meta["model"], tmp_path / "model"), cases)


@pytest.mark.conformance
@pytest.mark.parametrize("path", EARLIER, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_answers_are_those_of_the_version(path: Path, tmp_path: Path) -> None:
    version = path.parent.name
    normalizer = load(path.stem, tmp_path / path.stem, f"sglang=={version}")
    assert not differences(normalizer, recorded(path.stem, since=version))


def test_earlier_versions_were_asked_for_every_model() -> None:
    # Before transformers 5.19 the first one's processor is not loaded beside such a vocabulary. The
    # second one's spec says that no earlier version was asked.
    unasked = {("0.5.20", "small-mistral3-tekken"), ("0.5.21", "small-mistral3-tekken")}
    asked = {(path.parent.name, path.stem) for path in EARLIER}
    versions = {era.release.version for era in ERAS[1:]}
    unasked |= {(version, "small-llava-1.5") for version in versions}
    # Before 0.5.22 the tokenizers of published models of Qwen3.5 have other token IDs.
    unasked |= {("0.5.20", "small-qwen3.5"), ("0.5.21", "small-qwen3.5")}
    assert asked | unasked == {(version, path.stem) for version in versions for path in FILES}


def test_tokenizers_that_an_earlier_version_reads_otherwise_are_refused(tmp_path: Path) -> None:
    files = files_of("small-llama")
    files["config.json"]["model_type"] = "olmo2"
    files["config.json"]["architectures"] = ["Olmo2ForCausalLM"]
    directory = write_model(files, tmp_path / "model")
    assert Normalizer.from_pretrained(directory, backend="sglang==0.5.22")
    with pytest.raises(ModelError, match=r"transformers 5\.12\.1.*'olmo2'"):
        Normalizer.from_pretrained(directory, backend="sglang==0.5.21")


def differences(normalizer: Normalizer, cases: list[dict[str, Any]]) -> dict[str, str]:
    """What of each answer is not the engine's."""
    wrong = {
        case["id"]: difference
        for case in cases
        if (difference := compared(normalizer.answer(request_of(case)), case))
    }
    refused = wrong.pop(NOT_COVERED, "")
    assert refused.startswith("refused: ")
    return wrong


def compared(routing: Routing, case: dict[str, Any]) -> str:
    """What of an answer is not the engine's."""
    expect = case["expect"]
    if "refused" in expect:
        return "answered what the engine refuses" if routing.exact else ""
    if not routing.exact:
        lost = case.get("images") and not positions(expect["features"])
        return "" if lost else f"refused: {routing.message}"
    if routing.token_ids.tolist() != expanded(expect["token_runs"]):
        return f"IDs {routing.token_ids.tolist()}"
    if positions_of(routing) != positions(expect["features"]):
        return f"features {positions_of(routing)}"
    named = all(identity is not None for identity in routing.identities)
    if (
        routing.hashing.of_kind
        and named
        and routing.page_hashes(PAGE).event_ints() != expect["event_hashes"]
    ):
        return "page hashes"
    return ""


def positions_of(routing: Routing) -> set[int]:
    """The positions that receive features."""
    found: set[int] = set()
    for placed in routing.placeholders:
        start = placed.offset
        for is_feature, count in placed.embed_runs or ((True, placed.length),):
            found.update(range(start, start + count) if is_feature else ())
            start += count
    return found


def positions(features: list[list[list[int]]]) -> set[int]:
    """The same of the engine's runs, each by its first and last position."""
    runs = [run for item in features for run in item]
    return {position for first, last in runs for position in range(first, last + 1)}


def test_only_families_with_vectors_are_checked(tmp_path: Path) -> None:
    models = [path.stem for path in FILES]
    families = {load(name, tmp_path / name).model.family.family for name in models}
    assert {spec.family for spec in known_families() if "sglang" in spec.checked} == families


@pytest.mark.parametrize("name", ["small-molmo2", "small-gpt-oss"])
def test_other_families_are_refused_by_name(name: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="is not covered for sglang") as caught:
        load(name, tmp_path)
    assert caught.value.reason is Reason.UNKNOWN_FAMILY


def test_images_without_a_hash_of_the_caller_have_no_page_hashes(tmp_path: Path) -> None:
    routing = load("small-qwen2.5-vl", tmp_path).normalize(
        prompt="<|vision_start|><|image_pad|><|vision_end|>", images=[ImageSize(64, 48)]
    )
    with pytest.raises(InexactError, match="mm_hashes") as caught:
        routing.page_hashes(PAGE)
    assert caught.value.reason is Reason.IMAGE_IDENTITY_UNKNOWN


def test_other_engines_have_no_page_hashes(normalizer: Callable[[str], Normalizer]) -> None:
    routing = normalizer("small-qwen2.5-vl").normalize(prompt="Hello there, " * 9)
    with pytest.raises(InexactError, match=r"Routing\.block_hashes") as caught:
        routing.page_hashes(PAGE)
    assert caught.value.reason is Reason.UNSUPPORTED_ENGINE_SETTING


PICTURE = {"type": "image_url", "image_url": {"url": "https://images.test/meter.png"}}
HELLO = {"type": "text", "text": "Read the meter in the cellar."}


@pytest.mark.parametrize("name", ["meter-1", "00000000deadbeef"])
@pytest.mark.parametrize("place", ["link", "bare part", "images", "part and images"])
def test_a_uuid_names_no_image_of_a_chat(tmp_path: Path, name: str, place: str) -> None:
    """A running server had one hash for a picture whatever the `uuid` of its part was."""
    parts = {
        "link": {**PICTURE, "uuid": name}, "bare part": {"type": "image", "uuid": name},
        "images": {"type": "image"}, "part and images": {**PICTURE, "uuid": name},
    }  # fmt: skip
    image = ImageSize(64, 48, name if "images" in place else None)
    chat = [{"role": "user", "content": [parts[place], HELLO]}]
    routing = load("small-qwen2.5-vl", tmp_path).normalize(messages=chat, images=[image])
    assert routing.exact
    assert routing.identities == (None,)
    for ask in (lambda: routing.page_hashes(PAGE), routing.image_hashes, routing.pad_value_ids):
        with pytest.raises(InexactError, match="mm_hashes") as caught:
            ask()
        assert caught.value.reason is Reason.IMAGE_IDENTITY_UNKNOWN


def test_a_chat_that_is_sent_to_generate_has_the_hashes_of_what_is_sent(tmp_path: Path) -> None:
    normalizer = load("small-qwen2.5-vl", tmp_path)
    chat = [{"role": "user", "content": [{**PICTURE, "uuid": "meter-1"}, HELLO]}]
    request: dict[str, Any] = {"messages": chat}
    image = ImageSize(64, 48)
    unnamed = normalizer.normalize(**request, images=[image])
    with pytest.raises(InexactError, match="mm_hashes"):
        sglang_generate(unnamed, request, sampling_params={})
    routing = normalizer.normalize(**request, images=[image], mm_hashes=["deadbeef"])
    body = sglang_generate(routing, request, sampling_params={})
    assert body["mm_hashes"] == ["00000000deadbeef"]
    sent = normalizer.normalize(
        prompt_token_ids=body["input_ids"], images=[image], mm_hashes=body["mm_hashes"]
    )
    assert sent.page_hashes(PAGE) == routing.page_hashes(PAGE)


HALF = "\ud800"


def body_with(**fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": "Hi"}], **fields}


def calling(arguments: object, **more: Any) -> dict[str, Any]:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    turns = [{"role": "user", "content": "Hi"},
             {"role": "assistant", "content": "", "tool_calls": [{**call, **more}]},
             {"role": "tool", "tool_call_id": "1", "content": "x"}]  # fmt: skip
    return {"messages": turns}


FUNCTION = {"type": "function", "function": {"name": "f"}}
HALVES: dict[str, dict[str, Any]] = {
    "a content": {"messages": [{"role": "user", "content": HALF}]},
    "a part": {"messages": [{"role": "user", "content": [{"type": "text", "text": "a\udfff"}]}]},
    "a name": {"messages": [{"role": "user", "content": "Hi", "name": HALF}]},
    "an unknown field": {"messages": [{"role": "user", "content": "Hi", "x": {"y": [HALF]}}]},
    "a key": {"messages": [{"role": "user", "content": "Hi", HALF: 1}]},
    "arguments": calling(f'{{"a": "{HALF}"}}'),
    "escaped arguments": calling('{"a": "\\ud800"}'),
    "an escaped key of arguments": calling('{"\\ud800": 1}'),
    "arguments as an object": calling({"a": HALF}),
    "the ID of a call": calling("{}", id=HALF),
    "a tool": body_with(tools=[{**FUNCTION, "function": {"name": "f", "description": HALF}}]),
    "an unknown field of a tool": body_with(tools=[{**FUNCTION, "x": HALF}]),
    "a template variable": body_with(chat_template_kwargs={"unused": HALF}),
    "the name of one": body_with(chat_template_kwargs={HALF: 1}),
    "cache_salt": body_with(cache_salt=HALF),
    "mm_hashes": {"prompt": "Hi", "mm_hashes": [HALF]},
    "a prompt": {"prompt": f"Hi {HALF}"},
}


@pytest.mark.parametrize("name", HALVES)
def test_half_of_a_surrogate_pair_is_refused_wherever_it_is(name: str, tmp_path: Path) -> None:
    """SGLang's parser of JSON (orjson) refuses it; a running server answered 400 to each."""
    routing = load("small-qwen2.5-vl", tmp_path).answer(request_of(HALVES[name]))
    assert (routing.exact, routing.reason) == (False, Reason.INVALID_REQUEST), routing.message


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"a": "\\ud83d\\ude00"}', {"a": "\U0001f600"}),
        ('{"a": 18446744073709551615}', {"a": 18446744073709551615}),
        ('{"a": -9223372036854775808}', {"a": -9223372036854775808}),
        ('{"a": 18446744073709551616}', {"a": 1.8446744073709552e19}),
        ('{"a": -9223372036854775809}', {"a": -9.223372036854775808e18}),
        ('{"a": 1e308}', {"a": 1e308}),
        ('{"a": 1e-400}', {"a": 0.0}),
        ('{"a": 1e309}', None),
        ('{"a": -1e309}', None),
        (f'{{"a": 1{"0" * 5000}}}', None),
        ('{"a": NaN}', None),
        ('{"a": "\\udc00\\ud800"}', None),
        ("[]", None),
    ],
)
def test_arguments_are_read_as_orjson_does(text: str, read: dict[str, Any] | None) -> None:
    """The values are those of orjson 3.13.0."""
    if read is None:
        with pytest.raises(InexactError) as caught:
            arguments_of(text)
        assert caught.value.reason is Reason.INVALID_REQUEST
    else:
        found = arguments_of(text)
        assert (found, type(found["a"])) == (read, type(read["a"]))


def test_qwen3_vl_has_no_page_hashes_whatever_the_caller_names_its_images(tmp_path: Path) -> None:
    routing = load("small-qwen3-vl", tmp_path).normalize(
        prompt="<|vision_start|><|image_pad|><|vision_end|>",
        images=[ImageSize(64, 48, "00000000deadbeef")],
    )
    with pytest.raises(InexactError, match="Qwen3-VL"):
        routing.page_hashes(PAGE)
    with pytest.raises(InexactError, match="only its size is given"):
        routing.image_hashes()


TWO: dict[str, Any] = {
    "prompt": "<|vision_start|><|image_pad|><|vision_end|>" * 2,
    "images": [{"width": 64, "height": 48}, {"width": 90, "height": 60}],
}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (["00000000deadbeef", "FF"], ["00000000deadbeef", "00000000000000ff"]),
        (["0x1f", " 1a "], ["000000000000001f", "000000000000001a"]),
        (["ab" * 16, "7" * 17], ["ab" * 8, "7" * 16]),
        (["aa", "aa"], ["00000000000000aa"] * 2),
        (["aa", "no digits"], ["00000000000000aa", None]),
        (["aa", 7], ["00000000000000aa", None]),
        (["aa"], [None, None]),
    ],
)
def test_mm_hashes_are_read_as_the_engine_does(
    tmp_path: Path, given: list[Any], kept: list[str | None]
) -> None:
    normalizer = load("small-qwen2.5-vl", tmp_path)
    routing = normalizer.answer(request_of({**TWO, "mm_hashes": given}))
    assert [None if i is None else i.value for i in routing.identities] == kept
    if None in kept:
        with pytest.raises(InexactError, match="mm_hashes"):
            routing.page_hashes(PAGE)
    else:
        named = [{**size, "uuid": name} for size, name in zip(TWO["images"], kept, strict=True)]
        by_uuid = normalizer.answer(request_of({**TWO, "images": named}))
        assert routing.page_hashes(PAGE) == by_uuid.page_hashes(PAGE)


def test_any_text_is_a_cache_salt_and_an_empty_one_is_none(tmp_path: Path) -> None:
    normalizer = load("small-qwen2.5-vl", tmp_path)
    plain, empty, odd = (
        normalizer.normalize(prompt="Hello there, " * 9, cache_salt=salt).page_hashes(PAGE)
        for salt in (None, "", "a/b@c")
    )
    assert plain == empty != odd


def test_a_class_of_tokenizers_names_tokens_that_its_file_does_not(tmp_path: Path) -> None:
    def encoded(directory: str, **fields: Any) -> list[int]:
        files = files_of("small-deepseek-ocr")
        files["tokenizer_config.json"] |= fields
        path = write_model(files, tmp_path / directory)
        normalizer = Normalizer.from_pretrained(path, backend="sglang")
        return list(normalizer.normalize(prompt="a <unk> b").token_ids)

    assert encoded("silent") == encoded("named", unk_token="<unk>")
    assert encoded("silent") != encoded("null", unk_token=None)
