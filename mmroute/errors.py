"""The reasons why there is no exact answer, and the exceptions that carry one."""

from __future__ import annotations

import contextlib
import reprlib
import sys
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why there is no exact answer. The values are stable: routers may branch on them.

    The first group occurs when a model is loaded (`ModelError`, `SpecError`). The second occurs for
    a single request (`Routing.reason`, and `reason` in the command line's answers). The others
    occur in the part of mmroute that their description names.
    """

    MODEL_NOT_FOUND = "model_not_found"
    """The model is not a directory, and could not be fetched from the hub."""
    MISSING_FILE = "missing_file"
    """A file that the family needs is not in the model directory."""
    MALFORMED_FILE = "malformed_file"
    """A file exists and does not have the form that it must have."""
    MISSING_CONFIG_FIELD = "missing_config_field"
    """A value is in none of the places that the family spec names, and it has no default."""
    INVALID_CONFIG_FIELD = "invalid_config_field"
    """A value was found and does not have the type that it must have."""
    CONTRADICTORY_CONFIG = "contradictory_config"
    """Two files of one model directory disagree on one value."""
    UNKNOWN_FAMILY = "unknown_family"
    """No family spec matches the model directory."""
    UNKNOWN_BACKEND = "unknown_backend"
    """There is no backend profile of that name."""
    INVALID_ENGINE_SETTING = "invalid_engine_setting"
    """The engine has no such option, or does not accept such a value for it."""
    UNSUPPORTED_ENGINE_SETTING = "unsupported_engine_setting"
    """An option of the engine changes token IDs or hashes in a way that mmroute does not cover."""
    INVALID_SPEC = "invalid_spec"
    """A family spec is malformed, or two of them match the same model."""
    TOKENIZER_UNVERIFIED = "tokenizer_unverified"
    """The engine would build this tokenizer in a way in which the family was not checked."""
    UNSUPPORTED_TOKENIZER = "unsupported_tokenizer"
    """A tokenizer's file is of a kind that is not supported, or a library for it is missing."""
    FAST_ENCODER_UNAVAILABLE = "fast_encoder_unavailable"
    """fastokens is required, and it is not installed or does not give the reference's IDs."""
    SELF_CHECK_FAILED = "tokenizer_self_check_failed"
    """The loaded model failed a check (`self_check`, ``mmroute doctor``)."""
    SPECIAL_TOKEN_SPLIT = "special_token_split"
    """A placeholder that must be one token is not one token of the loaded tokenizer."""

    INVALID_REQUEST = "invalid_request"
    """The request does not have the documented form, or the engine's API would not accept it."""
    UNSUPPORTED_FIELD = "unsupported_field"
    """The request has a field by which the engine changes the prompt, which mmroute cannot do."""
    UNSUPPORTED_MODALITY = "unsupported_modality"
    """The request has an item that is not covered: video, audio, an image for a text-only model."""
    IMAGE_COUNT_MISMATCH = "image_count_mismatch"
    """`images` does not have as many entries as the messages have image parts."""
    IMAGE_SIZE_UNKNOWN = "image_size_unknown"
    """The part of an item carries no size, and `images`, `videos` or `audios` gives none for it."""
    IMAGE_REFUSED = "image_refused"
    """The engine refuses an image of this size."""
    ITEM_UNREADABLE = "item_unreadable"
    """The bytes of a video or audio cannot be read: they are not strict base64, or frames have
    several sizes."""
    ITEM_COUNT_MISMATCH = "item_count_mismatch"
    """`videos` or `audios` does not have as many entries as the messages have parts for them."""
    ITEM_REFUSED = "item_refused"
    """The engine refuses a video or audio of these numbers."""
    IMAGE_UNREADABLE = "image_unreadable"
    """An image's bytes are not a picture that the engine can read: they are not strict base64, have
    no known format, or are cut short."""
    VIDEO_NOT_PREDICTABLE = "video_not_predictable"
    """A video's header does not tell exactly which frames the engine reads."""
    AUDIO_NOT_PREDICTABLE = "audio_not_predictable"
    """The header of an audio file does not tell exactly how many samples the engine decodes."""
    IMAGE_LINK_REFUSED = "image_link_refused"
    """A link leads to a host, an address or a file from which no item may be read."""
    IMAGE_LINK_FAILED = "image_link_failed"
    """The file behind a link could not be fetched in time, or is not on this machine."""
    ITEM_IDENTITY_UNKNOWN = "item_identity_unknown"
    """Block hashes depend on the content of a video or audio, and only its numbers are known."""
    IMAGE_IDENTITY_UNKNOWN = "image_identity_unknown"
    """Block hashes depend on the content of an image. Only its size is known, or the engine hashes
    its decoded pixels."""
    BLOCK_SIZE_UNKNOWN = "block_size_unknown"
    """Block hashes were requested without a block size, which the engine chooses for this model."""
    TOO_MANY_ITEMS = "too_many_images"
    """The request has more images, videos or audios than the engine accepts in one prompt."""
    PLACEHOLDER_COUNT_MISMATCH = "placeholder_count_mismatch"
    """The prompt has fewer placeholders than images, or the user typed more of them than the engine
    accepts."""
    CHAT_TEMPLATE_MISSING = "chat_template_missing"
    """The model directory has no chat template that this request could use."""
    CHAT_TEMPLATE_NOT_REPRODUCIBLE = "chat_template_not_reproducible"
    """The chat template reads the clock, draws at random or writes an address in memory."""
    CHAT_RENDERER_UNSUPPORTED = "chat_renderer_unsupported"
    """The engine renders this model's chats by its own code and not by a template."""
    CHAT_TEMPLATE_FAILED = "chat_template_failed"
    """The chat template refused the messages, or could not render them."""
    UNSUPPORTED_PROCESSOR_KWARGS = "unsupported_processor_kwargs"
    """The engine refuses the `mm_processor_kwargs`, or their effect was not proved."""
    TOKEN_OUT_OF_VOCABULARY = "token_out_of_vocabulary"
    """A token ID lies outside the model's vocabulary."""
    EMPTY_PROMPT = "empty_prompt"
    """The prompt has no token."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The expanded prompt does not fit the model's context."""
    ITEM_TOO_LARGE = "item_too_large"
    """An item may have more features than the encoder cache holds, or more pixels than memory."""
    BUDGET_EXCEEDED = "budget_exceeded"
    """The images of a request share a budget of tokens and exceed it. The engine's answer then
    depends on its processor cache."""
    FEATURE_POSITIONS_UNKNOWN = "feature_positions_unknown"
    """Pad values replace the feature positions of an image, and the server gives only its range."""
    METADATA_UNKNOWN = "metadata_unknown"
    """The metadata of items was requested, and it is not known for this family, or for a routing
    that a server answered or that was pickled."""
    REMOTE_UNAVAILABLE = "remote_unavailable"
    """The server of `mmroute.connect` cannot be reached, does not respond in time, or sends neither
    token IDs nor a reason."""
    REMOTE_INEXPRESSIBLE = "remote_inexpressible"
    """The request cannot be sent to a server: it has an image without its file or beside a prompt,
    or more than this server accepts."""
    ENGINE_DIFFERS = "engine_differs"
    """The worker announced other prompts than those that were predicted (`Watch`)."""
    UNPROVED_VERSION = "unproved_version"
    """The engine says a version that nobody compared, and it was not accepted."""

    ORACLE_UNAVAILABLE = "oracle_unavailable"
    """There is no such oracle, or it is not installed, not running, or not able to load the model
    (`mmroute.lab.parity`)."""

    BUNDLE_UNAVAILABLE = "bundle_unavailable"
    """A worker cannot be reached for its files, or its response broke off."""
    BUNDLE_REFUSED = "bundle_refused"
    """A worker sent files that are not a valid bundle; `fault` says why."""
    FLEET_DISAGREES = "fleet_disagrees"
    """The workers of one model hold different files, so no one tokenizer is right for all."""
    TOKENIZER_UNAVAILABLE = "tokenizer_unavailable"
    """No worker of a model sent its files (`mmroute.server.bundle`)."""

    MALFORMED_EVENTS = "malformed_events"
    """A payload is not a batch of the engine's KV events (`mmroute.kv_events`)."""


def _unpickled(kind: type[Exception], arguments: tuple[object, ...]) -> Exception:
    """Restore a pickled error without its __init__, whose arguments differ from class to class."""
    return kind.__new__(kind, *arguments)


class MmrouteError(Exception):
    """The base of errors that are caused by input from outside.

    For wrong arguments of the caller mmroute raises ValueError and TypeError.

    Attributes:
        reason: the machine-readable cause.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args), self.__dict__


class ModelError(MmrouteError):
    """A model cannot be loaded; the message says what was found, where, and what to do."""


class SpecError(MmrouteError):
    """A family spec is not usable."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.INVALID_SPEC, message)


class InexactError(MmrouteError):
    """One request has no exact answer.

    It is raised inside the request path and caught at its end, where it becomes an inexact
    `Routing`. A caller sees it when it reads token IDs or hashes of such a `Routing`, and when it
    reads an image by itself (`mmroute.read_image`).
    """


class NoTokenIdsError(InexactError, AttributeError):
    """An inexact routing lacks the attribute; for `hasattr` and debuggers it does not exist."""


class RandomSeedError(InexactError, ValueError):
    """Each engine process draws the seed of its block hashes, and nobody gave it."""


class EventsError(MmrouteError):
    """A payload is not a batch of KV events."""


class ModelIdWarning(UserWarning):
    """Block hashes depend on the engine's model string, and it was not given."""


class BlockSizeWarning(UserWarning):
    """The engine's block size was not given, and its default was used for block hashes."""


class RandomSeedWarning(UserWarning):
    """The engine draws the seed of its block hashes at random, so there are none."""


class EngineVersionWarning(UserWarning):
    """A server's engine has an unknown version, or one with other block hashes."""


def invalid(message: str) -> InexactError:
    """The error for a request that does not have the form that the engine's API accepts."""
    return InexactError(Reason.INVALID_REQUEST, message)


def image_refused(image: object, why: str) -> InexactError:
    """The error for an image that the engine refuses."""
    return InexactError(Reason.IMAGE_REFUSED, f"the engine refuses {image}: {why}")


def item_refused(item: object, why: str) -> InexactError:
    """The error for a video or audio that the engine refuses."""
    return InexactError(Reason.ITEM_REFUSED, f"the engine refuses {item}: {why}")


def argument_refused(name: str, value: object, wanted: str) -> InexactError:
    """The error for an argument of a processor that is refused, or that was not observed."""
    what = f"{name}: found {quoted(value)}, must be {wanted}"
    return InexactError(Reason.UNSUPPORTED_PROCESSOR_KWARGS, what)


def malformed(message: str) -> ModelError:
    """The error for a file that does not have the form that it must have."""
    return ModelError(Reason.MALFORMED_FILE, message)


def install_command(extra: str) -> str:
    """The command that installs an extra. It names no package index, where there is no mmroute."""
    return f"pip install '.[{extra}]' in a checkout of mmroute"


class MissingExtraError(ModuleNotFoundError):
    """A package is missing that an extra of mmroute brings."""

    def __init__(self, what: str, extra: str, name: str | None = None) -> None:
        super().__init__(f"{what}: {install_command(extra)}", name=name)


@contextlib.contextmanager
def needs_extra(extra: str, package: str, what: str) -> Iterator[None]:
    """A context in which a failed import becomes an error that names the remedy."""
    try:
        yield
    except ImportError as error:
        import importlib.util  # rarely needed

        if importlib.util.find_spec(package) is None:
            why = f"{package}, which is not installed: {install_command(extra)}"
        else:
            why = (
                f"{package}, which is installed and cannot be imported ({error}): "
                f"{install_command(extra)}, with --force-reinstall"
            )
        raise ModelError(Reason.UNSUPPORTED_TOKENIZER, f"{what} needs {why}") from error


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3
JSON_TYPES = {
    dict: "object", list: "array", str: "string", int: "number", float: "number",
    bool: "boolean", type(None): "null",
}  # fmt: skip
"""The types of JSON's values, in the words of error messages."""


def quoted(value: object) -> str:
    """A value as an error message quotes it, shortened if it is long.

    >>> quoted("x" * 1000)[:8], len(quoted("x" * 1000))
    ("'xxxxxxx", 80)
    """
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deep nesting
        return f"a {type(value).__name__}"


def json_type(value: object) -> str:
    """The type of a value in JSON's words, for error messages; of another value, its class.

    >>> [json_type(value) for value in ({}, [1], "x", 1.5, True, None, b"")]
    ['object', 'array', 'string', 'number', 'true', 'null', 'bytes']
    """
    if isinstance(value, bool):
        return str(value).lower()
    return JSON_TYPES.get(type(value), type(value).__name__)


def shortened(text: str) -> str:
    """A text as `quoted` has it, without the quotes.

    >>> shortened("0.33.0"), len(shortened("x" * 1000))
    ('0.33.0', 78)
    """
    return quoted(text)[1:-1]


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The end of a message about an unknown name: the nearest known one; empty if none is near.

    A name is near if difflib's ratio of the two is at least `cutoff`.

    >>> did_you_mean("imge", ["image", "video"])
    "; did you mean 'image'?"
    """
    near = nearest(name, known, cutoff=cutoff)
    return f"; did you mean {str(near)!r}?" if near is not None else ""


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that is most similar; None if no ratio of similarity reaches `cutoff`."""
    import difflib  # only to word an error

    # The ratio is twice what both share, of the characters of both. A client's name may be long.
    most = 2 / cutoff - 1 if cutoff else sys.maxsize
    known = [one for one in known if len(name) <= most * len(one)]
    return next(iter(difflib.get_close_matches(name, known, n=1, cutoff=cutoff)), None)


def problem(error: Any) -> str:
    """One of pydantic's errors in words: the field, the requirement, the value found."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    return f"{'.'.join(map(str, error['loc']))}: {message} (found {quoted(error['input'])})"
