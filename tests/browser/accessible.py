"""What axe-core finds on a page that somebody without a mouse, or without sight, stumbles over: each as a line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_playwright_python.sync_playwright import Axe

if TYPE_CHECKING:
    from playwright.sync_api import Page


KEPT = 12
"""As many children of a kind remain of a table, a list or a drawing: axe needs seconds for thousands of them."""
ONCE_A_KIND = """kept => {
    const names = /([\\w:-]+)="[^"]*"/g, telling = /^(class|style|role|scope|fill|stroke|tabindex|aria-hidden)$/;
    const kind = one => one.outerHTML.replace(/>[^<]*[^<\\s][^<]*</g, ">text<")
        .replace(names, (whole, name) => telling.test(name) ? whole : name);
    for (const parent of document.querySelectorAll("tbody, ul, ol, dl, svg, svg g")) {
        if (parent.children.length <= kept) continue;
        const seen = new Map();
        for (const one of [...parent.children]) {
            const of_kind = (seen.get(kind(one)) ?? 0) + 1;
            seen.set(kind(one), of_kind);
            if (of_kind > kept) one.remove();
        }
    }
}"""
"""Removes what repeats: children of one parent that differ in their text, and in where they are and point to, alone."""


CONTRAST = "color-contrast"
"""The only rule whose result depends on the colour scheme."""


def violations(page: Page, *rules: str) -> list[str]:
    """Every violation of axe's rules, or of these alone, the least included, with the first place of it."""
    found = Axe().run(page, options={"runOnly": list(rules)} if rules else None).response["violations"]
    return [f"{one['id']} ({one['impact']}, {len(one['nodes'])}): {one['nodes'][0]['html'][:200]}" for one in found]


def once_a_kind(page: Page) -> None:
    """Leave of the rows of a table, and of other long rows of elements alike, a few of each kind: axe judges those."""
    page.evaluate(ONCE_A_KIND, KEPT)


SURFACE = "getComputedStyle(document.body).backgroundColor"


def seen_and_read(page: Page) -> list[str]:
    """The violations of a page that was opened in the light scheme; and those of contrast in the dark one."""
    page.locator("details").evaluate_all("all => { for (const one of all) one.open = true; }")
    once_a_kind(page)
    found = violations(page)
    light = page.evaluate(SURFACE)
    page.emulate_media(color_scheme="dark")
    assert page.evaluate(SURFACE) != light, "the page has a dark scheme"
    return found + [f"dark: {one}" for one in violations(page, CONTRAST)]
