"""Each notebook of docs/notebooks runs to its end in a kernel of Jupyter's; their last cells say what must hold."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "docs/notebooks").glob("*.ipynb"))
EXECUTE = Path(sys.executable).with_name("jupyter-execute")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for a log of TCP")


@pytest.mark.proof
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(notebook: Path, tmp_path: Path) -> None:
    shutil.copy(notebook, tmp_path)
    env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime"), "IPYTHONDIR": str(tmp_path / "ipython")}
    argv = [str(EXECUTE), "--KernelManager.transport=ipc", "--inplace", notebook.name]
    done = subprocess.run(argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    cells = json.loads((tmp_path / notebook.name).read_text())["cells"]
    ran = [cell for cell in cells if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in ran] == list(range(1, len(ran) + 1))
    assert any("image" in str(out) or "vega" in str(out) for cell in ran for out in cell["outputs"]), "a figure"


def test_notebooks_are_kept_without_output() -> None:
    assert len(NOTEBOOKS) == 3
    listed = (NOTEBOOKS[0].parent / "README.md").read_text()
    for notebook in NOTEBOOKS:
        assert f"({notebook.name})" in listed
        cells = json.loads(notebook.read_text())["cells"]
        assert not any(cell.get("outputs") for cell in cells), notebook.name
        assert "assert" in "".join(cells[-1]["source"]), f"{notebook.name}: the last cell says what must hold"
