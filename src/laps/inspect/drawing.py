"""Trees and paths for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from rich.text import Text
from rich.tree import Tree

from laps import units

if TYPE_CHECKING:
    from laps.inspect.trees import Hop, PathStory, Step, TrackStory, Way, Why


# This many of the ways that were not taken are shown, the best first; JSON has them all.
FEW: Final = 4


def draw_track(story: TrackStory) -> list[Tree | Text]:
    """How a track goes: a tree for each relay that it comes from, and the notes."""
    head = Text.assemble("track ", (story.track, "bold"))
    if story.track != story.hash:
        head.append(f" ({story.hash})", "dim")
    if story.service:
        head.append(f", class {story.service}")
    if story.servers:
        head.append(f", its subscribes are held by {' '.join(story.servers)}")
    drawn: list[Tree | Text] = [head]
    for root in story.roots:
        tree = Tree(_root(root))
        _grow(tree, root)
        drawn.append(tree)
    return drawn + _said(story.notes, story.defects)


def _said(notes: list[str], defects: list[str]) -> list[Tree | Text]:
    return [
        *(Text(note, "yellow") for note in notes),
        *(Text(f"DEFECT: {defect}", "bold red") for defect in defects),
    ]


def _root(hop: Hop) -> Text:
    who = units.many(hop.publishers, "publisher")
    return _facts(hop, [who] if hop.publishers else [])


def _grow(tree: Tree, hop: Hop) -> None:
    for note in hop.notes:
        tree.add(Text(note, "yellow"))
    for below in hop.below:
        branch = tree.add(_below(below))
        for why in below.why:
            branch.add(_why(why, below))
        _grow(branch, below)


def _below(hop: Hop) -> Text:
    facts = []
    if hop.srtt_us is not None:
        far = f"+{units.delay(hop.srtt_us)}"
        if hop.sum_us is not None and hop.sum_us != hop.srtt_us:
            far += f" = {units.delay(hop.sum_us)}"
        facts.append(far)
    return _facts(hop, facts)


def _facts(hop: Hop, facts: list[str]) -> Text:
    if hop.subscribers:
        facts.append(units.many(hop.subscribers, "subscriber"))
    if hop.bytes_per_s is not None:
        facts.append(units.rate(hop.bytes_per_s))
    if not hop.asked:
        facts.append("not asked")
    text = Text.assemble((hop.node, "bold"), f" {hop.role}" if hop.role else "")
    if facts:
        text.append("  " + ", ".join(facts))
    return text


def _why(why: Why, hop: Hop) -> Text:
    """The reason, and below it the ways that were not taken."""
    targets = "" if why.targets == (hop.node,) else f"for {' '.join(why.targets)}: "
    text = Text(f"{targets}{why.reason or 'no reason is told'}", "cyan")
    text.append(_not_taken(why.alternates), "dim")
    return text


def _not_taken(ways: tuple[Way, ...]) -> str:
    """The ways that were not taken, a line each; those that could not be, together."""
    data = [way for way in ways if way.carries_data]
    control = [way.peer for way in ways if not way.carries_data]
    lines = [_instead(way) for way in data[:FEW]]
    if len(data) > FEW:
        lines.append(f"nor {len(data) - FEW} others")
    if control:
        lines.append(f"not {' '.join(control)}: for control alone")
    return "".join(f"\n  {line}" for line in lines)


def _instead(way: Way) -> str:
    hops = len(way.hops) - 1  # as selection counts: the relays in between
    by = "" if not hops else f" ({' '.join(way.hops)})"
    far = f"not {way.peer}{by}: {units.many(hops, 'hop')}, {units.delay(way.srtt_us)}"
    return far if way.admitted else f"{far}, not admitted"


def draw_path(story: PathStory) -> list[Tree | Text]:
    """The way from a node to another, a step below the other."""
    tree = Tree(Text(story.source, "bold"))
    branch = tree
    for step in story.steps:
        branch = branch.add(_step(step))
    drawn: list[Tree | Text] = [Text(f"from {story.source} to {story.target}")]
    if story.steps:
        drawn.append(tree)
    return drawn + _said(story.notes, story.defects)


def _step(step: Step) -> Text:
    text = Text.assemble((step.peer, "bold"))
    if step.srtt_us is not None:
        text.append(f"  +{units.delay(step.srtt_us)}")
        if step.sum_us is not None and step.sum_us != step.srtt_us:
            text.append(f" = {units.delay(step.sum_us)}")
    text.append(f"\n{step.reason or 'no reason is told'}", "cyan")
    text.append(_not_taken(step.alternates), "dim")
    return text
