"""Which way data takes from a node to another now, as each relay on it says."""

from __future__ import annotations

from typing import TYPE_CHECKING

from laps.admin.client import NotFound
from laps.admin.schema.network import OneNode, Peers
from laps.inspect.trees import PathStory, Step, Way

if TYPE_CHECKING:
    from laps.inspect.relays import Relays


async def explain_path(relays: Relays, source: str, target: str) -> PathStory:
    """Hop by hop: each relay is asked for the next one."""
    story = PathStory(source, target)
    if source == target:
        story.notes.append(f"{source} and {target} are the same node")
        return story
    if source not in relays.apis:
        known = ", ".join(relays.apis)
        raise NotFound(
            f"{source} cannot be asked, so the way from it is not known; those that answer: "
            f"{known}. Give its address with --admin"
        )
    srtts = await _srtts(relays)
    at, sum_us = source, 0
    passed = [source]
    ahead: list[str] = []
    "The way on, as the last relay that could be asked knows it."
    while at != target:
        if at in relays.apis:
            answer = await relays.find(at, OneNode, target)
            best = None if answer is None else answer.best
            if answer is None or best is None:
                why = "knows no node" if answer is None else "has no path that is admitted to"
                if not story.steps:
                    raise NotFound(f"no way leads from {source} to {target}: it {why} {target}")
                story.notes.append(f"it ends here: {at} {why} {target}")
                return story
            ahead = list(best.hops or (best.peer,))
            reason, others = answer.reason, tuple(map(Way.of, answer.alternates))
            if not best.carries_data:
                story.notes.append(f"the way from {at} is for control alone: no data goes there")
        elif ahead:
            reason, others = f"as {_asked(passed, relays)} knows the way", ()
        else:
            story.notes.append(f"{at} cannot be asked, and how it goes on is not known")
            return story
        peer = ahead.pop(0)
        srtt_us = srtts.get((at, peer), srtts.get((peer, at)))
        sum_us = -1 if srtt_us is None or sum_us < 0 else sum_us + srtt_us
        total = None if sum_us < 0 else sum_us
        story.steps.append(Step(at, peer, at in relays.apis, srtt_us, total, reason, others))
        if peer in passed:
            story.defects.append(f"a loop: {' to '.join((*passed, peer))}")
            return story
        passed.append(peer)
        at = peer
    unasked = [node for node in passed[:-1] if node not in relays.apis]
    if unasked:
        story.notes.append(f"not asked: {' '.join(unasked)}; give their addresses with --admin")
    return story


def _asked(passed: list[str], relays: Relays) -> str:
    return next(node for node in reversed(passed) if node in relays.apis)


async def _srtts(relays: Relays) -> dict[tuple[str, str], int]:
    answers = await relays.ask(lambda api: api.get(Peers, limit=0))
    return {
        (node, row.node): row.srtt_us
        for node, answer in answers.items()
        for row in answer.peers
        if row.srtt_us
    }
