"""`/v1/control`: which control servers there are, and who hears of which subscribes."""

from __future__ import annotations

from typing import Annotated

from laps.admin.schema.fields import GAUGE, Count, ListPage, Row, Total, says


class ControlPeer(Row, frozen=True, kw_only=True):
    """A peer that subscribes are exchanged with, or a control server that is none yet."""

    node: Annotated[str, says("Its id, like 1:2.")]
    serves: Annotated[bool, says("Whether it is a control server.")] = False
    hears: Annotated[
        str,
        says("What we tell it: all, share, offered, later (it has not said) or nothing (no peer)."),
    ] = ""
    servers: Annotated[list[str], says("The control servers that it has sessions with.")] = []
    announces: Annotated[Count, says("What it announces on its link, to hear who wants it.")] = 0
    holds: Annotated[Count, says("Subscribes of its own that we hold.")] = 0


class Control(ListPage, frozen=True, kw_only=True):
    """Control servers, and what is told to whom of subscribes."""

    path = "/v1/control"

    hears: Annotated[
        str, says("What we hear of subscribes: all, share (a control server) or offered.")
    ] = ""
    why: Annotated[str, says("Why we hear all of them; empty where we do not.")] = ""
    servers: Annotated[list[str], says("The control servers that we have sessions with.")] = []
    subscribes: Annotated[Count, says("Subscribes that are held here, our own too."), GAUGE] = 0
    replicas: Annotated[
        Count, says("Control servers that hold each subscribe of ours; 0 without any."), GAUGE
    ] = 0
    control: Annotated[list[ControlPeer], says("A row for each peer and server.")] = []
    total: Total = 0
