"""The built-in studies as text: one TOML plan per published experiment. Does not parse them (plan does)."""

from __future__ import annotations

from importlib import resources


def names() -> list[str]:
    """Names of the built-in studies."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml"))


def text(name: str) -> str:
    """The TOML of one study."""
    return resources.files(__name__).joinpath(f"{name}.toml").read_text(encoding="utf-8")
