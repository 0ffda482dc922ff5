"""Requests of a MoqtClient that wait for an origin, and what the client says of them meanwhile.

What follows a request that waits, as REQUEST_UPDATE, a joining FETCH or PUBLISH_DONE do, waits for
it too, in order. What ends one, as UNSUBSCRIBE does, ends the wait: nobody asks for it any more.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.wire.moqt.messages import (
    Fetch,
    FetchCancel,
    JoiningFetch,
    PublishDone,
    PublishNamespaceDone,
    RequestUpdate,
    SubscribeNamespace,
    Unsubscribe,
    UnsubscribeNamespace,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from laps.edge.decisions import Decision
    from laps.wire.moqt.messages import Message


class WaitingRequests:
    """The requests of one client that wait."""

    def __init__(self) -> None:
        self._messages: dict[int, list[Message]] = {}
        "By request: itself, and what followed."
        self._decisions: dict[int, Decision] = {}
        "What each of them waits for."

    def add(self, message: Message, decision: Decision) -> None:
        """A request waits."""
        request_id = _subject(message)
        self._messages[request_id] = [message]
        self._decisions[request_id] = decision

    def follows(self, message: Message) -> bool:
        """Whether a message is about a request that waits, so that it waits as well."""
        match message:
            case RequestUpdate(existing_id=about) | PublishDone(request_id=about):
                pass
            case Fetch(range=JoiningFetch(joining_id=about)):
                pass
            case _:
                return False
        if about not in self._messages:
            return False
        self._messages[about].append(message)
        return True

    def ended_by(self, message: Message) -> list[tuple[int, Message]]:
        """The requests that wait no more, since the client has ended them."""
        match message:
            case Unsubscribe(request_id) | FetchCancel(request_id):
                ended = [request_id]
            case PublishNamespaceDone(int(request_id)):
                ended = [request_id]
            case UnsubscribeNamespace(prefix):
                ended = list(self._watching(prefix))
            case _:
                return []
        return [(it, messages[0]) for it in ended if (messages := self.take(it))]

    def _watching(self, prefix: tuple[bytes, ...]) -> Iterator[int]:
        for request_id, messages in self._messages.items():
            if isinstance(messages[0], SubscribeNamespace) and messages[0].prefix == prefix:
                yield request_id

    def decided(self, decision: Decision) -> list[int]:
        """The requests that waited for a decision."""
        return [number for number, it in self._decisions.items() if it is decision]

    def take(self, request_id: int) -> list[Message]:
        """A request, and what followed it, to be taken now."""
        self._decisions.pop(request_id, None)
        return self._messages.pop(request_id, [])


def _subject(message: Message) -> int:
    """The request that a message is about."""
    if isinstance(message, RequestUpdate):
        return message.existing_id
    request_id: int = getattr(message, "request_id")  # noqa: B009 - each that waits has one
    return request_id
