"""What a QUICR client may do, by the tokens of its control streams and of its connection.

A SUBSCRIBE is judged when it comes, a PUBLISH_INTENT too. When what allowed one has ended, it is
answered SUBSCRIBE_REPLY with the reason, and its stream is closed: a client that has a newer token
asks again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.auth.grants import Action
from laps.auth.refusals import AuthError, Outcome
from laps.edge.access import Access
from laps.edge.shares import OverLimit
from laps.wire.quicr.codes import QuicrCode, QuicrViolation
from laps.wire.quicr.messages import NOT_AUTHORIZED, Response
from laps.wire.quicr.names import NameRefused

if TYPE_CHECKING:
    from laps.edge.authority import Authority
    from laps.edge.decisions import Decision
    from laps.edge.shares import ClientShare
    from laps.sessions.quicr import ControlStream, QuicrSession
    from laps.types import TrackName
    from laps.wire.quicr.messages import Authorization
    from laps.wire.quicr.names import Pattern


class QuicrAccess(Access):
    """The tokens of a QUICR client."""

    __slots__ = ("_session",)

    def __init__(self, authority: Authority, share: ClientShare, session: QuicrSession) -> None:
        super().__init__(authority, share)
        self._session = session

    def is_pending(self, request_id: int) -> bool:
        """As `Access.is_pending`: a request is a control stream."""
        return request_id in self._session.streams

    def check(self, stream: ControlStream, pattern: Pattern, now: float) -> Decision | None:
        """NameRefused if a client may not subscribe to a name, or to what a mask leaves open.

        What is to be waited for, where an origin has to be asked.
        """
        if pattern.is_wild:
            action, prefix = Action.SUBSCRIBE_NAMESPACE, pattern.prefix
            return self._check(stream, action, prefix, None, now, pattern.digits)
        track = pattern.track()
        return self._check(stream, Action.SUBSCRIBE, track.namespace, track.name, now)

    def check_intent(self, stream: ControlStream, track: TrackName, now: float) -> Decision | None:
        """NameRefused if a client may not publish a name; or what is to be waited for."""
        return self._check(stream, Action.PUBLISH, track.namespace, track.name, now)

    def _check(
        self,
        stream: ControlStream,
        action: Action,
        namespace: tuple[bytes, ...],
        name: bytes | None,
        now: float,
        begins: bytes = b"",
    ) -> Decision | None:
        tokens = [(it.token_type, it.token) for it in stream.tokens]
        stream.tokens.clear()
        try:
            self.share.check_name(namespace, name, now)
            decision = self.judge(stream.id, action, namespace, name, tokens, now, begins=begins)
            if decision is None:
                self.share.answered(stream.id)  # what is allowed is granted at once
            return decision
        except AuthError as error:
            raise NameRefused(words_of(error)) from None
        except OverLimit as over:
            raise refused_or_closed(over) from None

    def shown(self, stream: ControlStream, message: Authorization, now: float) -> None:
        """A token for the connection, or a newer one for a stream; AuthError if it is refused."""
        token = [(message.token_type, message.token)]
        if stream.opening is message:
            self.add(token, now)
        else:
            self.add_own(stream.id, token, now)


def refused_or_closed(over: OverLimit) -> NameRefused | QuicrViolation:
    """How something is refused that is over a limit; whoever does not stop asking is closed."""
    if over.is_flood:
        return QuicrViolation(QuicrCode.TOO_MANY, str(over))
    return NameRefused(str(over))


def words_of(error: AuthError | OverLimit) -> str:
    """Why something is refused, or ended, so that a client knows where tokens are the reason."""
    return f"{NOT_AUTHORIZED}{error}" if isinstance(error, AuthError) else str(error)


def response_of(error: AuthError) -> Response:
    """How a subscription is ended that is not allowed any more."""
    expired = error.reason.outcome is Outcome.EXPIRED_AUTH_TOKEN
    return Response.EXPIRED if expired else Response.FAIL
