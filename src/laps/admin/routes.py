"""The paths of the admin API, and the functions that answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from laps.admin import changes
from laps.admin.answers import in_slices, json_answer, list_answer, number
from laps.admin.rows import classes, clients, control, decisions, flows, network, relay, tracks
from laps.admin.rows.relay import Traffic, Wall
from laps.admin.rows.texts import node_text
from laps.admin.schema.clients import Clients, Closes, OneClient, Origins
from laps.admin.schema.control import Control
from laps.admin.schema.decisions import ClassesOfService, Demand, PolicyLines, Probes
from laps.admin.schema.network import Announces, Nodes, OneNode, Peers, Subscribes
from laps.admin.schema.relay import Alive, Counters, Events, Node, Ready
from laps.admin.schema.tracks import Cache, Fib, NodeSets, OneTrack, Tracks
from laps.admin.trace import trace
from laps.errors import InvalidText
from laps.types import parse_node_id

if TYPE_CHECKING:
    from starlette.requests import Request

    from laps.admin.rows.table import Table
    from laps.admin.schema.fields import ListPage, Row
    from laps.net.runner import Runner


def _runner(request: Request) -> Runner:
    runner: Runner = request.app.state.runner
    return runner


def _list(request: Request, page: type[ListPage], table: Table[Row], wall: Wall) -> Response:
    node = node_text(_runner(request).relay.id)
    return list_answer(request, page(node=node, at=wall.now), table)


# -- the relay -------------------------------------------------------------------------------------


async def _node(request: Request) -> Response:
    traffic = Traffic()
    await in_slices(traffic.read(_runner(request)))
    return json_answer(relay.node(_runner(request), traffic))


async def _counters(request: Request) -> Response:
    return json_answer(relay.counters(_runner(request)))


async def _closes(request: Request) -> Response:
    return _list(request, Closes, clients.closes(_runner(request)), Wall())


async def _events(request: Request) -> Response:
    wall, after = Wall(), number(request, "after", 0)
    return _list(request, Events, relay.events(_runner(request).relay, after, wall), wall)


# -- the network -----------------------------------------------------------------------------------


async def _peers(request: Request) -> Response:
    wall = Wall()
    return _list(request, Peers, network.peers(_runner(request), wall), wall)


async def _nodes(request: Request) -> Response:
    wall = Wall()
    return _list(request, Nodes, network.nodes(_runner(request).relay, wall), wall)


async def _one_node(request: Request) -> Response:
    here, wall, text = _runner(request).relay, Wall(), request.path_params["node"]
    try:
        node_id = parse_node_id(text)
    except InvalidText as error:
        raise HTTPException(400, str(error)) from None
    if node_id == here.id:
        raise HTTPException(404, f"{text} is this relay itself: ask for {Node.path}")
    page = network.one_node(here, node_id, wall)
    if page is None:
        raise HTTPException(404, f"no node {text} is known to {node_text(here.id)}")
    return json_answer(page)


async def _subscribes(request: Request) -> Response:
    return _list(request, Subscribes, network.subscribes(_runner(request).relay), Wall())


async def _announces(request: Request) -> Response:
    runner = _runner(request)
    table = network.announces(runner.relay, clients.client_numbers(runner))
    return _list(request, Announces, table, Wall())


# -- tracks ----------------------------------------------------------------------------------------


async def _tracks(request: Request) -> Response:
    runner, wall = _runner(request), Wall()
    await in_slices(tracks.count(runner.relay))
    return _list(request, Tracks, tracks.tracks(runner.relay), wall)


async def _one_track(request: Request) -> Response:
    runner, wall, text = _runner(request), Wall(), request.path_params["track"]
    await in_slices(tracks.count(runner.relay))
    key = tracks.find_track(runner.relay, text)
    page = None if key is None else tracks.one_track(runner.relay, key, wall)
    if page is None:
        raise HTTPException(404, f"no track {text} is known to {node_text(runner.relay.id)}")
    return json_answer(page)


async def _fib(request: Request) -> Response:
    runner, index = _runner(request), flows.FlowIndex()
    await in_slices(index.read(runner.relay))
    table = flows.fib(runner.relay, index, clients.client_numbers(runner))
    return _list(request, Fib, table, Wall())


async def _sns(request: Request) -> Response:
    here, index = _runner(request).relay, flows.FlowIndex()
    await in_slices(index.read(here))
    return _list(request, NodeSets, flows.sns(here, index), Wall())


async def _cache(request: Request) -> Response:
    here = _runner(request).relay
    return list_answer(request, tracks.cache(here, Wall()), tracks.cached_tracks(here))


# -- decisions -------------------------------------------------------------------------------------


async def _policy(request: Request) -> Response:
    runner, wall = _runner(request), Wall()
    page = decisions.policy(runner, wall)
    return list_answer(request, page, decisions.policy_lines(runner.relay))


async def _probes(request: Request) -> Response:
    here, wall = _runner(request).relay, Wall()
    return list_answer(request, decisions.probes(here, wall), decisions.probe_rows(here, wall))


async def _classes(request: Request) -> Response:
    runner, counted = _runner(request), classes.TracksByClass()
    await in_slices(counted.read(runner.relay))
    return _list(request, ClassesOfService, classes.classes(runner, counted), Wall())


async def _demand(request: Request) -> Response:
    here, wall = _runner(request).relay, Wall()
    return list_answer(request, decisions.demand(here, wall), decisions.decisions(here, wall))


async def _control(request: Request) -> Response:
    here = _runner(request).relay
    return list_answer(request, control.control(here, Wall()), control.peers(here))


# -- clients ---------------------------------------------------------------------------------------


async def _clients(request: Request) -> Response:
    wall = Wall()
    return _list(request, Clients, clients.clients(_runner(request), wall), wall)


async def _one_client(request: Request) -> Response:
    runner, text = _runner(request), request.path_params["client"]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HTTPException(400, f'client "{text[:60]}" must be a number, like 3')
    page = clients.one_client(runner, int(text), Wall())
    if page is None:
        raise HTTPException(404, f"no client {text} is connected to {node_text(runner.relay.id)}")
    return json_answer(page)


async def _origins(request: Request) -> Response:
    return _list(request, Origins, clients.origins(_runner(request)), Wall())


# -- for machines ----------------------------------------------------------------------------------


async def _metrics(request: Request) -> Response:
    # A relay that Prometheus never asks does not carry its library.
    from laps.admin.metrics import CONTENT_TYPE, Metrics

    state = request.app.state
    if state.metrics is None:
        state.metrics = Metrics(state.runner)
    return Response(await state.metrics.scrape(), 200, {"content-type": CONTENT_TYPE})


async def _healthz(request: Request) -> Response:
    return json_answer(Alive())


async def _readyz(request: Request) -> Response:
    ready = relay.readiness(_runner(request))
    return json_answer(ready, 200 if ready.ready else 503)


async def _openapi(request: Request) -> Response:
    from laps.admin import openapi

    return json_answer(openapi.description())


ROUTES: Final = [
    Route(Node.path, _node),
    Route(Peers.path, _peers),
    Route(Nodes.path, _nodes),
    Route(OneNode.path, _one_node),
    Route(Subscribes.path, _subscribes),
    Route(Announces.path, _announces),
    Route(Tracks.path, _tracks),
    # A namespace has slashes in it.
    Route(OneTrack.path.replace("{track}", "{track:path}"), _one_track),
    Route(Fib.path, _fib),
    Route(NodeSets.path, _sns),
    Route(Cache.path, _cache),
    Route(PolicyLines.path, _policy),
    Route(Probes.path, _probes),
    Route(ClassesOfService.path, _classes),
    Route(Demand.path, _demand),
    Route(Control.path, _control),
    Route(Clients.path, _clients),
    Route(OneClient.path, _one_client),
    Route(Origins.path, _origins),
    Route(Counters.path, _counters),
    Route(Closes.path, _closes),
    Route(Events.path, _events),
    # A page that lasts, like this stream of lines, waits for `request.app.state.stopping` too.
    Route("/v1/trace", trace),
    Route("/v1/reload", changes.reload, methods=["POST"]),
    Route("/v1/drain", changes.drain, methods=["POST"]),
    Route("/v1/clients/{client}/close", changes.close_client, methods=["POST"]),
    Route("/v1/impair", changes.impair, methods=["POST"]),
    Route("/metrics", _metrics),
    Route(Alive.path, _healthz),
    Route(Ready.path, _readyz),
    Route("/openapi.json", _openapi),
]
