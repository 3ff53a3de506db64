"""The lists that `tools/generate_lists.py` writes, and one kept by hand, against what is there."""

from __future__ import annotations

import inspect
import json

import pytest
from generate_lists import FILES, MMROUTE
from ports import read_versions
from transformers import PreTrainedTokenizerBase

from mmroute.chat.template_parameters import TRANSFORMERS


@pytest.mark.parametrize("name", FILES)
def test_a_list_is_of_the_versions_that_were_read(name: str) -> None:
    read = json.loads((MMROUTE / name).read_text(encoding="utf-8"))["read"]
    assert read == {package: read_versions()[package] for package in FILES[name][1]}


def test_the_parameters_are_those_of_the_installed_function() -> None:
    named = inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters
    assert named.keys() - {"kwargs"} == TRANSFORMERS
