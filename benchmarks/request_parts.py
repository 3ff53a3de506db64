"""What single requests cost: the usual one, and one with many pictures."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from benchmarks.page import Aim, Part, Subject, micro, table
from benchmarks.where import hash_shares, other_shares, tight_loop
from mmroute import ImageSize, Normalizer
from mmroute.batch import Request
from mmroute.bench.latency import Hashing, Latency, measure_latency
from mmroute.bench.mixes import MIXES, Mix, chat_request
from mmroute.bench.summary import Summary, summarize
from mmroute.engines.vllm.messages import parse_chat
from mmroute.request import RequestOptions
from mmroute.stages import Stage
from mmroute.tokenizers.hf import HfTokenizer

__all__ = [
    "XXHASH",
    "fastokens_alone",
    "measured",
    "pictures_part",
    "rendered",
    "request_part",
    "stage_rows",
    "timed_encoder",
]

XXHASH = Hashing("xxhash")
SHA256 = Hashing("sha256")
_OPTIONS = RequestOptions()
_STAGES = (Stage.RENDER, Stage.ENCODE, Stage.COUNT, Stage.PLACE, Stage.EXPAND, Stage.OTHER)


def measured(subject: Subject, mix: Mix, hashing: Hashing = XXHASH, repeat: int = 0) -> Latency:
    """A mix of which every request has an answer."""
    found = measure_latency(
        subject.normalizer, subject.reference, mix, repeat=repeat or subject.repeat, hashing=hashing
    )
    if not isinstance(found, Latency):
        raise SystemExit(f"{mix.name}: no request has an answer: {found[0].message}")
    return found


def rendered(normalizer: Normalizer, request: Request) -> str:
    """The text a chat is encoded from."""
    images: Sequence[ImageSize] = request.get("images", ())
    text = normalizer.model.chat.render(parse_chat(request["messages"], _OPTIONS), images, _OPTIONS)
    if not isinstance(text, str):
        raise SystemExit("this model's chat encoder gives token IDs and no text")
    return text


def timed_encoder(
    subject: Subject, mix: Mix, encode: Callable[[str], Any], repeat: int, first: int
) -> Summary:
    """Encoding the rendered text of fresh requests whole; each answer is compared first.

    Args:
        subject: the model.
        mix: the requests.
        encode: gives an array or a list of IDs.
        repeat: how many.
        first: the number of the first; those of other measurements must not come again.
    """
    tokenizer = subject.reference.model.tokenizer
    texts = [rendered(subject.reference, mix.request(first + n)) for n in range(repeat + 5)]
    times = []
    for text in texts:
        expected = tokenizer.encode(text, add_special_tokens=False).tolist()
        _ = text.encode()
        started = time.perf_counter_ns()
        found = encode(text)
        times.append(time.perf_counter_ns() - started)
        if list(found) != expected:
            raise SystemExit(f"{mix.name}: a peer's IDs differ; nothing is reported")
    return summarize(times[5:])


def tokenizers_alone(subject: Subject) -> Callable[[str], list[int]]:
    """What any router would call today."""
    tokenizer = subject.reference.model.tokenizer
    if not isinstance(tokenizer, HfTokenizer):
        raise SystemExit(f"{subject.name} has no tokenizer.json")
    backend = tokenizer.backend

    def encode(text: str) -> list[int]:
        ids: list[int] = backend.encode(text, add_special_tokens=False).ids
        return ids

    return encode


def fastokens_alone(subject: Subject) -> Callable[[str], Any] | None:
    """The same without a cache of texts; None where it does not fit."""
    if subject.whole is None:
        return None
    return partial(subject.whole.model.tokenizer.encode, add_special_tokens=False)


def stage_rows(latencies: Sequence[tuple[str, Latency]]) -> list[str]:
    """A table of stages, p50."""
    head = ("p50", *(stage.value for stage in _STAGES), "whole, p50", "p95", "p99")
    rows = []
    for name, found in latencies:
        cells = [micro(found.stages[s].p50) if s in found.stages else "-" for s in _STAGES]
        whole = found.whole
        rows.append((name, *cells, micro(whole.p50), micro(whole.p95), micro(whole.p99)))
    return table(head, rows)


def request_part(subject: Subject) -> Part:
    """1,000 words and four 1280x720 images."""
    subject.say("the request of 1,000 words and four images")
    mix = MIXES["pictures"]
    xx, sha = measured(subject, mix), measured(subject, mix, SHA256)
    peer = timed_encoder(subject, mix, tokenizers_alone(subject), subject.repeat, 5_000_000)
    unknown = Mix("new-words", "", partial(chat_request, words=1000, images=[(1280, 720)] * 4,
                                           known=False))  # fmt: skip
    new = measured(subject, unknown)
    new_peer = timed_encoder(subject, unknown, tokenizers_alone(subject), subject.repeat, 5_000_000)
    ratio, new_ratio = peer.p50 / xx.whole.p50, new_peer.p50 / new.whole.p50
    rest = xx.without_encoding.p50
    tight = tight_loop(subject.normalizer, mix.request(1))
    hashes = [found.stages[Stage.HASH].p50 for found in (xx, sha)]
    aims = [
        Aim("1,000 words, four 1280x720 images: token IDs, p50", micro(xx.whole.p50), "150 us",
            xx.whole.p50 <= 150),
        Aim("the same against `tokenizers` encoding the rendered text", f"{ratio:.1f}x faster",
            "10x", ratio >= 10),
        Aim("the same with words no encoder has seen", f"{micro(new.whole.p50)}, {new_ratio:.1f}x",
            "150 us, 10x", new.whole.p50 <= 150 and new_ratio >= 10),
        Aim("everything but encoding, same request",
            f"{micro(rest)} ({micro(tight.p50)} in a tight loop)", "50 us", rest <= 50),
        Aim("block hashes on top, xxhash", micro(hashes[0]), "60 us", hashes[0] <= 60),
        Aim("block hashes on top, sha256", micro(hashes[1]), "60 us", hashes[1] <= 60),
    ]  # fmt: skip
    lines = [
        (
            f"{xx.token_ids} token IDs, {xx.token_ids // 16} blocks of 16. Every text is new and "
            "is encoded whole; mmroute's caches of texts and of block hashes take no part (the "
            "texts are too short to be kept). Both encoders remember *words*: of ordinary English "
            "they have seen nearly all, so the last two lines show words that do not exist."
        ),
        "",
        *stage_rows([("ordinary English", xx), ("words never seen", new)]),
        *table(
            ("", "p50", "p95", "p99"),
            [
                ("mmroute, token IDs", *_three(xx.whole)),
                ("everything but encoding", *_three(xx.without_encoding)),
                ("the same, one request again and again", *_three(tight)),
                ("block hashes, xxhash", *_three(xx.stages[Stage.HASH])),
                ("block hashes, sha256", *_three(sha.stages[Stage.HASH])),
                ("`tokenizers`, the rendered text alone", *_three(peer)),
                ("mmroute, words never seen", *_three(new.whole)),
                ("`tokenizers`, words never seen", *_three(new_peer)),
            ],
        ),
        (
            "Where *other* and the block hashes go, each step measured alone in a tight loop, "
            "which is faster than between other work (the table of stages above also has its "
            "watches in *other*, some microseconds):"
        ),
        "",
        *other_shares(subject.normalizer, mix.request(1)),
        *hash_shares(subject.normalizer, mix.request(1)),
    ]
    return Part("1,000 words and four images", lines, aims)


def pictures_part(subject: Subject) -> Part:
    """Eight images of 4,096 tokens."""
    subject.say("eight images of 4,096 tokens")
    found = measured(subject, MIXES["documents"])
    times = sum(found.stages[s].p50 for s in (Stage.COUNT, Stage.PLACE, Stage.EXPAND))
    aim = Aim("8 images of 4,096 tokens: place, count and expand", micro(times), "100 us",
              times <= 100)  # fmt: skip
    lines = [
        f"100 words and eight 1792x1792 images: {found.token_ids} token IDs. No cache takes part.",
        "",
        *stage_rows([("8 x 4,096 tokens", found)]),
    ]
    return Part("Eight large images", lines, [aim])


def _three(times: Summary) -> tuple[str, str, str]:
    return micro(times.p50), micro(times.p95), micro(times.p99)
