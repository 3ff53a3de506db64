"""The lists that `tools/generate_lists.py` writes, and some kept by hand, against what is there."""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path

import pytest
import transformers
from generate_lists import FILES, MMROUTE
from ports import read_versions
from transformers import PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.processing_utils import AudioKwargs, ImagesKwargs, TextKwargs, VideosKwargs

from mmroute.chat.template_parameters import TRANSFORMERS
from mmroute.geometry.known_arguments import (
    HARMFUL,
    HARMLESS_WHEN_FLAT,
    OF_ALL_VIDEO_PROCESSORS,
    OF_SOME_VIDEO_PROCESSORS,
    TYPED_NAMES,
)
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


def test_the_typed_names_are_those_of_all_processors() -> None:
    kinds = (TextKwargs, ImagesKwargs, VideosKwargs, AudioKwargs)
    assert {name for kind in kinds for name in kind.__annotations__} == TYPED_NAMES


def test_the_names_that_some_video_processors_read_are_those_of_their_sources() -> None:
    # The modules cannot be imported without torch.
    sources = Path(transformers.__file__).parent.glob("models/*/video_processing_*.py")
    read = {
        field.target.id
        for source in sources
        for kind in ast.parse(source.read_text(encoding="utf-8")).body
        if isinstance(kind, ast.ClassDef) and kind.name.endswith("Kwargs")
        for field in kind.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    }
    assert read - OF_ALL_VIDEO_PROCESSORS == OF_SOME_VIDEO_PROCESSORS
