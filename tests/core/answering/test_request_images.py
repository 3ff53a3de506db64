"""How the images of a request reach its image parts, and what a routing says of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from image_vectors import data_url, image_files

from mmroute import ImageSize, InexactError, Lora, Normalizer, Reason, read_image
from mmroute.hashing import hash_blocks, pad_value
from mmroute.requests.items import IdentitySource, Image

MODEL = "small-qwen2.5-vl"
FILES = image_files()
URL = data_url(FILES["jpeg"])
PIXELS = 178_000_000


def part(url: str | None = URL, **fields: Any) -> dict[str, Any]:
    kind = {"type": "image"} if url is None else {"type": "image_url", "image_url": {"url": url}}
    return {**kind, **fields}


def ask(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [*parts, {"type": "text", "text": "What? " * 20}]}]


def test_each_part_takes_its_own_image(normalizer: Callable[[str], Normalizer]) -> None:
    model = normalizer(MODEL)
    mixed = model.normalize(
        messages=ask(part(None), part(), part("https://example.com/a.png"), part(None)),
        images=[ImageSize(280, 28, "a"), ImageSize(28, 280, "b"), ImageSize(56, 56, "c")],
    )
    images: list[Image] = [
        ImageSize(280, 28),
        read_image(URL),
        ImageSize(28, 280),
        ImageSize(56, 56),
    ]
    alone = model.normalize(messages=ask(*[part(None)] * 4), images=images)
    assert mixed.token_ids.tolist() == alone.token_ids.tolist()
    assert [str(i)[:3] for i in mixed.identities] == [
        "a", str(alone.identities[1])[:3], "b", "c",
    ]  # fmt: skip
    assert alone.identities[0] is None


@pytest.mark.parametrize(
    ("parts", "images", "reason"),
    [
        ([part()], [ImageSize(93, 31)], Reason.IMAGE_COUNT_MISMATCH),
        ([part("https://example.com/a.png")], [], Reason.IMAGE_SIZE_UNKNOWN),
        ([part("HTTPS://example.com/a.png")], [], Reason.IMAGE_SIZE_UNKNOWN),
        ([part(None)], [], Reason.IMAGE_COUNT_MISMATCH),
        ([part(data_url(FILES["cut-jpeg"]))], [], Reason.IMAGE_UNREADABLE),
        ([part(data_url(FILES["bomb"]))], [], Reason.IMAGE_REFUSED),
        ([part(uuid="\ud800")], [], Reason.INVALID_REQUEST),
        ([part(None, uuid="a")], [ImageSize(56, 56, "b")], Reason.INVALID_REQUEST),
        ([part(uuid="a"), part(None)], [ImageSize(56, 56, "a")], Reason.UNSUPPORTED_FIELD),
        ([part(uuid="x" * 5000)], [], Reason.UNSUPPORTED_FIELD),
        ([part(), part(None)], [ImageSize(1, PIXELS)], Reason.IMAGE_REFUSED),
        ([part("file:///etc/passwd")], [], Reason.INVALID_REQUEST),
    ],
)
def test_what_does_not_fit(
    parts: list[dict[str, Any]],
    images: list[ImageSize],
    reason: Reason,
    normalizer: Callable[[str], Normalizer],
) -> None:
    routing = normalizer(MODEL).normalize(messages=ask(*parts), images=images)
    assert routing.reason is reason, routing.message


# What vLLM 0.33.0 `ChatCompletionRequest` takes beside a uuid, and fetches nothing for.
HELD = [None, "", {}, {"url": None}, {"url": ""}]


@pytest.mark.parametrize("link", HELD)
@pytest.mark.parametrize("kind", [{}, {"type": "image_url"}])
def test_an_image_that_the_engine_holds_is_answered_by_its_size(
    link: object, kind: dict[str, Any], normalizer: Callable[[str], Normalizer]
) -> None:
    model = normalizer(MODEL)
    held = {**kind, "image_url": link, "uuid": "page-1"}
    known = model.normalize(messages=ask(held), images=[ImageSize(93, 31)])
    sent = model.normalize(messages=ask(part(data_url(FILES["jpeg"]), uuid="page-1")))
    assert known.token_ids.tolist() == sent.token_ids.tolist()
    assert known.block_hashes()[:] == sent.block_hashes()[:]
    unknown = model.normalize(messages=ask(held))
    assert unknown.reason is Reason.IMAGE_SIZE_UNKNOWN
    assert "has a uuid and no link" in unknown.message
    assert model.normalize(messages=ask({**held, "uuid": None})).reason is Reason.INVALID_REQUEST


def test_a_file_whose_pixels_are_hashed_is_not_said_to_be_missing(
    normalizer: Callable[[str], Normalizer],
) -> None:
    routing = normalizer("small-kimi-k2.5").normalize(messages=ask(part()))
    with pytest.raises(InexactError, match=r"decoded pixels.*give the `uuid`") as caught:
        routing.block_hashes()
    assert caught.value.reason is Reason.IMAGE_IDENTITY_UNKNOWN


def test_identity_by_what_is_known(normalizer: Callable[[str], Normalizer]) -> None:
    model = normalizer(MODEL)
    image, kwargs = read_image(FILES["jpeg"]), {"max_pixels": 50176}

    def identity(image: Image, **options: Any) -> Any:
        return model.normalize(messages=ask(part(None)), images=[image], **options).identities

    (content,) = identity(image)
    (named,) = identity(ImageSize(93, 31, "page-1"))
    (hashed,) = identity(ImageSize(93, 31, "page-1"), mm_processor_kwargs=kwargs)
    (with_kwargs,) = identity(image, mm_processor_kwargs=kwargs)
    assert content.source is with_kwargs.source is IdentitySource.CONTENT_HASH
    assert (named.value, named.source) == ("page-1", IdentitySource.UUID)
    assert hashed.source is IdentitySource.UUID_HASH
    assert len({content.value, named.value, hashed.value, with_kwargs.value}) == 4
    assert identity(ImageSize(93, 31)) == (None,)


def test_forms_of_one_normalization(normalizer: Callable[[str], Normalizer]) -> None:
    routing = normalizer(MODEL).normalize(
        messages=ask(part(), part(uuid="page-1")), cache_salt="s", lora=Lora("ad", "/ad")
    )
    keys = routing.extra_keys(block_size=4)
    assert len(keys) == len(routing.token_ids) // 4
    assert keys[0] is not None
    assert keys[0][0] == ("lora", "ad", "/ad")
    assert keys[0][-1] == ("cache_salt", "s")
    assert (
        routing.block_hashes(block_size=4)[:]
        == hash_blocks(routing.token_ids, keys, block_size=4)[:]
    )
    padded = routing.pad_value_ids()
    for placeholder, digits in zip(routing.placeholders, routing.image_hashes(), strict=True):
        stop = placeholder.offset + placeholder.length
        assert set(padded[placeholder.offset : stop]) == {pad_value(int(digits, 16))}
        padded[placeholder.offset : stop] = routing.token_ids[placeholder.offset : stop]
    assert np.array_equal(padded, routing.token_ids)


def test_the_next_turn_hashes_only_what_is_new(normalizer: Callable[[str], Normalizer]) -> None:
    model = normalizer(MODEL)
    turn = ask(part())
    first = model.normalize(messages=turn, add_generation_prompt=False).block_hashes()
    longer = model.normalize(messages=[*turn, {"role": "assistant", "content": "A cat. " * 30}])
    assert longer.block_hashes(previous=first) == longer.block_hashes()
    assert longer.block_hashes()[: len(first)] == first[:]
    other = model.normalize(messages=ask(part(data_url(FILES["png"]))))
    assert other.block_hashes(previous=first) == other.block_hashes()
    assert other.block_hashes()[0] != first[0]


@pytest.mark.parametrize(
    "options",
    [
        {"cache_salt": ""},
        {"cache_salt": "x" * 129},
        {"cache_salt": "a/b"},
        {"cache_salt": "\ud800"},
        {"cache_salt": 5},
        {"lora": Lora("", "/a")},
        {"lora": Lora("a", "")},
        {"lora": Lora("a", "\ud800")},
    ],
)
def test_salt_and_adapter_are_checked(
    options: dict[str, Any], normalizer: Callable[[str], Normalizer]
) -> None:
    assert normalizer(MODEL).normalize(prompt="x", **options).reason is Reason.INVALID_REQUEST


def test_wrong_arguments_of_the_caller(normalizer: Callable[[str], Normalizer]) -> None:
    routing = normalizer(MODEL).normalize(messages=ask(part(uuid="")))
    for read in (routing.block_hashes, routing.extra_keys):
        for size in (0, -1, 1.5, "16", True):
            with pytest.raises(ValueError, match="block_size must be an integer of at least 1"):
                read(block_size=size)  # type: ignore[arg-type]  # what a caller may do
    with pytest.raises(ValueError, match="previous must be BlockHashes"):
        routing.block_hashes(previous=[])  # type: ignore[arg-type]  # likewise
    for form in (routing.pad_value_ids, routing.image_hashes):
        with pytest.raises(InexactError, match="empty uuid"):
            form()
    with pytest.raises(TypeError, match="ImageLinks"):
        Normalizer.from_pretrained("pixtral-12b-2409", links="localhost")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "request_fields",
    [
        {"lora": "x"},
        {"lora": {"lora_name": "x"}},
        {"prompt": None, "prompt_token_ids": np.array([[1, 2]])},
    ],
)
def test_no_field_of_a_request_raises(
    request_fields: dict[str, Any], normalizer: Callable[[str], Normalizer]
) -> None:
    routing = normalizer(MODEL).normalize(**{"prompt": "x", **request_fields})
    assert routing.reason is Reason.INVALID_REQUEST
