"""Compute what vLLM's detokenizer and stop checks make of outputs, step by step.

Run it where vLLM is installed (a CPU is enough), from the repository's root:

    python tools/generate_decode.py [MODEL ...]

Two kinds of cases are left out, and counted: prompts that end inside a character, and outputs at
which vLLM's stream starts anew because its decoder took back what it had given. There vLLM repeats
or loses text (``docs/text.md``).
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from engine import meta, parser_of, refuse_other_versions, write_files
from vector_files import VECTORS, requests_of, write_lines

FOLDER = VECTORS / "decode"
LONGEST_MODEL = 1 << 20


def main() -> None:
    """Write the files."""
    arguments = parser_of(
        __doc__, sorted(path.stem for path in FOLDER.glob("*.jsonl"))
    ).parse_args()
    refuse_other_versions()
    for model in arguments.models:
        with tempfile.TemporaryDirectory() as directory:
            fingerprint = write_files(model, Path(directory))
            detokenizer = Detokenizer(Path(directory))
        path = FOLDER / f"{model}.jsonl"
        lines = list(detokenizer.answers(requests_of(path)))
        write_lines(path, [meta(model, fingerprint=fingerprint), *lines])
        print(f"left out: {dict(detokenizer.left_out)}")


class Detokenizer:
    """vLLM's own: the classes its output processor and its scheduler use."""

    def __init__(self, directory: Path) -> None:
        from vllm.tokenizers import get_tokenizer

        # A repository with both is read in the Hugging Face mode here.
        self.is_mistral = not (directory / "tokenizer.json").is_file()
        mode = "mistral" if self.is_mistral else "auto"
        self.tokenizer: Any = get_tokenizer(str(directory), tokenizer_mode=mode)
        self.left_out: Counter[str] = Counter()

    def answers(self, cases: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """The cases with what vLLM makes of them."""
        for case in cases:
            if self.is_mistral:
                # Not skipping, vLLM 0.33.0 leaves out special tokens of Mistral's all the same,
                # and loses characters of several tokens.
                case["skip_special_tokens"] = True
            prompt = self.tokenizer.decode(
                case["prompt_token_ids"], skip_special_tokens=case["skip_special_tokens"]
            )
            if prompt.endswith("\ufffd"):
                self.left_out["prompt ends inside a character"] += 1
                continue
            expect = self._answer(case)
            if expect is not None:
                yield {**case, "expect": expect}

    def _answer(self, case: dict[str, Any]) -> dict[str, Any] | None:
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.engine import FinishReason
        from vllm.v1.engine.detokenizer import IncrementalDetokenizer
        from vllm.v1.request import Request

        core_request = _core_request(case)
        request = Request.from_engine_core_request(core_request, None)
        detokenizer: Any = IncrementalDetokenizer.from_new_request(self.tokenizer, core_request)
        stream = getattr(detokenizer, "stream", None)
        scheduler: Any = SimpleNamespace(max_model_len=LONGEST_MODEL)
        deltas, reason = [], None
        for step in case["steps"]:
            ids, _ = Scheduler._update_request_with_output(scheduler, request, list(step))
            finish = request.get_finished_reason()
            stop_string = detokenizer.update(ids, finish == FinishReason.STOP)
            if getattr(detokenizer, "stream", None) is not stream:
                self.left_out["stream started anew"] += 1
                return None
            reason = stop_string or request.stop_reason
            finish = FinishReason.STOP if stop_string else finish
            deltas.append(detokenizer.get_next_output_text(finish is not None, delta=True))
            if finish is not None:
                break
        return {
            "deltas": deltas,
            "text": detokenizer.get_next_output_text(True, delta=False),
            "token_ids": list(detokenizer.output_token_ids),
            "finish_reason": str(finish),
            "stop_reason": reason,
        }


def _core_request(case: dict[str, Any]) -> Any:
    from vllm import SamplingParams
    from vllm.v1.engine import EngineCoreRequest

    params = SamplingParams(
        stop=case["stop"],
        stop_token_ids=case["stop_token_ids"],
        include_stop_str_in_output=case["include_stop_str_in_output"],
        min_tokens=case["min_tokens"],
        max_tokens=sum(map(len, case["steps"])),
        skip_special_tokens=case["skip_special_tokens"],
    )
    params.update_from_generation_config({}, case["eos_token_id"])
    return EngineCoreRequest(
        request_id="0",
        prompt_token_ids=case["prompt_token_ids"],
        mm_features=None,
        sampling_params=params,
        pooling_params=None,
        arrival_time=0.0,
        lora_request=None,
        cache_salt=None,
        data_parallel_rank=None,
    )


if __name__ == "__main__":
    main()
