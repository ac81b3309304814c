"""The methods, each a package found automatically: its plan, its measurement, its analysis and its report.

A method is a package with four modules. `ask` and `measure` belong to the left side of the run folder, `analyse` and
`show` to the right side; the two sides do not import each other. The packages of this folder are found by their names
(`tcp_cost` is the method `tcp-cost`); another distribution adds one by an entry point of the group `sojourn.methods`
whose name is the method and whose value is the package. Modules are imported on first use.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Literal

from sojourn.errors import RequestError

if TYPE_CHECKING:
    from types import ModuleType

Part = Literal["ask", "measure", "analyse", "show"]
GROUP = "sojourn.methods"
DEFAULT = "pairs"
"""The method of a plan that names none."""


@cache
def packages() -> dict[str, str]:
    """Return the package of each method, by the method's name; packages of this folder take precedence."""
    own = {one.name.replace("_", "-"): f"{__name__}.{one.name}" for one in pkgutil.iter_modules(__path__) if one.ispkg}
    return {one.name: one.value for one in entry_points(group=GROUP)} | own


def load(method: str, part: Part) -> ModuleType:
    """Return the module of a method; RequestError for an unknown method."""
    if method not in packages():
        raise RequestError(
            f"no such method is known to this version: {method} (known: {', '.join(sorted(packages()))})"
        )
    return import_module(f"{packages()[method]}.{part}")


def package_doc(method: str) -> str:
    """Return the description of a method: its package's docstring."""
    return str(import_module(packages()[method]).__doc__).strip()


def package_page(method: str) -> str:
    """Return how its reports are read and when not to trust them: page.toml of its folder; empty without one."""
    from importlib.resources import files

    file = files(packages()[method]) / "page.toml"
    return file.read_text(encoding="utf-8") if file.is_file() else ""
