"""Earlier versions of vLLM, against what their own functions give (``vectors/versions``)."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from comparison import read_lines
from media_files import png_url
from paths import VECTORS

from mmroute import ImageSize, InexactError, ModelError, Normalizer, Reason, Routing
from mmroute.engine import find_engine
from mmroute.engines.vllm.older import hash_older_blocks
from mmroute.engines.vllm.profile import VLLM
from mmroute.engines.vllm.versions import ERAS, find_version
from mmroute.families.matching import match_family
from mmroute.geometry import Overrides
from mmroute.hashing import HashedItem
from mmroute.kv_events import AllBlocksCleared, BlockRemoved, BlockStored, decode_events
from mmroute.model.resolve import resolve_files
from mmroute.model_directory import find_model
from mmroute.requests.items import IdentityForm, ImageFile
from mmroute.requests.request import Lora

PICTURE = png_url(64, 48)
LINES = read_lines(VECTORS / "versions" / "hashes.jsonl")


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["version"])
def test_hashes_are_those_of_the_version(line: dict[str, Any]) -> None:
    hashing = find_version(line["version"]).hashes
    for case in line["cases"]:
        keys = hashing.keys(
            [HashedItem(*item) for item in case["items"]],
            num_blocks=len(case["token_ids"]) // case["block_size"],
            block_size=case["block_size"],
            lora=Lora(case["lora"], "/path") if case["lora"] else None,
            cache_salt=case["cache_salt"],
        )
        hashes = hashing.hash(
            np.array(case["token_ids"], dtype=np.uint32),
            keys,
            algorithm="sha256",
            block_size=case["block_size"],
            seed="0",
        )
        assert hashes.hex() == case["hashes"]


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["version"])
def test_identities_are_those_of_the_version(line: dict[str, Any]) -> None:
    engine = find_engine(f"vllm=={line['version']}")
    found = []
    for mode in ("RGB", "RGBA"):
        size = ImageSize(3, 2)
        image = ImageFile(size, size, size, mode == "RGBA", mode, b"file")
        identity = engine.naming.identify(
            image,
            overrides=Overrides({}, {}),
            frames=None,
            model_id="org/model",
            form=IdentityForm.FILE,
        )
        assert identity is not None
        found.append(identity.value)
    assert found == line["identities"]


@pytest.fixture(scope="module", params=["0.30", "0.28", "0.23", "0.18", "0.15"])
def older(request: pytest.FixtureRequest) -> Normalizer:
    return Normalizer.from_pretrained("pixtral-12b-2409", backend=f"vllm=={request.param}")


def chat(older: Normalizer, *questions: str) -> Routing:
    system = {"role": "system", "content": "You answer in few words."}
    image = {"type": "image_url", "image_url": {"url": PICTURE}, "uuid": "cat"}
    texts = [{"type": "text", "text": question} for question in questions]
    user = {"role": "user", "content": [*texts, image]}
    return older.normalize(messages=[system, user], cache_salt="s")


def test_extra_keys_have_the_form_of_the_version(older: Normalizer) -> None:
    routing = chat(older, "What is this?")
    start = routing.placeholders[0].offset // 2
    by_identity = older.model.engine.release.version in ("0.18", "0.15")
    keys = routing.extra_keys(block_size=2)
    offset = routing.placeholders[0].offset - 2 * (start + 1)
    assert keys[0] == ("s",)
    assert keys[start + 1] == (("cat",) if by_identity else (("cat", offset),))
    hashes = hash_older_blocks(
        routing.token_ids, keys, algorithm="sha256", block_size=2, seed="0", random_root=False
    )
    assert routing.block_hashes(block_size=2, seed="0")[:] == hashes[:]


def test_hashes_of_an_earlier_turn_are_taken_over(older: Normalizer) -> None:
    first = chat(older, "What is this? " * 20)
    for later in (chat(older, "What is this? " * 20, "And this?"), chat(older, "Who is this? ")):
        fresh = later.block_hashes(block_size=2, seed="0")
        previous = first.block_hashes(block_size=2, seed="0")
        resumed = later.block_hashes(block_size=2, seed="0", previous=previous)
        same = sum(itertools.takewhile(bool, map(operator.eq, fresh, previous)))
        assert resumed[:] == fresh[:]
        assert resumed.reused == same > 0
    with pytest.raises(ValueError, match="previous must be BlockHashes"):
        first.block_hashes(seed="0", previous=["hash"])  # type: ignore[arg-type]  # on purpose


def test_a_seed_that_is_drawn_at_random_must_be_given() -> None:
    model = Normalizer.from_pretrained("pixtral-12b-2409", backend="vllm==0.28")
    routing = model.normalize(prompt="Hello there, " * 9)
    with pytest.raises(InexactError, match="PYTHONHASHSEED"):
        routing.block_hashes()
    assert len(routing.block_hashes(seed="0")) == len(routing.token_ids) // 16


@pytest.mark.parametrize("version", ["0.12", "0.12.99", "34", "1!0.33.0", "0", "new"])
def test_unknown_versions_are_refused(version: str) -> None:
    with pytest.raises(ModelError, match=r"0\.13\.0 to 0\.33\.0") as caught:
        find_engine(f"vllm=={version}")
    assert caught.value.reason is Reason.UNKNOWN_BACKEND


def test_the_message_names_the_version_that_there_is() -> None:
    for asked, there_is in (
        ("vllm==0,33.0", "vllm==0.33.0"),
        ("sglang==0,5.22", "sglang==0.5.22"),
        ("sglang==0.5.19", r"there are the releases 0\.5\.20 to 0\.5\.23"),
        ("sglang==0.5", r"there are the releases 0\.5\.20 to 0\.5\.23"),  # of several eras
    ):
        with pytest.raises(ModelError, match=there_is) as caught:
            find_engine(asked)
        assert caught.value.reason is Reason.UNKNOWN_BACKEND


def test_every_release_is_of_one_era() -> None:
    releases = [name for profile in ERAS for name in profile.release.proved | profile.release.read]
    assert len(releases) == len(set(releases))
    for name in releases:
        assert find_engine(f"vllm=={name}").release.version == name


@pytest.mark.parametrize("version", ["0.31", "0.32.0", "0.33.0"])
def test_the_newest_era_is_that_of_the_default(version: str) -> None:
    engine = find_version(version)
    assert engine.release.version == version
    assert engine.hashes == VLLM.hashes


def test_events_of_arrays_are_read_as_those_of_maps() -> None:
    stored = ["BlockStored", [b"one"], None, [1, 2], 2, None, "GPU", "sql", [["cat", 0]]]
    removed = ["BlockRemoved", [7], "GPU"]
    payload = msgspec.msgpack.encode([1.5, [stored, removed, ["AllBlocksCleared"]], 3])
    batch = decode_events(payload)
    assert batch.data_parallel_rank == 3
    assert batch.events == (
        BlockStored((b"one",), None, (1, 2), 2, None, "GPU", "sql", (("cat", 0),)),
        BlockRemoved((7,), "GPU"),
        AllBlocksCleared(),
    )


def test_a_family_may_be_refused_for_some_versions(small_model: Callable[[str], Path]) -> None:
    files = find_model(str(small_model("small-qwen2.5-vl")))
    table = {"vllm<0.33": {"refused": "its processor was another"}}
    family = match_family(files).model_copy(update={"engine": table})
    assert (
        resolve_files(files, family, find_engine("vllm==0.33.0"), "m").engine.release.version
        == "0.33.0"
    )
    with pytest.raises(ModelError, match=r"not covered for vllm 0\.32\.0: its processor") as caught:
        resolve_files(files, family, find_engine("vllm==0.32.0"), "m")
    assert caught.value.reason is Reason.UNKNOWN_FAMILY


@pytest.mark.parametrize("name", ["small-muse-glimmer", "small-cosmos3-edge"])
def test_families_that_a_running_engine_of_0_32_answers_otherwise(
    name: str, small_model: Callable[[str], Path]
) -> None:
    directory = small_model(name)
    Normalizer.from_pretrained(str(directory), backend="vllm==0.33.0")
    with pytest.raises(ModelError, match=r"not covered for vllm 0\.32\.0"):
        Normalizer.from_pretrained(str(directory), backend="vllm==0.32.0")


def test_what_a_family_adds_to_identities_came_with_0_33(
    small_model: Callable[[str], Path],
) -> None:
    """As a running engine of 0.32 has it; releases before 0.31 are not predicted."""
    flagged = small_model("small-h2ovl")
    image = {"type": "image_url", "image_url": {"url": PICTURE}}
    messages = [{"role": "user", "content": [image, {"type": "text", "text": "What is this?"}]}]

    def named(model: Path, version: str) -> str:
        loaded = Normalizer.from_pretrained(str(model), model_id="m", backend=f"vllm=={version}")
        ((_, identity),) = loaded.normalize(messages=messages).identified()
        return identity.value

    plain = small_model("small-qwen2.5-vl")
    assert named(flagged, "0.32.0") == named(plain, "0.32.0")
    assert named(flagged, "0.33.0") != named(plain, "0.33.0")


@pytest.mark.parametrize(
    ("version", "era"),
    [
        ("0.34.0", "0.33"),
        ("0.33.1rc1", "0.33"),
        ("0.29.7", "0.29 to 0.30"),
        ("0.15.9", "0.13 to 0.15"),
    ],
)
def test_a_version_that_is_not_known_has_the_nearest_era(version: str, era: str) -> None:
    backend = f"vllm=={version}"
    assert find_engine(backend).release.era == era
    load = functools.partial(Normalizer.from_pretrained, "pixtral-12b-2409", backend=backend)
    assert load().normalize(prompt="Hi").reason is Reason.UNPROVED_VERSION
    accepted = load(accept_version=version)
    newest = Normalizer.from_pretrained("pixtral-12b-2409")
    ours, theirs = accepted.normalize(prompt="Hi"), newest.normalize(prompt="Hi")
    assert ours.token_ids.tolist() == theirs.token_ids.tolist()
    assert not accepted.matching("vllm==0.99.0").normalize(prompt="Hi").exact


@pytest.mark.parametrize("written", ["vllm==v0.28.0", "vllm== 0.28.0", "sglang==v0.5.21"])
def test_a_version_in_another_spelling_is_no_unknown_one(written: str) -> None:
    """It would get the rules of an earlier one, though its own are known."""
    with pytest.raises(ModelError, match=r"did you mean '(vllm==0.28.0|sglang==0.5.21)'"):
        find_engine(written)
