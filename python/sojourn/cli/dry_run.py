"""The output of `--dry-run`: the expanded cells, the paths, and an estimate of the time. Measures nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from sojourn.cli.dry_run_costs import print_costs
from sojourn.cli.dry_run_streams import print_searches, print_trials
from sojourn.cli.dry_run_tcp import print_tcp
from sojourn.plan.estimate import over_limit
from sojourn.plan.sizes import KINDS
from sojourn.units import as_duration

if TYPE_CHECKING:
    from sojourn.plan import Plan


def expansion(plan: Plan) -> dict[str, Any]:
    """Return cells, paths, counts and times, with units in their names."""
    head = {"study": plan.study.name, "question": plan.study.question, "backend": plan.bed.backend}
    ends: dict[str, Any] = {"until": plan.study.until} if plan.study.until else {}
    ends |= {"budget_ns": plan.study.budget_ns} if plan.study.budget_ns else {}
    ends |= {"most_sessions": plan.bed.sessions} if ends else {}
    described = plan.ask.describe(plan)
    over = over_limit(plan, described["measuring_ns"])
    return head | ends | refusals(plan) | described | ({"over_limit": over} if over else {})


def refusals(plan: Plan) -> dict[str, Any]:
    """Return why a run on the plan's real hosts would be refused, as far as that is known without contacting them."""
    if plan.bed.hosts is None:
        return {}
    from sojourn.conduct.real_hosts import refused_with_two_clocks

    why = refused_with_two_clocks(plan)
    return {"refused_with_two_clocks": why} if why else {}


def show_plan(plan: Plan, *, as_json: bool) -> None:
    """Print what a plan would measure."""
    shown = expansion(plan)
    if as_json:
        print(json.dumps(shown))
    else:
        print_cells(shown)


def print_cells(shown: dict[str, Any]) -> None:
    """Print the cells as tables."""
    console = Console(highlight=False, emoji=False, soft_wrap=False)
    console.print(f"{shown['study']}: {shown['question']}" if shown["question"] else shown["study"], markup=False)
    if "trials" in shown:
        print_trials(shown, console)
    elif "connections" in shown:
        print_tcp(shown, console)
    elif "pairs" in shown:
        print_costs(shown, console)
    elif "searches" in shown:
        print_searches(shown, console)
    else:
        print_blocks(shown, console)
    if "until" in shown:
        told = (
            f"It ends once the headline's interval is at most {shown['until']}, after {shown['most_sessions']} sessions"
        )
        console.print(f"{told} at most.", markup=False)
    elif "budget_ns" in shown:
        told = f"It ends when no further session fits into {words(shown['budget_ns'])}"
        console.print(f"{told}, after {shown['most_sessions']} sessions at most.", markup=False)
    if "refused_with_two_clocks" in shown:
        told = f"Unless its hosts are one machine, this will be refused: {shown['refused_with_two_clocks']}"
        console.print(f"{told}.", markup=False, soft_wrap=True)
    if "over_limit" in shown:
        console.print(f"{shown['over_limit']}.", markup=False, soft_wrap=True)
    measuring, total = words(shown["measuring_ns"]), words(shown["total_ns"])
    about = "At most" if "most_sessions" in shown else "About"
    console.print(
        f"{about} {measuring} of measuring on a quiet machine, {total} with everything around it.", markup=False
    )


def print_blocks(shown: dict[str, Any], console: Console) -> None:
    """Print cells of probes, and the order of their blocks."""
    departures = shown["visits_per_round"] == 1
    columns = (["sender"] if departures else ["probe"]) + ["size", "frame", "schedule", "interval", "probes"]
    table = Table(box=None, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for cell in shown["cells"]:
        table.add_row(
            cell["tool"] if departures else cell["probe"],
            f"{cell['size'].partition('_')[0].replace(' ', ' B ')}",
            "fragments" if cell["fragments"] else f"{frames(cell)} B",
            cell["schedule"],
            as_duration(cell["interval_ns"]) if cell["interval_ns"] else "closed loop",
            str(cell["probes_per_block"]),
        )
    console.print(table)
    console.print()
    console.print(f"Paths: {', '.join(shown['paths'])}; {order(shown)}.", markup=False)
    console.print(f"{shown['blocks']} blocks of {shown['probes']} probes in all.", markup=False)


def order(shown: dict[str, Any]) -> str:
    """Return the rounds and their order in words."""
    rounds = f"{shown['rounds']} round{'s' if shown['rounds'] != 1 else ''} of every cell"
    return (
        f"{rounds}, shuffled" if shown["visits_per_round"] == 1 else f"{rounds}, each in a random order and its mirror"
    )


def frames(cell: dict[str, Any]) -> str:
    """Return the frame size; two sizes if the response's differs."""
    there, back = cell["request_frame_bytes"], cell["response_frame_bytes"]
    fixed = KINDS[cell["probe"]].kind == "request-response"
    return f"{there} / {back}" if fixed else str(there)


def words(nanos: int) -> str:
    """Return a time in a suitable unit."""
    seconds = nanos / 1e9
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
