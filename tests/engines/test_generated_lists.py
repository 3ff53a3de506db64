"""The lists that `tools/generate_lists.py` writes, and one kept by hand, against what is there."""

from __future__ import annotations

import inspect
import json

import pytest
from generate_lists import FILES, MMROUTE
from ports import read_versions
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from mmroute.chat.template_parameters import TRANSFORMERS
from mmroute.geometry.known_arguments import HARMFUL, HARMLESS_WHEN_FLAT
from mmroute.geometry.loader_names import CONFIG_FIELDS, OF_LOADERS


@pytest.mark.parametrize("name", FILES)
def test_a_list_is_of_the_versions_that_were_read(name: str) -> None:
    read = json.loads((MMROUTE / name).read_text(encoding="utf-8"))["read"]
    assert read == {package: read_versions()[package] for package in FILES[name][1]}


def test_the_parameters_are_those_of_the_installed_function() -> None:
    named = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    assert named.keys() - {"kwargs"} == TRANSFORMERS


def test_the_members_of_configurations_and_tokenizers_are_known_as_names_of_loaders() -> None:
    members = {name for kind in (PreTrainedConfig, PreTrainedTokenizerFast) for name in dir(kind)}
    seen = OF_LOADERS | HARMFUL | CONFIG_FIELDS.keys() | HARMLESS_WHEN_FLAT.keys()
    assert {name for name in members if not name.startswith("_")} <= seen
