"""A name that nothing uses is found, one that a test alone uses as well; a name in a string or a template is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scripts.check_unused import unused_python, unused_rust

if TYPE_CHECKING:
    from pathlib import Path

PYTHON = """
LIMIT = 3
UNUSED_LIMIT = 4  # UNUSED_LIMIT

class Kept:
    def in_a_template(self): ...
    def of_nobody(self): ...

@app.command("go")
def go(): ...

def loaded(): ...
print(LIMIT, Kept)
"""

RUST = """
pub fn used() {}
pub(crate) const fn unused() {} // unused
#[cfg(test)]
mod tests {
    fn test() { super::unused() }
}
"""


def test_names_unused_by_shipped_code_are_reported(tmp_path: Path) -> None:
    for place, text in (
        ("python/sojourn/a.py", PYTHON),
        ("python/sojourn/page.html", "{{ one.in_a_template }}"),
        ("python/sojourn/b.py", 'PLACES = {"x": "sojourn.a:loaded"}\nprint(PLACES)\n'),
        ("tests/unit/test_a.py", "UNUSED_LIMIT, of_nobody"),
        ("crates/a/src/lib.rs", RUST),
        ("crates/a/src/tests.rs", "pub fn helper() {}"),
        ("crates/b/src/lib.rs", "use a::used;"),
    ):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(text)
    assert [*unused_python(tmp_path)] == ["python/sojourn/a.py:3: UNUSED_LIMIT", "python/sojourn/a.py:7: of_nobody"]
    assert [*unused_rust(tmp_path)] == ["crates/a/src/lib.rs:3: unused"]
