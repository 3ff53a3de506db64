"""Why a body has no request: the engine refuses it, or it is not covered."""

from __future__ import annotations

from mmroute.errors import InexactError, Reason


class BodyError(InexactError):
    """A body has no exact answer, whatever the model is."""

    def __init__(self, reason: Reason, message: str, param: str | None = None) -> None:
        super().__init__(reason, message)
        # The field with the error, which begins with `body` if the engine's schema refuses it; None
        # if there is none.
        self.param = param


def refused(message: str, param: str | None = None, value: object = None) -> BodyError:
    """The error for a body that vLLM's own code refuses; it ends with the field, as in vLLM."""
    if param is not None:
        said = f", value={value}" if isinstance(value, int | float) else ""
        message = f"{message} (parameter={param}{said})"
    return BodyError(Reason.INVALID_REQUEST, message, param)


def require(holds: object, message: str, param: str | None = None, value: object = None) -> None:
    """Refuse a body as vLLM's own code does, unless a condition holds."""
    if not holds:
        raise refused(message, param, value)


def invalid_body(message: str, param: str | None = None) -> BodyError:
    """The error for a body that vLLM's schema refuses; `param` is ``body`` or ``body.FIELD``."""
    return BodyError(Reason.INVALID_REQUEST, message, param)


def unsupported_field(message: str) -> BodyError:
    """The error for a body that asks for something that is not covered."""
    return BodyError(Reason.UNSUPPORTED_FIELD, message)
