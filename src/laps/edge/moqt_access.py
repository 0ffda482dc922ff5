"""What a MoQT client may do: which action each message is, and how it is refused.

at the setup          tokens of CLIENT_SETUP, and `?jwt=` in the path or in WebTransport's URL
with each request     its own tokens; REQUEST_UPDATE brings newer ones
when a grant ends     PUBLISH_DONE, UNSUBSCRIBE, PUBLISH_NAMESPACE_CANCEL, or the session closes
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from laps.auth.grants import Action
from laps.auth.judge import OUT_OF_BAND
from laps.auth.refusals import AuthError
from laps.auth.tokens import URL_PARAMETERS
from laps.edge.access import Access
from laps.edge.moqt_names import Refusal, over_limit
from laps.edge.shares import OverLimit
from laps.sessions.requests import Request
from laps.wire.moqt.codes import MoqtViolation, RequestCode, SessionCode
from laps.wire.moqt.messages import (
    Fetch,
    JoiningFetch,
    Publish,
    PublishNamespace,
    PublishNamespaceCancel,
    RequestUpdate,
    StandaloneFetch,
    Subscribe,
    SubscribeNamespace,
    TrackStatus,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from laps.edge.authority import Authority
    from laps.edge.decisions import Decision
    from laps.edge.shares import ClientShare
    from laps.sessions.moqt import MoqtSession
    from laps.types import TrackName
    from laps.wire.moqt.messages import ClientSetup, Message, Token


class Asked(NamedTuple):
    """What a request asks for."""

    request_id: int
    action: Action
    namespace: tuple[bytes, ...]
    name: bytes | None


def _of(request_id: int, action: Action, track: TrackName) -> Asked:
    return Asked(request_id, action, track.namespace, track.name)


class MoqtAccess(Access):
    """The tokens of a MoQT client."""

    __slots__ = ("_session", "_url")

    def __init__(
        self, authority: Authority, share: ClientShare, session: MoqtSession, url: str
    ) -> None:
        """`url` is the path and query that a WebTransport session was asked for with."""
        super().__init__(authority, share)
        self._session = session
        self._url = url

    def set_up(self, message: ClientSetup, now: float) -> None:
        """The session begins, or MoqtViolation."""
        if self.is_open:
            return
        path = self._url if message.path is None else message.path.decode("latin-1")
        self._url = ""  # nobody needs the token any more
        try:
            tokens = _values(message.tokens)
            self.connect([*_in_url(path), *tokens] if "?" in path else tokens, now)
        except AuthError as error:
            raise self.closing(error) from None
        except OverLimit as over:
            raise MoqtViolation(SessionCode.TOO_MANY_REQUESTS, str(over)) from None

    def refusal(self, message: Message, now: float) -> Refusal | Decision | None:
        """How to refuse a message, or what it waits for; None where it may be acted on."""
        if not isinstance(message, Request):
            return None
        try:
            if (asked := self._asked_for(message)) is not None:
                return self.judge(*asked, _values(message.tokens), now)
            self.share.ask_more(getattr(message, "existing_id", -1), now)
        except AuthError as error:
            code = RequestCode[error.reason.outcome.name]
            return Refusal(message.request_id, code, str(error))
        except OverLimit as over:
            if over.is_flood:
                raise MoqtViolation(SessionCode.TOO_MANY_REQUESTS, str(over)) from None
            return over_limit(message.request_id, over)
        return None

    def closing(self, error: AuthError) -> MoqtViolation:
        """What a session is closed with that may not be, or not any more."""
        return MoqtViolation(SessionCode[error.reason.outcome.name], str(error))

    def _asked_for(self, message: Message) -> Asked | None:
        """What a message asks for; None where it asks for nothing that has to be allowed."""
        match message:
            case Subscribe(request_id, track):
                return _of(request_id, Action.SUBSCRIBE, track)
            case Publish(request_id, track):
                return _of(request_id, Action.PUBLISH, track)
            case TrackStatus(request_id, track):
                return _of(request_id, Action.TRACK_STATUS, track)
            case Fetch(request_id, StandaloneFetch(track)):
                return _of(request_id, Action.FETCH, track)
            case Fetch(request_id, JoiningFetch(joining_id=joining_id)):
                joined = self._track_of(joining_id)
                return None if joined is None else _of(request_id, Action.FETCH, joined)
            case PublishNamespace(request_id, namespace):
                return Asked(request_id, Action.PUBLISH_NAMESPACE, namespace, None)
            case SubscribeNamespace(request_id, prefix):
                return Asked(request_id, Action.SUBSCRIBE_NAMESPACE, prefix, None)
            case RequestUpdate(existing_id=existing_id, tokens=tokens) if tokens:
                return self._asked_before(existing_id)
            case _:
                return None

    def _asked_before(self, request_id: int) -> Asked | None:
        """What a request asked for that is being updated: theirs, or an offer of ours."""
        pending = self._session.incoming.get(request_id)
        if pending is not None:
            return self._asked_for(pending.message)
        track = self._track_of(request_id)
        return None if track is None else _of(request_id, Action.SUBSCRIBE, track)

    def _track_of(self, request_id: int) -> TrackName | None:
        """The track that a subscription is to, by their SUBSCRIBE or by our PUBLISH."""
        pending = self._session.incoming.get(request_id) or self._session.outgoing.get(request_id)
        if pending is not None and isinstance(pending.message, Subscribe | Publish):
            return pending.message.track
        return None

    def is_pending(self, request_id: int) -> bool:
        """As `Access.is_pending`."""
        return request_id in self._session.incoming or request_id in self._session.outgoing

    # -- what is not allowed any more --------------------------------------------------------------

    def ended_namespaces(self, now: float) -> Iterator[tuple[int, tuple[bytes, ...], AuthError]]:
        """The PUBLISH_NAMESPACEs that are not allowed any more."""
        for request_id, pending in list(self._session.incoming.items()):
            if isinstance(pending.message, PublishNamespace) and not self.waits(request_id):
                namespace = pending.message.namespace
                error = self.still(request_id, Action.PUBLISH_NAMESPACE, namespace, None, now)
                if error is not None:
                    yield request_id, namespace, error

    def cancel(self, request_id: int, error: AuthError) -> None:
        """Nothing may be published below a namespace any more."""
        code = RequestCode[error.reason.outcome.name]
        self._session.send(PublishNamespaceCancel(code, str(error), request_id))


def _values(tokens: Iterable[Token]) -> list[tuple[int, bytes]]:
    return [(token.type or 0, token.value or b"") for token in tokens]


def _in_url(path: str) -> list[tuple[int, bytes]]:
    values = (it for key, it in parse_qsl(urlsplit(path).query) if key.lower() in URL_PARAMETERS)
    return [(OUT_OF_BAND, value.encode("latin-1", "replace")) for value in values]
