"""`/v1/control`: which control servers there are, and who hears of which subscribes."""

from __future__ import annotations

from typing import Annotated

from laps.admin.schema.fields import GAUGE, Count, ListPage, Row, Total, says


class ControlPeer(Row, frozen=True, kw_only=True):
    """This relay, a peer that subscribes are exchanged with, or a control server without a session.

    The first row is this relay.
    """

    node: Annotated[str, says("Its id, like 1:2.")]
    serves: Annotated[bool, says("Whether it is a control server.")] = False
    hears: Annotated[
        str,
        says(
            "What it is sent: all, share, offered, later (not known yet) or nothing (no session)."
        ),
    ] = ""
    why: Annotated[str, says("Why this relay is sent all; empty for its peers.")] = ""
    servers: Annotated[list[str], says("The control servers that it has sessions with.")] = []
    announces: Annotated[Count, says("Announces that it receives subscribes for.")] = 0
    holds: Annotated[Count, says("Subscribes of its own that are held here.")] = 0


class Control(ListPage, frozen=True, kw_only=True):
    """Control servers, and what is told to whom of subscribes."""

    path = "/v1/control"

    hears: Annotated[str, says("What this relay is sent of subscribes: all, share or offered.")] = (
        ""
    )
    why: Annotated[str, says("Why it is sent all of them; empty if it is not.")] = ""
    servers: Annotated[list[str], says("The control servers that we have sessions with.")] = []
    subscribes: Annotated[Count, says("Subscribes that are held here, our own too."), GAUGE] = 0
    replicas: Annotated[
        Count, says("Control servers that hold each subscribe of ours; 0 without any."), GAUGE
    ] = 0
    control: Annotated[list[ControlPeer], says("A row for each peer and server.")] = []
    total: Total = 0
