"""What is said of every multimodal architecture of the engine."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from generate_families import PAGE, TEXT_PAGE, page, text_page

from mmroute.cli import main
from mmroute.cli.models import State, architectures
from mmroute.engines.vllm.architectures import register
from mmroute.errors import ModelError, Reason
from mmroute.model.resolve import resolve_model

# The class does not say so, but one kind of its layers has blocks of a size of their own. Sources:
# vLLM ``models/inkling/nvidia/sconv_swa_attn.py`` (`InklingConvState`),
# ``models/deepseek_v4/compressor.py`` (`CompressorStateCache`),
# ``models/deepseek_v41/attention.py`` (`DeepseekV4SWACache` without `bounded_replay`).
OWN_BLOCKS = {
    "InklingForConditionalGeneration",
    "DeepseekV4ForConditionalGeneration",
    "DeepseekV41ForCausalLM",
}


def test_hybrid_models_are_those_of_the_engine() -> None:
    """Of no others has the engine a block size that the router need not be told."""
    for one in architectures():
        for spec in one.families:
            assert spec.hybrid == (one.name in register().hybrid | OWN_BLOCKS), one.name


def test_modalities_are_those_of_the_engine() -> None:
    """One that a spec does not name is refused in the engine's name."""
    for one in architectures():
        for spec in one.families if one.name in register().modalities else ():
            named = {*spec.media, *spec.uncovered}
            assert named == register().modalities[one.name], (one.name, spec.family)


def test_every_architecture_is_covered_or_refused_for_one_reason() -> None:
    refused = [n for refusal in register().refused.values() for n in refusal.architectures]
    assert [name for name, count in Counter(refused).items() if count > 1] == []
    covered = {one.name for one in architectures() if one.families}
    assert {*refused, *covered} == {*register().names}
    assert covered.isdisjoint(refused)
    for one in architectures():
        assert one.modalities or one.state is not State.EXACT


def test_architectures_that_other_tables_of_the_engine_name_are_listed_too() -> None:
    """Those that its transformers backend runs, second names, and models for pooling."""
    listed = {one.name: one for one in architectures()}
    for name, family in {
        "Emu3ForConditionalGeneration": "emu3",
        "HunYuanVLForConditionalGeneration": "hunyuan-vl",
        "MuseGlimmerForCausalLM": "muse-glimmer",
    }.items():
        assert [spec.family for spec in listed[name].families] == [family]
    refused = register().refused
    assert listed["ColPaliForRetrieval"].refusal == refused["pooling"]


def test_the_pages_are_up_to_date() -> None:
    """After a change: python tools/generate_families.py."""
    assert PAGE.read_text(encoding="utf-8") == page()
    assert TEXT_PAGE.read_text(encoding="utf-8") == text_page()


def test_the_command_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["families", "--all", "--json"]) == 0
    listed = {one["architecture"]: one for one in json.loads(capsys.readouterr().out)}
    llama, molmo = listed["Llama4ForConditionalGeneration"], listed["MolmoForCausalLM"]
    assert (llama["state"], llama["modalities"]) == ("exact", ["image"])
    assert llama["families"] == [{"family": "llama-4", "package": "mmroute"}]
    assert molmo["state"] == "refused"
    assert molmo["why"]
    assert molmo["remedy"]
    assert main(["families", "--all"]) == 0
    assert "MolmoForCausalLM" in capsys.readouterr().out


def test_a_refused_model_says_why_and_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps({"model_type": "molmo", "architectures": ["MolmoForCausalLM"]})
    )
    with pytest.raises(ModelError) as caught:
        resolve_model(str(tmp_path))
    refusal = register().refused["remote_code"]
    assert caught.value.reason is Reason.UNKNOWN_FAMILY
    assert refusal.why in str(caught.value)
    assert refusal.remedy in str(caught.value)
