"""What is asked for, and who answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.routing import Route

from laps.admin import health, trace
from laps.admin.answers import in_slices, json_answer, list_answer, number
from laps.admin.rows import clients as views
from laps.admin.rows import flows, tables, tracks
from laps.admin.rows import network as node_views
from laps.admin.rows.texts import node_text
from laps.errors import InvalidText
from laps.types import parse_node_id

if TYPE_CHECKING:
    from starlette.requests import Request

    from laps.net.runner import Runner


def _runner(request: Request) -> Runner:
    runner: Runner = request.app.state.runner
    return runner


def _head(request: Request, wall: views.Wall) -> dict[str, Any]:
    return {"node": node_text(_runner(request).relay.id), "at": wall.now}


# -- the relay -------------------------------------------------------------------------------------


async def _node(request: Request) -> Response:
    traffic = views.Traffic()
    await in_slices(traffic.read(_runner(request)))
    return json_answer(views.node(_runner(request), traffic))


async def _counters(request: Request) -> Response:
    return json_answer(views.counters(_runner(request)))


async def _closes(request: Request) -> Response:
    head = _head(request, views.Wall())
    return list_answer(request, "closes", head, views.closes(_runner(request)))


async def _events(request: Request) -> Response:
    wall, after = views.Wall(), number(request, "after", 0)
    table = tables.events(_runner(request).relay, after, wall)
    return list_answer(request, "events", _head(request, wall), table)


# -- the network -----------------------------------------------------------------------------------


async def _peers(request: Request) -> Response:
    wall = views.Wall()
    return list_answer(request, "peers", _head(request, wall), views.peers(_runner(request), wall))


async def _nodes(request: Request) -> Response:
    wall = views.Wall()
    table = node_views.nodes(_runner(request).relay, wall)
    return list_answer(request, "nodes", _head(request, wall), table)


async def _one_node(request: Request) -> Response:
    relay, wall, text = _runner(request).relay, views.Wall(), request.path_params["node"]
    try:
        node_id = parse_node_id(text)
    except InvalidText as error:
        raise HTTPException(400, str(error)) from None
    if node_id == relay.id:
        raise HTTPException(404, f"{text} is this relay itself: ask for /v1/node")
    row = node_views.node(relay, node_id, wall)
    if row is None:
        raise HTTPException(404, f"no node {text} is known to {node_text(relay.id)}")
    return json_answer(row | {"at": wall.now})


async def _subscribes(request: Request) -> Response:
    table = tables.subscribes(_runner(request).relay)
    return list_answer(request, "subscribes", _head(request, views.Wall()), table)


async def _announces(request: Request) -> Response:
    runner = _runner(request)
    table = tables.announces(runner.relay, views.client_numbers(runner))
    return list_answer(request, "announces", _head(request, views.Wall()), table)


# -- tracks ----------------------------------------------------------------------------------------


async def _tracks(request: Request) -> Response:
    runner, wall = _runner(request), views.Wall()
    await in_slices(tracks.count(runner.relay))
    table = tracks.tracks(runner.relay, runner.edge)
    return list_answer(request, "tracks", _head(request, wall), table)


async def _one_track(request: Request) -> Response:
    runner, wall, text = _runner(request), views.Wall(), request.path_params["track"]
    await in_slices(tracks.count(runner.relay))
    key = tracks.find_track(runner.relay, text)
    row = None if key is None else tracks.one_track(runner.relay, runner.edge, key, wall)
    if row is None:
        raise HTTPException(404, f"no track {text} is known to {node_text(runner.relay.id)}")
    return json_answer({**_head(request, wall), **row})


async def _fib(request: Request) -> Response:
    runner, flowing = _runner(request), flows.Flowing()
    await in_slices(flowing.read(runner.relay))
    table = flows.fib(runner.relay, flowing, views.client_numbers(runner))
    return list_answer(request, "fib", _head(request, views.Wall()), table)


async def _sns(request: Request) -> Response:
    relay, flowing = _runner(request).relay, flows.Flowing()
    await in_slices(flowing.read(relay))
    table = flows.sns(relay, flowing)
    return list_answer(request, "sns", _head(request, views.Wall()), table)


async def _cache(request: Request) -> Response:
    whole, table = tables.cache(_runner(request).relay)
    return list_answer(request, "cache", _head(request, views.Wall()) | whole, table)


# -- clients ---------------------------------------------------------------------------------------


async def _clients(request: Request) -> Response:
    wall = views.Wall()
    table = views.clients(_runner(request), wall)
    return list_answer(request, "clients", _head(request, wall), table)


async def _one_client(request: Request) -> Response:
    runner, wall, text = _runner(request), views.Wall(), request.path_params["client"]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise HTTPException(400, f'client "{text[:60]}" must be a number, like 3')
    row = views.one_client(runner, int(text), wall)
    if row is None:
        raise HTTPException(404, f"no client {text} is connected to {node_text(runner.relay.id)}")
    return json_answer({**_head(request, wall), **row})


# -- for machines ----------------------------------------------------------------------------------


async def _metrics(request: Request) -> Response:
    # A relay that Prometheus never asks does not carry its library.
    from laps.admin.metrics import CONTENT_TYPE, Metrics

    state = request.app.state
    if state.metrics is None:
        state.metrics = Metrics(state.runner)
    return Response(await state.metrics.scrape(), 200, {"content-type": CONTENT_TYPE})


async def _healthz(request: Request) -> Response:
    return json_answer({"alive": True})


async def _readyz(request: Request) -> Response:
    return json_answer(*health.readiness(_runner(request)))


async def _openapi(request: Request) -> Response:
    from laps.admin import openapi

    return json_answer(openapi.description())


ROUTES: Final = [
    Route("/v1/node", _node),
    Route("/v1/peers", _peers),
    Route("/v1/nodes", _nodes),
    Route("/v1/nodes/{node}", _one_node),
    Route("/v1/subscribes", _subscribes),
    Route("/v1/announces", _announces),
    Route("/v1/tracks", _tracks),
    Route("/v1/tracks/{track:path}", _one_track),
    Route("/v1/fib", _fib),
    Route("/v1/sns", _sns),
    Route("/v1/cache", _cache),
    Route("/v1/clients", _clients),
    Route("/v1/clients/{client}", _one_client),
    Route("/v1/counters", _counters),
    Route("/v1/closes", _closes),
    Route("/v1/events", _events),
    Route("/v1/trace", trace.trace),
    # A view that lasts, like a stream of lines, waits for `request.app.state.stopping` too.
    Route("/metrics", _metrics),
    Route("/healthz", _healthz),
    Route("/readyz", _readyz),
    Route("/openapi.json", _openapi),
]
