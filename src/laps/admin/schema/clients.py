"""The clients of a relay, and the connections that ended."""

from typing import Annotated

from laps.admin.schema.fields import (
    COUNTER,
    GAUGE,
    Answering,
    At,
    Count,
    Id,
    ListPage,
    Page,
    Row,
    Series,
    Time,
    Total,
    says,
)
from laps.admin.schema.tracks import Named


class Client(Row, frozen=True, kw_only=True):
    """A client of this relay."""

    client: Annotated[Count, says("Its number, which counts up from 1.")]
    protocol: Annotated[str, says("What it speaks: moqt-14, moqt-16 or quicr-01.")] = ""
    transport: Annotated[str, says("What that runs on: quic or webtransport.")] = ""
    address: Annotated[str, says("The address that it connects from.")] = ""
    since: Annotated[Time, says("When it connected, in seconds since 1970.")] = 0.0
    srtt_us: Annotated[Count, says("Smoothed round trip time to it.")] = 0
    subscribes: Annotated[Count, says("Tracks that it reads.")] = 0
    publishes: Annotated[Count, says("Tracks that it publishes.")] = 0
    sent_bytes: Annotated[Count, says("Bytes sent to it.")] = 0
    received_bytes: Annotated[Count, says("Bytes received from it.")] = 0
    queue_bytes: Annotated[Count, says("Bytes that wait to be sent to it.")] = 0
    dropped_groups: Annotated[Count, says("Groups not sent because it does not keep up.")] = 0
    bearer: Annotated[str, says("Whose limits it has by its token: the subject or id.")] = ""
    over_limit: Annotated[Count, says("How often it was refused or slowed by a limit.")] = 0
    lost_packets: Annotated[Count, says("Packets to it that were lost.")] = 0
    sent_to: Annotated[str, says("The node that it was asked to go to; empty: it was not.")] = ""
    sent_why: Annotated[str, says("Why it was asked to go there.")] = ""
    stays: Annotated[bool, says("It was asked, has not gone, and is not asked again.")] = False


class Clients(ListPage, frozen=True, kw_only=True):
    """The clients of this relay."""

    path = "/v1/clients"

    clients: Annotated[list[Client], says("A row for each client.")] = []
    total: Total = 0


class OneClient(Client, Page, frozen=True, kw_only=True):
    """One of clients."""

    path = "/v1/clients/{client}"

    node: Answering = ""
    at: At = 0.0
    subscriptions: Annotated[list[Named], says("The tracks that it reads.")] = []
    publications: Annotated[list[Named], says("The tracks that it publishes.")] = []


class Close(Row, frozen=True, kw_only=True):
    """A connection that ended."""

    at: Annotated[Time, says("When it ended, in seconds since 1970.")] = 0.0
    kind: Annotated[str, says("Whose it was: peer or client.")] = ""
    who: Annotated[str, says("The node, or the client's protocol; empty if not known.")] = ""
    address: Annotated[str, says("The address of the other side.")] = ""
    by_peer: Annotated[bool, says("Whether the other side closed it.")] = False
    code: Annotated[Id, says("The error code.")] = 0
    application: Annotated[bool, says("Whether the code is the application's, not QUIC's.")] = False
    reason: Annotated[str, says("Why, in words.")] = ""


class Closes(ListPage, frozen=True, kw_only=True):
    """The last connections that ended, and why; the last first."""

    path = "/v1/closes"

    closes: Annotated[list[Close], says("A row for each connection.")] = []
    total: Total = 0


class OriginState(Row, frozen=True, kw_only=True):
    """An origin, and what became of the questions to it."""

    origin: Annotated[str, says("What the operator calls it.")]
    decides: Annotated[str, says("Who decides about its names: its keys, or its api.")] = ""
    namespaces: Annotated[list[str], says("What its names begin with.")] = []
    ids: Annotated[list[str], says("Digits that its QUICR names of 16 bytes begin with.")] = []
    waiting: Annotated[Count, says("Questions that have no answer yet."), GAUGE] = 0
    calls: Annotated[Count, says("Requests made to its server."), COUNTER] = 0
    allowed: Annotated[Count, says("Answers that granted something."), COUNTER] = 0
    refused: Annotated[Count, says("Answers that refused something."), COUNTER] = 0
    failed: Annotated[
        Count, says("Questions without an answer that counts, refused for that."), COUNTER
    ] = 0
    retried: Annotated[Count, says("Requests made again."), COUNTER] = 0
    late: Annotated[Count, says("Answers that nobody waited for any more."), COUNTER] = 0
    answered: Annotated[Count, says("Requests that had an answer, of any kind."), COUNTER] = 0
    answer_us: Annotated[
        Count,
        says("How long all of these took together."),
        Series("counter", "answer_seconds", "How long its answers took, all together.", 1e6),
    ] = 0
    last_failure: Annotated[str, says("Why the last question that failed did.")] = ""


class Origins(ListPage, frozen=True, kw_only=True):
    """The origins whose names this relay carries."""

    path = "/v1/origins"

    origins: Annotated[list[OriginState], says("A row for each origin.")] = []
    total: Total = 0
