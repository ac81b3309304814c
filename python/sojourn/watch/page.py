"""The two pages: of a run, of a folder of runs. Each carries its style and its script, and asks for events alone."""

from __future__ import annotations

from functools import cache

from markupsafe import Markup

from sojourn.report.shell import asset, policy, style, templates
from sojourn.version import __version__

RUN, RUNS = "watch", "watch_runs"


@cache
def page(kind: str, name: str, up: str = "") -> str:
    """A page, and the name that it has until its first event; `up` is the way to the list that it belongs to."""
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
    """That of every page of ours, and events from the same place."""
    return f"{policy([script])}; connect-src 'self'"
