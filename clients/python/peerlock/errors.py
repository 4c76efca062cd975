"""What can go wrong."""

from __future__ import annotations

from typing import Any, Mapping


class Error(Exception):
    """Something of peerlock's."""


class Unreachable(Error):
    """The agent of this machine could not be reached, or the connection to it broke."""

    #: The agent has not answered in time: it may be frozen.
    _is_silence = False
    #: The connection on which a slot was waited for has ended: perhaps the agent has.
    _ended_a_wait = False


class Failed(Error):
    """The agent has refused.

    ``kind`` is for programs (``"slots_mismatch"``, ``"stalled"``, …; docs/api.md lists all), the message for people,
    and ``fields`` has what else the agent said.
    """

    def __init__(self, kind: str, message: str, fields: Mapping[str, Any]) -> None:
        super().__init__(message)
        self.kind = kind
        self.fields = dict(fields)


class NotAcquired(Failed):
    """It was not free in the time that the caller would wait."""


class Lost(Failed):
    """The slot is not ours any more. Whatever it was held for must stop."""


def from_body(body: Any) -> Failed:
    """The exception for an error as the agent words it."""
    body = body if isinstance(body, dict) else {}
    kind = str(body.get("error", "unknown"))
    message = str(body.get("message", "the agent refused without a reason"))
    kinds = {"not_acquired": NotAcquired, "lost": Lost, "revoked": Lost, "session_lost": Lost}
    return kinds.get(kind, Failed)(kind, message, {key: body[key] for key in body.keys() - {"error", "message"}})
