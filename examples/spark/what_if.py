"""What if? A real network, or one in a file, with something about it changed.

    python examples/spark/what_if.py                              # the network of examples/plan
    python examples/spark/what_if.py --tables laps-tables         # yours, as `laps pipeline` has it

For the operator: what would the loss of each Via cost, and what would twice the audience, before
either happens? Each case is planned anew under the same policy, and compared. Cells are marked as
notebooks mark them.
"""

# %% What there is to choose
import argparse
from dataclasses import replace
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from laps.errors import LapsError
from laps.policy import load_policy
from laps.spark.planner.demand import Track, demand_of
from laps.spark.planner.network import Network, network
from laps.spark.planner.plan import Plan, make_plan
from laps.spark.planner.problem import Problem, pose
from laps.spark.planner.sources import problem_of
from laps.spark.planner.topology import load_topology

HERE = Path(__file__).resolve().parent.parent / "plan"

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument("--tables", type=Path, help="the tables of `laps pipeline`")
parser.add_argument("--topology", type=Path, default=HERE / "topology.toml")
parser.add_argument("--policy", type=Path, default=HERE / "policy.toml")
args = parser.parse_args()


# %% The network as it is
def today() -> Problem:
    """What relays have reported, or what the file says."""
    policy = load_policy(args.policy)
    if args.tables is not None:
        return problem_of(args.tables, policy, str(args.policy), None)
    topology = load_topology(args.topology)
    known = network(topology.nodes, topology.links)
    return pose(known, policy, demand_of(topology, policy))


try:
    problem = today()
except LapsError as error:
    raise SystemExit(f"what if: {error}") from None


# %% What could be otherwise
def lost(via: str) -> Network:
    """The network after a Via is gone, and every link to it."""
    known = problem.network
    # A node that is no carrier has no links: numbers stay as they are.
    nodes = [replace(node, role="control") if node.id == via else node for node in known.nodes]
    return network(nodes, known.links)


def twice(tracks: tuple[Track, ...]) -> tuple[Track, ...]:
    """The same tracks at twice the rate."""
    return tuple(replace(track, rate_bps=2 * track.rate_bps) for track in tracks)


cases: dict[str, tuple[Network, tuple[Track, ...]]] = {
    "as it is": (problem.network, problem.tracks),
    "twice the rate": (problem.network, twice(problem.tracks)),
}
for node in problem.network.nodes:
    if node.role == "via":
        cases[f"Via {node.id} lost"] = lost(node.id), problem.tracks

# %% Plan each, and compare
table = Table(title="What if: rates in Mbit/s", title_justify="left", box=box.SIMPLE_HEAD)
for name in ("case", "long haul", "origins", "p95 delay", "overloaded", "not served"):
    table.add_column(name, justify="left" if name == "case" else "right")
plans: dict[str, Plan] = {}
problems: list[str] = []
for case, (changed, tracks) in cases.items():
    try:
        plan = plans[case] = make_plan(pose(changed, problem.policy, tracks))
    except LapsError as error:  # a relay that nothing leads to any more
        problems.append(f"{case}: {error}")
        continue
    table.add_row(
        case,
        f"{plan.planned.long_haul_bps / 1e6:.1f}",
        f"{plan.planned.origin_egress_bps / 1e6:.1f}",
        f"{plan.planned.p95_delay_us / 1000:.0f} ms",
        str(len(plan.planned.overloaded)),
        str(len(plan.infeasible)),
    )
console = Console()
console.print(table)

# %% What could not be served, and what would help
for case, plan in plans.items():
    for one in plan.infeasible:
        label = plan.problem.tracks[one.track].label
        problems.append(f"{case}: {label} in {one.region}: {one.reason}; {one.way_out}")
for line in problems:
    console.print(line, markup=False, highlight=False, soft_wrap=True)
