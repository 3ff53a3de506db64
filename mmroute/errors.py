"""Every reason mmroute can give, and the exceptions that carry one."""

from __future__ import annotations

import contextlib
import importlib.util
import reprlib
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any


class Reason(StrEnum):
    """Why there is no exact answer. The values are stable: routers may branch on them.

    The first group is given when a model is loaded (`ModelError`, `SpecError`), the second
    for a single request (`Routing.reason`, and `reason` in the command line's answers), the others
    by a part of mmroute that is named there.
    """

    MODEL_NOT_FOUND = "model_not_found"
    """The model is neither a directory nor to be had from the hub."""
    MISSING_FILE = "missing_file"
    """A file the family needs is not in the model directory."""
    MALFORMED_FILE = "malformed_file"
    """A file is there and cannot be read as what it should be."""
    MISSING_CONFIG_FIELD = "missing_config_field"
    """A value is in none of the places the family spec names, and it has no default."""
    INVALID_CONFIG_FIELD = "invalid_config_field"
    """A value was found and is not of the kind it must be."""
    CONTRADICTORY_CONFIG = "contradictory_config"
    """Two files of one model directory disagree on one value."""
    UNKNOWN_FAMILY = "unknown_family"
    """No family spec matches the model directory."""
    UNKNOWN_BACKEND = "unknown_backend"
    """There is no backend profile of that name."""
    INVALID_ENGINE_SETTING = "invalid_engine_setting"
    """There is no such option of the engine, or not with such a value."""
    UNSUPPORTED_ENGINE_SETTING = "unsupported_engine_setting"
    """The engine runs with an option that changes token IDs or hashes in a way not covered."""
    INVALID_SPEC = "invalid_spec"
    """A family spec is malformed, or two of them match the same model."""
    TOKENIZER_UNVERIFIED = "tokenizer_unverified"
    """The engine would build this tokenizer in a way the family was not checked with."""
    UNSUPPORTED_TOKENIZER = "unsupported_tokenizer"
    """A tokenizer's file is of a kind that is not supported, or a library for it is missing."""
    FAST_ENCODER_UNAVAILABLE = "fast_encoder_unavailable"
    """fastokens must encode, and it is not installed, or not equal to the reference."""
    SELF_CHECK_FAILED = "tokenizer_self_check_failed"
    """The model was loaded, and does not do what it must (`self_check`, ``mmroute doctor``)."""
    SPECIAL_TOKEN_SPLIT = "special_token_split"
    """A placeholder that must be one token is not one token of the loaded tokenizer."""

    INVALID_REQUEST = "invalid_request"
    """The request is not of the documented form, or the engine's API would not accept it."""
    UNSUPPORTED_FIELD = "unsupported_field"
    """The request has a field by which the engine changes the prompt, and mmroute does not."""
    UNSUPPORTED_MODALITY = "unsupported_modality"
    """The request has an item (video, audio, an image for a text-only model) not covered."""
    IMAGE_COUNT_MISMATCH = "image_count_mismatch"
    """`images` and the image parts of the messages are not equally many."""
    IMAGE_SIZE_UNKNOWN = "image_size_unknown"
    """An image part carries no size, and none was given for it."""
    IMAGE_REFUSED = "image_refused"
    """The engine refuses an image of this size."""
    ITEM_UNREADABLE = "item_unreadable"
    """A video's or a recording's bytes cannot be had: no strict base64, or frames of several
    sizes."""
    ITEM_COUNT_MISMATCH = "item_count_mismatch"
    """`videos` or `audios`, and the parts of the messages that take them, are not equally many."""
    ITEM_REFUSED = "item_refused"
    """The engine refuses a video or a recording of these numbers."""
    IMAGE_UNREADABLE = "image_unreadable"
    """An image's bytes are no picture the engine can read: no strict base64, no known format,
    or cut short."""
    VIDEO_NOT_PREDICTABLE = "video_not_predictable"
    """A video's header does not tell exactly which frames the engine reads."""
    AUDIO_NOT_PREDICTABLE = "audio_not_predictable"
    """A recording's header does not tell exactly how many samples the engine decodes."""
    IMAGE_LINK_REFUSED = "image_link_refused"
    """A link to an image leads where no image may be fetched from."""
    IMAGE_LINK_FAILED = "image_link_failed"
    """A link to an image was not answered with the image in time."""
    ITEM_IDENTITY_UNKNOWN = "item_identity_unknown"
    """Block hashes cover which video or recording it was, and only its numbers are known."""
    IMAGE_IDENTITY_UNKNOWN = "image_identity_unknown"
    """Block hashes cover which image it was, and only its size is known, or the engine hashes its
    decoded pixels."""
    BLOCK_SIZE_UNKNOWN = "block_size_unknown"
    """Block hashes were asked for without a block size, and the engine chooses the model's own."""
    TOO_MANY_ITEMS = "too_many_images"
    """More images, videos or recordings than the engine takes in one prompt."""
    PLACEHOLDER_COUNT_MISMATCH = "placeholder_count_mismatch"
    """The prompt has fewer placeholders than images (or typed more of them than the engine
    accepts)."""
    CHAT_TEMPLATE_MISSING = "chat_template_missing"
    """The model directory has no chat template that this request could use."""
    CHAT_TEMPLATE_NOT_REPRODUCIBLE = "chat_template_not_reproducible"
    """The chat template reads the clock or draws at random: two renderings may differ."""
    CHAT_RENDERER_UNSUPPORTED = "chat_renderer_unsupported"
    """The engine renders this model's chats by code of its own, not by a template."""
    CHAT_TEMPLATE_FAILED = "chat_template_failed"
    """The chat template refused the messages, or could not render them."""
    UNSUPPORTED_PROCESSOR_KWARGS = "unsupported_processor_kwargs"
    """`mm_processor_kwargs` the engine refuses, or whose effect was not proved."""
    TOKEN_OUT_OF_VOCABULARY = "token_out_of_vocabulary"
    """A token ID lies outside the model's vocabulary."""
    EMPTY_PROMPT = "empty_prompt"
    """There is not one token in the prompt."""
    PROMPT_TOO_LONG = "prompt_too_long"
    """The expanded prompt does not fit the model's context."""
    ITEM_TOO_LARGE = "item_too_large"
    """One image has more features than the engine's encoder cache is sure to hold."""
    BUDGET_EXCEEDED = "budget_exceeded"
    """The images of a request share a budget of tokens and exceed it: what the engine makes of them
    depends on its processor cache."""
    FEATURE_POSITIONS_UNKNOWN = "feature_positions_unknown"
    """Pad values replace the feature positions of an image, and a server told only its range."""
    REMOTE_UNAVAILABLE = "remote_unavailable"
    """The server of `mmroute.connect` cannot be reached, is late, or says neither what the token
    IDs are nor why there are none."""
    REMOTE_INEXPRESSIBLE = "remote_inexpressible"
    """The request has something that no server can be asked: an image without its file, or beside
    a prompt; or more than this server takes."""

    ORACLE_UNAVAILABLE = "oracle_unavailable"
    """Nobody can be asked for the right answers: there is no such oracle, or it is not installed,
    not running, or not able to load the model (`mmroute.parity`)."""

    BUNDLE_UNAVAILABLE = "bundle_unavailable"
    """A worker cannot be asked for its files, or its answer broke off (`mmroute.bundle`)."""
    BUNDLE_REFUSED = "bundle_refused"
    """What a worker sent as its files is not what a bundle may be; `fault` says in which way."""
    FLEET_DISAGREES = "fleet_disagrees"
    """The workers of one model hold different files: no one tokenizer is right for all."""
    TOKENIZER_UNAVAILABLE = "tokenizer_unavailable"
    """No worker of a model gave its files."""

    MALFORMED_EVENTS = "malformed_events"
    """A payload is no batch of the engine's KV events (`mmroute.kv_events`)."""


def _unpickled(kind: type[Exception], arguments: tuple[object, ...]) -> Exception:
    """An error as it was, not by its __init__: that has other arguments in each class."""
    return kind.__new__(kind, *arguments)


class MmrouteError(Exception):
    """Base of the errors that what comes from outside can cause.

    A caller's own wrong arguments are ValueErrors and TypeErrors.

    Attributes:
        reason: the machine-readable cause.
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), self.args), self.__dict__


class ModelError(MmrouteError):
    """A model cannot be loaded: what was found, where, and what to do is in the message."""


class SpecError(MmrouteError):
    """A family spec is not usable."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.INVALID_SPEC, message)


class InexactError(MmrouteError):
    """One request has no exact answer.

    Raised inside the request path and caught at its end, where it becomes an inexact
    `Routing`. A caller meets it by asking such a `Routing` for what it does not have, and where
    images are read on their own (`mmroute.read_image`).
    """


class NoTokenIdsError(InexactError, AttributeError):
    """An attribute of an inexact routing was asked for: `hasattr` and debuggers find it missing."""


class EventsError(MmrouteError):
    """A payload is no batch of KV events."""


class ModelIdWarning(UserWarning):
    """Block hashes cover the engine's model string, and it was not given."""


class BlockSizeWarning(UserWarning):
    """Block hashes are of blocks of the commonest size, and the engine's was not given."""


class EngineVersionWarning(UserWarning):
    """A server's engine is of a version that is not known, or whose block hashes are others."""


def invalid(message: str) -> InexactError:
    """The commonest error: the request is not of the form the engine's API accepts."""
    return InexactError(Reason.INVALID_REQUEST, message)


def image_refused(image: object, why: str) -> InexactError:
    """The error of an image that the engine does not take."""
    return InexactError(Reason.IMAGE_REFUSED, f"the engine refuses {image}: {why}")


def item_refused(item: object, why: str) -> InexactError:
    """The error of a video or audio that the engine does not take."""
    return InexactError(Reason.ITEM_REFUSED, f"the engine refuses {item}: {why}")


def malformed(message: str) -> ModelError:
    """The error of a file that cannot be read as what it should be."""
    return ModelError(Reason.MALFORMED_FILE, message)


@contextlib.contextmanager
def needs_extra(extra: str, package: str, what: str) -> Iterator[None]:
    """Inside, an import that fails is an error which names the remedy.

    Args:
        extra: the extra of mmroute's distribution that brings the package.
        package: the name by which the package is imported.
        what: what needs the package: the beginning of the message.

    Raises:
        ModelError: `unsupported_tokenizer`; the message tells a package that is not installed
            from one that is broken.
    """
    try:
        yield
    except ImportError as error:
        if importlib.util.find_spec(package) is None:
            why = f"{package}, which is not installed: pip install 'mmroute[{extra}]'"
        else:
            why = (
                f"{package}, which is installed and cannot be imported ({error}): "
                f"pip install --force-reinstall 'mmroute[{extra}]'"
            )
        raise ModelError(Reason.UNSUPPORTED_TOKENIZER, f"{what} needs {why}") from error


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3


def quoted(value: object) -> str:
    """A value as an error message quotes it: recognisable, and short whatever a client sent.

    >>> quoted("x" * 1000)[:8], len(quoted("x" * 1000))
    ("'xxxxxxx", 80)
    """
    try:
        return _SHORT.repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits, or deep nesting
        return f"a {type(value).__name__}"


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str:
    """The end of a message about an unknown name; empty where none is at least `cutoff` alike.

    >>> did_you_mean("imge", ["image", "video"])
    "; did you mean 'image'?"
    """
    near = nearest(name, known, cutoff=cutoff)
    return f"; did you mean {near!r}?" if near is not None else ""


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known name that is most like another; None where none is at least `cutoff` alike."""
    import difflib  # only to word an error

    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def problem(error: Any) -> str:
    """One of pydantic's errors in words: field, what it must be, what was found."""
    message = str(error["msg"]).removeprefix("Value error, ")
    if not error["loc"]:
        return message
    return f"{'.'.join(map(str, error['loc']))}: {message} (found {quoted(error['input'])})"
