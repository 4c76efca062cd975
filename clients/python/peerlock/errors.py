"""Exceptions."""

from __future__ import annotations

from typing import Any, Mapping


class Error(Exception):
    """The base of all exceptions of peerlock."""


class Unreachable(Error):
    """The agent cannot be reached, or the connection to it broke."""

    #: The agent did not answer in time: it may be frozen.
    _is_silence = False
    #: The connection of a waiting request ended, perhaps because the agent did.
    _ended_a_wait = False


class Failed(Error):
    """The agent refused a request.

    ``kind`` is for programs (``"slots_mismatch"``, ``"stalled"``, …; all are in docs/api.md), the message for people,
    and ``fields`` has the other fields of the error.
    """

    def __init__(self, kind: str, message: str, fields: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.kind = kind
        self.fields = dict(fields)


class NotAcquired(Failed):
    """The slot was not free within the wait."""


class Lost(Failed):
    """The slot is lost: work that needs it must stop."""


def from_body(body: Any) -> Failed:
    """Returns the exception for an error in JSON."""
    body = body if isinstance(body, dict) else {}
    kind = str(body.get("error", "unknown"))
    message = str(body.get("message", "the agent refused without a reason"))
    kinds = {"not_acquired": NotAcquired, "lost": Lost, "revoked": Lost, "session_lost": Lost}
    return kinds.get(kind, Failed)(kind, message, {key: body[key] for key in body.keys() - {"error", "message"}})
