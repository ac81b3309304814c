"""What axe-core finds on a page that somebody without a mouse, or without sight, stumbles over: each as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page


CONTRAST = "color-contrast"
"""The only rule whose result depends on the colour scheme."""


def violations(page: Page, *rules: str) -> list[str]:
    """Every violation of axe's rules, or of these alone, the least included, with the first place of it."""
    found = Axe().run(page, options={"runOnly": list(rules)} if rules else None).response["violations"]
    return [f"{one['id']} ({one['impact']}, {len(one['nodes'])}): {one['nodes'][0]['html'][:200]}" for one in found]
