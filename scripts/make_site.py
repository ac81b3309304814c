"""Builds the site of the repository's pages and archived reports: build/site, to be opened as files or served.

A broken link, a page that the navigation lacks, or anything else that Sphinx warns of ends it with status 1. Fetches
nothing, and nothing on the site is fetched from elsewhere. Does not write the generated pages: `make docs` does that
before. A folder that holds anything but such a site is not replaced: status 2.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.make_gallery import archives, reports

ROOT = Path(__file__).resolve().parents[1]

FIRST_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Sojourn</title>
<meta http-equiv="refresh" content="0; url=docs/index.html">
</head>
<body><main><h1>Sojourn</h1><p><a href="docs/index.html">Documentation</a></p></main></body>
</html>
"""


def main() -> int:
    """Build the site into a fresh folder and print where its first page is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=ROOT / "build/site")
    parser.add_argument("--report", action="append", metavar="NAME", help="the gallery's reports of these runs alone")
    asked = parser.parse_args()
    out = asked.out.resolve()
    known = [path.name.removesuffix(".tar.xz") for path in archives()]
    if unknown := [name for name in asked.report or () if name not in known]:
        print(f"make_site: no run is archived as {', '.join(unknown)}", file=sys.stderr)
        return 2
    if not may_be_replaced(out):
        print(
            f"make_site: {out} is there and is no site of ours (no .buildinfo): choose another, or remove it",
            file=sys.stderr,
        )
        return 2
    shutil.rmtree(out, ignore_errors=True)
    status = build(ROOT, out)
    if status == 0:
        reports(out / "docs/gallery", asked.report)
        (out / "index.html").write_text(FIRST_PAGE)
        print(f"site: {out / 'index.html'}")
    return status


def may_be_replaced(out: Path) -> bool:
    """Return whether the folder may be replaced: it is the default, absent, empty, or a site that Sphinx built."""
    if out == ROOT / "build/site" or not out.exists():
        return True
    return out.is_dir() and ((out / ".buildinfo").is_file() or not any(out.iterdir()))


def build(source: Path, out: Path) -> int:
    """Run Sphinx over the pages in `source` and return its status, 1 if it warned."""
    strict = ["--fail-on-warning", "--nitpicky", "--quiet", "--fresh-env"]
    where = ["-d", str(out.with_name(f"{out.name}-doctrees")), "-c", str(ROOT / "docs/site"), str(source), str(out)]
    return subprocess.run([sys.executable, "-m", "sphinx", *strict, *where], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
