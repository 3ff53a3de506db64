"""Lines that are written for a shell: what is read as the shell does, and what is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mmroute import ModelError, Reason
from mmroute.engines.vllm.settings import VllmSettings

WHOLE = VllmSettings.from_args("PYTHONHASHSEED=0 vllm serve org/m --block-size 32")


@pytest.mark.parametrize(
    "line",
    [
        "export PYTHONHASHSEED=0; vllm serve org/m --block-size 32",
        "export PYTHONHASHSEED=0 && exec vllm serve org/m --block-size 32",
        "export PYTHONHASHSEED=0\nvllm serve org/m --block-size 32",
        "# don't stop\nexport PYTHONHASHSEED=0 # a seed\nvllm serve org/m \\\n --block-size 32 # x",
        "# no end \\\nPYTHONHASHSEED=0 vllm serve org/m --block-size 32",
        'PYTHONHASHSEED=0 vllm serve "org/\\\nm" --block-size 32',
        "PYTHONHASHSEED=0 vllm serve org/m \\\r\n  --block-size 32 \\",
        "env PYTHONHASHSEED=0 vllm serve org/m --block-size 32",
        "sudo PYTHONHASHSEED=0 nohup vllm serve org/m --block-size 32",
    ],
)
def test_what_only_wraps_the_command_is_read(line: str) -> None:
    assert VllmSettings.from_args(line) == WHOLE


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("PYTHONHASHSEED=0 && vllm serve org/m", "PYTHONHASHSEED=0 &&' sets no variable of the"),
        ("PYTHONHASHSEED=0; vllm serve org/m", "or `export`"),
        ("A=1; export PYTHONHASHSEED=0; vllm serve org/m", "write A=1 in front of `vllm serve`"),
        ("PYTHONHASHSEED=0 sudo vllm serve org/m", "sudo drops the variables in front of it"),
        ("cd /srv && vllm serve org/m", "'cd' stands in front of the engine's command"),
        ("uv run vllm serve org/m", "'uv' stands in front of the engine's command"),
        ("bash -c 'exec vllm serve org/m'", "'bash' stands in front of the engine's command"),
        ("docker run -e A=0 vllm/vllm-openai:v0.33.0 --model org/m", "the variables (-e) as NAME="),
        ("vllm/vllm-openai:v0.33.0 --model org/m", "the arguments behind the name of the image"),
        ("vllm serve org/m > log 2>&1", "'>' is for a shell"),
        ("vllm serve org/m &", "'&' is for a shell"),
        ("vllm serve org/m; echo", "';' is for a shell"),
        ("vllm serve org/m # note\n--block-size 32", "a comment (#) ends a command"),
        ("vllm serve org/m \\\n# note \\\n--block-size 32", "a comment (#) ends a command"),
        ("vllm serve org/m \\ \n--block-size 32", "a space follows it"),
        ("vllm serve org/m \\ --block-size 32", "a space follows it"),
        ("vllm serve $MODEL", "'$MODEL', which only a shell expands"),
        ("vllm serve org/m --block-size ${SIZE}", "'${SIZE}', which only a shell expands"),
        ('PYTHONHASHSEED="$SEED" vllm serve org/m', "'$SEED', which only a shell expands"),
        ("$(cat engine.sh)", "between double quotes"),
        ('vllm serve org/m "$@"', "'$@', which only a shell expands"),
        ("vllm serve “org/m”", "typographic quote"),
        ("vllm serve \u2013block-size=32", "typographic dash"),
        ("--mm-processor-kwargs {max_pixels: 1}", "a shell takes quotes away"),
        ("--hf-overrides {a:1}", "--hf-overrides '{\"name\": 1}'"),
        ("--mm-processor-kwargs \"{'a': 1}\"", 'JSON has double quotes (")'),
        ("--mm-processor-kwargs '{“a”: 1}'", "typographic quotes"),
        ("--mm-processor-kwargs '{\"a\": }'", "Expecting value"),
    ],
)
def test_each_mistake_has_words_of_its_own(line: str, words: str) -> None:
    with pytest.raises(ModelError) as refused:
        VllmSettings.from_args(line)
    assert refused.value.reason is Reason.INVALID_ENGINE_SETTING
    assert words in str(refused.value)


@pytest.mark.parametrize(
    ("line", "settings"),
    [
        ("vllm serve org/m#2 --port $PORT", {"model": "org/m#2"}),
        ("HF_TOKEN=$TOKEN vllm serve org/m", {"model": "org/m"}),
        ("--chat-template '$x # & ;'", {"chat_template": "$x # & ;"}),
        ("--chat-template \"{{ 'a' | b }}\"", {"chat_template": "{{ 'a' | b }}"}),
        ("--chat-template '{% if a %}“b”'", {"chat_template": "{% if a %}“b”"}),
        ("--served-model-name 'a;b' 'c > d'", {"served_names": ("a;b", "c > d")}),
        ("org/m --model-impl vllm", {"model": "org/m"}),
        ("vllm serve ./m.gguf", {"model": "./m.gguf"}),
    ],
)
def test_what_a_shell_leaves_alone_is_left_alone(line: str, settings: dict[str, object]) -> None:
    found = VllmSettings.from_args(line)
    assert {name: getattr(found, name) for name in settings} == settings


@pytest.mark.parametrize("name", ["engine.sh", "@engine.sh", "args.txt", "a/b.env", "a.json"])
@pytest.mark.parametrize("command", ["", "vllm serve ", "--model "])
def test_the_name_of_a_file_is_no_model(name: str, command: str) -> None:
    remedy = f'--engine-args "$(cat {name.removeprefix("@")})"'
    with pytest.raises(ModelError) as refused:
        VllmSettings.from_args(command + name)
    assert refused.value.reason is Reason.INVALID_ENGINE_SETTING
    assert remedy in str(refused.value)


def test_a_file_of_any_name_is_no_model_and_a_directory_is(tmp_path: Path) -> None:
    file, directory = tmp_path / "engine", tmp_path / "model.json"
    file.write_text("vllm serve org/m")
    directory.mkdir()
    with pytest.raises(ModelError, match=r"is a file, and no model: .*cat .*engine"):
        VllmSettings.from_args(str(file))
    assert VllmSettings.from_args(str(directory)).model == str(directory)
    assert VllmSettings.from_args("org/" + "m" * 5000).model == "org/" + "m" * 5000


def test_a_configuration_file_has_its_own_option() -> None:
    with pytest.raises(ModelError, match=r"--engine-config vllm\.yaml"):
        VllmSettings.from_args("vllm.yaml")
