"""The page of Python's names has every public name, how it is called, and nothing that is a part of ours."""

from __future__ import annotations

import sojourn
from scripts.reference_python import page


def test_every_public_name_is_documented_with_its_signature() -> None:
    text = page()
    for name in sojourn.__all__:
        assert f"## sojourn.{name}\n" in text or f"`sojourn.{name}`" in text, name
    for told in (
        "sojourn.open(run: str | os.PathLike[str]) -> Run",
        "Run.estimate(quantity: str, **columns: str | float | None) -> Estimate",
        "| `verdict` | `Literal['trusted', 'doubtful', 'invalid']` | Whether to trust it. |",
        "| `value` | `float \\| None` | None: infinite, since so many frames were lost, or not known. |",
        "| `reorder` | `str \\| float` |",
    ):
        assert told in text, told
    assert ") -> AbstractContextManager[Lab]" in text
    assert "Iterator[" not in text
    assert "NetnsBackend" not in text
    assert " object at 0x" not in text
