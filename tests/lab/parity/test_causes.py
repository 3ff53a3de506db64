"""Wrong settings, each planted once: the proposed line makes the answers equal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_recordings import MODEL, recorded
from oracle_helpers import RightEngine

from mmroute import Normalizer
from mmroute.engines.running import Evidence, RunningEngine, running_engine
from mmroute.engines.vllm.settings import VllmSettings
from mmroute.engines.vllm_rust.settings import RustSettings
from mmroute.kv_events import BlockStored, EventBatch
from mmroute.lab.engines.vllm.changes import changes
from mmroute.lab.engines.vllm.rehashing import told_by_events
from mmroute.lab.parity.cases import Case, Outcome, Served
from mmroute.lab.parity.causes import proposal
from mmroute.lab.parity.comparison import (
    Finding,
    Verdict,
    compare,
    compare_again,
    identities_of,
    our_outcome,
)
from mmroute.lab.parity.events.chains import Chains
from mmroute.lab.parity.events.comparison import Announced, compare_announced, compare_watched
from mmroute.lab.parity.media_cases import media_cases
from mmroute.model.resolve import resolve_model
from mmroute.model.resolved import ResolvedModel

AGREED = {Verdict.EQUAL, Verdict.REFUSED, Verdict.UNDECIDED}


def under(directory: Path, line: str, **more: Any) -> ResolvedModel:
    return resolve_model(str(directory), engine_settings=VllmSettings.from_args(line), **more)


def proposed(
    model: ResolvedModel, announced: Sequence[Announced], running: RunningEngine | None = None
) -> str:
    """The proposal for the events of an engine."""
    again = partial(compare_announced, all_announced=announced)
    told = told_by_events(model, Chains().enter([b for one in announced for b in one.batches]))
    return proposal(model, list(again(model)), again, changes, running=running, told=told)


def settings_in(sentence: str) -> str:
    return sentence.removeprefix("proposed: ").partition("; with these ")[0]


# What an engine with vLLM's own code was started with, and the setting that is proposed.
PLANTED = [
    ("model string", "--model ./small-qwen2.5-vl"),
    ("seed", "PYTHONHASHSEED=7"),
    ("algorithm and seed", "PYTHONHASHSEED=42 --prefix-caching-hash-algo xxhash"),
    ("block size", "--block-size 32"),
    ("content format", "--chat-template-content-format string"),
    ("identity algorithm", "--mm-hasher-algorithm sha256"),
    ("adapters in towers", "--enable-tower-connector-lora"),
    ("limits", "--limit-mm-per-prompt '{\"image\": 1}'"),
    ("longest context", "--max-model-len 48"),
    ("image pixels", "VLLM_MAX_IMAGE_PIXELS=5000"),
    ("batched tokens", "--trust-request-mm-kwargs"),
]


@pytest.mark.parametrize(("setting", "line"), PLANTED, ids=[p[0] for p in PLANTED])
def test_a_wrong_setting_is_proposed(
    setting: str, line: str, small_model: Callable[[str], Path]
) -> None:
    """The line that is proposed makes all answers equal."""
    announced, directory = recorded(setting), small_model(MODEL)
    sentence = proposed(under(directory, f"vllm serve {MODEL}"), announced)
    assert settings_in(sentence) == line
    words = line.split(" ", 1)
    front, options = words if "=" in words[0] and len(words) > 1 else ("", line)
    cured = f"vllm serve {MODEL} {options}" if "--" in options else f"{options} vllm serve {MODEL}"
    found = list(compare_announced(under(directory, f"{front} {cured}"), announced))
    assert {finding.verdict for finding in found} <= AGREED
    equal = sum(f.verdict in (Verdict.EQUAL, Verdict.REFUSED) for f in found)
    assert f"with these {equal} of {equal} would be equal" in sentence


@pytest.mark.parametrize(
    ("setting", "note"),
    [("chat template", "other tokens, from token 0"), ("processor arguments", "other counts")],
)
def test_what_no_change_explains_is_shown(
    setting: str, note: str, small_model: Callable[[str], Path]
) -> None:
    model, announced = under(small_model(MODEL), f"vllm serve {MODEL}"), recorded(setting)
    assert proposed(model, announced) == ""
    wrong = [f for f in compare_announced(model, announced) if f.verdict is Verdict.SILENT]
    assert wrong
    assert all(note in finding.note for finding in wrong)


def test_what_the_engine_does_not_have_is_taken_out(small_model: Callable[[str], Path]) -> None:
    line = f'PYTHONHASHSEED=3 vllm serve {MODEL} --chat-template "{{{{ messages }}}}"'
    sentence = proposed(under(small_model(MODEL), line), recorded("defaults"))
    assert set(settings_in(sentence).split(", ")) == {
        "take --chat-template out of the line",
        "take PYTHONHASHSEED out of the line",
    }


@pytest.mark.parametrize("told", [MODEL.upper(), MODEL.title()])
def test_a_model_string_in_another_letter_case_is_found(
    told: str, small_model: Callable[[str], Path], tmp_path: Path
) -> None:
    directory = tmp_path / told
    shutil.copytree(small_model(MODEL), directory)
    sentence = proposed(under(directory, f"vllm serve {told}"), recorded("defaults"))
    assert settings_in(sentence) == f"--model {MODEL}"


def test_a_model_string_is_found_in_the_files_of_the_model(
    changed_model: Callable[..., Path],
) -> None:
    def change(files: Any) -> None:
        files["config.json"]["_name_or_path"] = MODEL

    model = under(changed_model(MODEL, change), "vllm serve other")
    assert settings_in(proposed(model, recorded("defaults"))) == f"--model {MODEL}"


def test_an_algorithm_without_its_seed_is_found(small_model: Callable[[str], Path]) -> None:
    """No hash can be predicted, as each process of an engine draws such a seed at random."""
    with pytest.warns(UserWarning, match="PYTHONHASHSEED"):
        model = under(small_model(MODEL), f"vllm serve {MODEL} --prefix-caching-hash-algo xxhash")
    sentence = proposed(model, recorded("seed"))
    assert settings_in(sentence) == "PYTHONHASHSEED=7 --prefix-caching-hash-algo sha256"


def test_another_era_is_found(small_model: Callable[[str], Path]) -> None:
    """The first block under a salt was hashed otherwise before vLLM 0.31."""
    model = under(small_model(MODEL), f"vllm serve {MODEL}", backend="vllm==0.30.0")
    salted = [one for one in recorded("defaults") if one.case.request.get("cache_salt")]
    assert settings_in(proposed(model, salted)) == "--backend vllm==0.33.0"


# Source: vLLM ``v1/engine/input_processor.py``.
REFUSALS = {
    "The decoder prompt (length 70) is longer than the maximum model length of 64. Make sure that":
        "--max-model-len 64",
    "The encoder prompt (length 70) is longer than the maximum model length of 64.": "",
}  # fmt: skip


@pytest.mark.parametrize(("refusal", "setting"), REFUSALS.items())
def test_an_encoder_that_is_too_small_is_no_shorter_context(
    refusal: str, setting: str, small_model: Callable[[str], Path]
) -> None:
    case = Case("long", "recorded", {"prompt_token_ids": [5] * 70})
    model = under(small_model(MODEL), f"vllm serve {MODEL}")
    assert settings_in(proposed(model, [Announced(case, served=Served(refusal))])) == setting


def test_a_longer_context_is_found_by_what_the_server_tells(
    small_model: Callable[[str], Path],
) -> None:
    model = under(small_model(MODEL), "vllm serve x --max-model-len 64")
    ids = np.array([5] * 70, np.uint32)
    stored = [announced_as(under(small_model(MODEL), "vllm serve x"), ids)]
    running = RunningEngine("vllm", "0.33.0", Evidence.PROVED, None, max_model_len=128)
    (finding,) = compare_announced(model, stored)
    assert finding.verdict is Verdict.UNNEEDED
    assert settings_in(proposed(model, stored, running)) == "--max-model-len 128"
    assert proposed(model, stored) == ""


def announced_as(model: ResolvedModel, ids: np.ndarray[Any, Any]) -> Announced:
    """A prompt as an engine with the settings of a model announces it."""
    case = Case("ids", "own", {"prompt_token_ids": ids.tolist()})
    hashes = Normalizer(model).normalize(prompt_token_ids=ids.tolist()).block_hashes()
    stored = BlockStored(
        block_hashes=tuple(hashes.event_ints()), parent_block_hash=None, lora_id=None,
        token_ids=tuple(ids[: len(hashes) * 16].tolist()), block_size=16, medium="GPU",
        lora_name=None,
    )  # fmt: skip
    return Announced(case, (EventBatch(0.0, (stored,)),), Served(None, ids))


def test_a_larger_limit_is_found_by_what_the_engine_answers(
    small_model: Callable[[str], Path],
) -> None:
    """The other limits stay, as a later value of the option replaces an earlier one."""
    given = f"""vllm serve {MODEL} --limit-mm-per-prompt '{{"image": 1, "video": 3}}'"""
    sentence = proposed(under(small_model(MODEL), given), recorded("defaults"))
    assert settings_in(sentence) == """--limit-mm-per-prompt '{"image": 2, "video": 3}'"""


def test_two_wrong_settings_are_found_one_after_the_other(
    small_model: Callable[[str], Path],
) -> None:
    given = f"PYTHONHASHSEED=1 vllm serve {MODEL} --block-size 32"
    sentence = proposed(under(small_model(MODEL), given), recorded("content format"))
    assert settings_in(sentence) == (
        "--block-size 16 --chat-template-content-format string, take PYTHONHASHSEED out of the line"
    )


def test_watching_tells_how_blocks_are_hashed(small_model: Callable[[str], Path]) -> None:
    model = under(small_model(MODEL), f"vllm serve {MODEL}")
    batches = [batch for one in recorded("algorithm and seed") for batch in one.batches]
    again = partial(compare_watched, batches=batches)
    found = list(again(model))
    assert [finding.verdict for finding in found] == [Verdict.SILENT] * 4
    told = told_by_events(model, Chains().enter(batches))
    sentence = proposal(model, found, again, changes, told=told)
    assert settings_in(sentence) == "PYTHONHASHSEED=42 --prefix-caching-hash-algo xxhash"
    right = under(small_model(MODEL), f"PYTHONHASHSEED=42 vllm serve {MODEL} "
                  "--prefix-caching-hash-algo xxhash")  # fmt: skip
    assert {finding.verdict for finding in again(right)} == {Verdict.EQUAL}


# An oracle that tells the identities of items, and one that is the other frontend.


class NamingEngine(RightEngine):
    """An oracle that tells the identities of items."""

    def answer(self, case: Case) -> Outcome:
        return replace(our_outcome(self.model, case), identities=identities_of(self.model, case))


def of_oracle(
    model: ResolvedModel, oracle: RightEngine, *cases: Case, running: RunningEngine | None = None
) -> tuple[list[Finding], str]:
    findings = list(compare(model, oracle, cases))
    again = partial(compare_again, findings=findings)
    return findings, settings_in(proposal(model, findings, again, changes, running=running))


@pytest.mark.parametrize("told", ["Some/Name", ""])
def test_the_string_that_the_server_tells_is_tried(
    told: str, small_model: Callable[[str], Path]
) -> None:
    model = resolve_model(str(small_model(MODEL)))
    picture = {
        "messages": [{"role": "user", "content": [{"type": "image"}]}],
        "images": [{"width": 64, "height": 48}],
    }
    running = replace(running_engine("vllm", "0.33.0"), model_string=told)
    oracle = NamingEngine(resolve_model(str(small_model(MODEL)), model_id="Some/Name"))
    (finding,), setting = of_oracle(model, oracle, Case("c", "test", picture), running=running)
    assert "other identities" in finding.note
    assert setting == ("--model Some/Name" if told else "")


def test_identities_of_videos_are_compared(small_model: Callable[[str], Path]) -> None:
    model = resolve_model(str(small_model(MODEL)))
    video = list(media_cases(model))[1].request["messages"][0]["content"][0]
    # This model's template ignores videos: the text has the placeholder.
    typed = {"type": "text", "text": "<|vision_start|><|video_pad|><|vision_end|>"}
    case = Case("v", "video", {"messages": [{"role": "user", "content": [video, typed]}]})
    renamed = resolve_model(str(small_model(MODEL)), model_id="b")
    for other, verdict in ((model, Verdict.EQUAL), (renamed, Verdict.SILENT)):
        (finding,) = compare(model, NamingEngine(other), [case])
        assert finding.verdict is verdict


@pytest.mark.parametrize("rust", [0, 1])
def test_the_other_frontend(rust: int, small_model: Callable[[str], Path]) -> None:
    directory = str(small_model("small-phi-3-vision"))
    ours, theirs = (
        resolve_model(directory, engine_settings=settings)
        for settings in (VllmSettings(), RustSettings())[:: 1 - 2 * rust]
    )
    # Texts of several parts are joined by a line break, or by nothing.
    parts = [{"type": "text", "text": word} for word in ("one", "two")]
    case = Case("c", "test", {"messages": [{"role": "tool", "tool_call_id": "c", "content": "a"},
        {"role": "assistant", "content": parts},
        {"role": "user", "content": "Hi"}]})  # fmt: skip
    _, setting = of_oracle(ours, RightEngine(theirs), case)
    assert setting == f"VLLM_USE_RUST_FRONTEND={1 - rust}"


def test_a_switch_and_a_file_of_the_template(
    changed_model: Callable[..., Path], tmp_path: Path
) -> None:
    def add_switch(files: dict[str, Any]) -> None:
        files["chat_template.json"]["chat_template"] += (
            "{% if enable_thinking is false %}<think>{% endif %}"
        )

    directory = changed_model(MODEL, add_switch)
    case = Case("c", "test", {"messages": [{"role": "user", "content": "What?"}]})
    model = under(directory, f"vllm serve {MODEL}")
    switch = "--default-chat-template-kwargs '{\"enable_thinking\": false}'"
    off = under(directory, f"vllm serve {MODEL} {switch}")
    assert of_oracle(model, RightEngine(off), case)[1] == switch
    copied = tmp_path / "model"
    shutil.copytree(directory, copied)
    source = json.loads((copied / "chat_template.json").read_text())["chat_template"]
    (copied / "other.jinja").write_text("Other. " + source)
    other = under(copied, f"vllm serve {MODEL} --chat-template {copied / 'other.jinja'}")
    model = under(copied, f"vllm serve {MODEL}")
    assert of_oracle(model, RightEngine(other), case)[1] == (
        f"--chat-template {copied / 'other.jinja'}"
    )
