"""The two pages: of a run, and of a folder of runs. Each contains its style and script, and requests only events."""

from __future__ import annotations

from functools import cache

from markupsafe import Markup

from sojourn.report.shell import asset, policy, style, templates
from sojourn.version import __version__

RUN, RUNS = "watch", "watch_runs"


@cache
def page(kind: str, name: str, up: str = "") -> str:
    """Return a page with its initial name; `up` is the link to the list that it belongs to."""
    script = asset("watch_shared.js") + asset(f"{kind}.js")
    return (
        templates()
        .get_template(f"{kind}.html")
        .render(
            name=name,
            up=up,
            version=__version__,
            policy=content_policy(script),
            style=Markup(style() + asset("watch.css")),
            script=Markup(script),
        )
    )


def content_policy(script: str) -> str:
    """Return the policy of all our pages, with events from the same origin allowed."""
    return f"{policy([script])}; connect-src 'self'"
