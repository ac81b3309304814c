"""Find out whether the user's own boxes bridge or route, before a plan is final.

The addresses of both ends and the frames depend on it. A box that cannot be built is reported here, before there is a
run folder.
"""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from sojourn.bed import build_bed
from sojourn.conduct.cores import choose_cores
from sojourn.conduct.site import bed_spec
from sojourn.plan.boxes import SECTION
from sojourn.plan.source import Given

if TYPE_CHECKING:
    from sojourn.plan import Plan
    from sojourn.plan.source import Table


def try_boxes(plan: Plan) -> Table:
    """Build, once and by themselves, the boxes whose `routed` is not set; return what they do, as keys of a plan."""
    unsaid = tuple(device for device, box in plan.bed.boxes.items() if box.routed is None)
    if plan.bed.simulated or not unsaid:
        return {}
    whole = bed_spec(plan, choose_cores(plan))
    alone = replace(whole, devices=unsaid, twins=(), links={}, rate_bps=None, near=1, far=1, bypass=False)
    with build_bed(replace(alone, device_cpu="shared", cgroups=False), f"try-{secrets.token_hex(2)}") as bed:
        return {
            f"{SECTION}{device.removeprefix('box:')}.routed": Given(bed.topology.link(device).is_routed, "as was tried")
            for device in unsaid
        }
