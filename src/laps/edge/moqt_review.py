"""What a MoqtClient is not allowed any more ends, each thing in the drafts' own words.

a subscription      PUBLISH_DONE          a namespace          PUBLISH_NAMESPACE_CANCEL
a publication       UNSUBSCRIBE           a watched prefix     its stream is closed
a FETCH             a reset               the session          CONNECTION_CLOSE
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.auth.grants import Action
from laps.edge.moqt_subscription import MoqtSubscription
from laps.wire.moqt.codes import DoneCode, RequestCode
from laps.wire.moqt.messages import Fetch, JoiningFetch

if TYPE_CHECKING:
    from laps.auth.refusals import AuthError
    from laps.edge.client import EdgeClient
    from laps.edge.context import Context
    from laps.edge.moqt_access import MoqtAccess
    from laps.sessions.moqt import MoqtSession


def review(
    client: EdgeClient, access: MoqtAccess, session: MoqtSession, context: Context, now: float
) -> None:
    """End what a client is not allowed any more."""
    _review_subscriptions(client, now)
    _review_fetches(client, session, now)
    for request_id, watch in list(client.watching.items()):
        if access.still(request_id, Action.SUBSCRIBE_NAMESPACE, watch.prefix, None, now):
            del client.watching[request_id]
            session.stop_telling(request_id)
    for request_id, namespace, error in list(access.ended_namespaces(now)):
        access.cancel(request_id, error)
        context.unannounce(client, namespace, None, now)


def _review_subscriptions(client: EdgeClient, now: float) -> None:
    for subscription in list(client.subscriptions.values()):
        name, request_id = subscription.track.name, subscription.request_id
        if name is None:
            continue
        error = client.access.still(request_id, Action.SUBSCRIBE, name.namespace, name.name, now)
        if error is None:
            continue
        if subscription.is_unanswered:
            client.drop(subscription, now)
            client.refuse(request_id, RequestCode[error.reason.outcome.name], str(error), now)
        else:
            if isinstance(subscription, MoqtSubscription):
                subscription.close(now)
            client.end(subscription, _done_code(error), str(error), now)


def _review_fetches(client: EdgeClient, session: MoqtSession, now: float) -> None:
    for request_id, serving in list(client.serving.items()):
        pending = session.incoming.get(request_id)
        if pending is None or not isinstance(pending.message, Fetch):
            continue
        wanted = pending.message.range
        if isinstance(wanted, JoiningFetch):
            continue  # it goes with its subscription
        track = wanted.track
        error = client.access.still(request_id, Action.FETCH, track.namespace, track.name, now)
        if error is not None:
            del client.serving[request_id]
            serving.cancel(now)
            client.refuse(request_id, RequestCode[error.reason.outcome.name], str(error), now)
            session.finish(request_id)


def _done_code(error: AuthError) -> DoneCode:
    expired = error.reason.outcome.name == RequestCode.EXPIRED_AUTH_TOKEN.name
    return DoneCode.EXPIRED if expired else DoneCode.UNAUTHORIZED
