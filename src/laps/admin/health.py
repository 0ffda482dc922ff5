"""Whether a relay lives, and whether it is of use now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from laps.net.runner import Runner


def unready(runner: Runner) -> list[str]:
    """Why new clients and peers had better go elsewhere; nothing where they need not."""
    reasons = []
    if runner.stopping:
        reasons.append("the relay is about to stop")
    peering = runner.config.peering
    wanted = [*peering.peers, *peering.control, *peering.data]
    if wanted and not runner.relay.peers:
        count = f"{len(wanted)} configured peers" if len(wanted) > 1 else "the configured peer"
        reasons.append(f"no connection to {'any of the ' if len(wanted) > 1 else ''}{count} yet")
    return reasons


def readiness(runner: Runner) -> tuple[dict[str, Any], int]:
    """What `/readyz` says, and its status."""
    reasons = unready(runner)
    return {"ready": not reasons, "reasons": reasons}, 503 if reasons else 200
