"""Names of a package that are imported on first use, so that using a small part of it is fast.

A package lists them twice: for type checkers (`if TYPE_CHECKING: from … import …`), and here by their modules.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def names_of(package: str, homes: Mapping[str, tuple[str, ...]]) -> Callable[[str], object]:
    """Return the `__getattr__` of a package (PEP 562), from modules (".file" for one of its own) and their names."""
    found_in = {name: module for module, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name not in found_in:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        from importlib import import_module

        found: object = getattr(import_module(found_in[name], package), name)
        setattr(sys.modules[package], name, found)
        return found

    return find
