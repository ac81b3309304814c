"""Each command of the page on installation has a test of `make proof` that covers it, where nothing is installed.

That test installs the same file by the same kind of program; its words may differ.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/guide/install.md"

WHEEL = "tests/bare/test_packages.py::test_the_wheel_installs_in_a_fresh_environment_and_measures"
DEB = "tests/bare/test_packages.py::test_the_deb_installs_measures_for_its_group_and_leaves_nothing"
IMAGE = "tests/bare/test_packages.py::test_the_image_measures_with_the_rights_that_it_names"
ARM64 = "tests/arm64/test_user_mode.py::test_make_dist_builds_a_wheel_for_arm64"

RUN_BY = {
    "apt install python3-venv iproute2 ethtool": WHEEL,
    "python3 -m venv v && v/bin/pip install ./sojourn-*_x86_64.whl": WHEEL,
    "v/bin/sojourn run bridge-latency --quick": WHEEL,
    "make arm64": ARM64,
    "make dist": ARM64,
    "apt-get update && apt install ./sojourn_VERSION_amd64.deb": DEB,
    "sojourn run bridge-latency --quick": DEB,
    "podman load -i sojourn-*.oci.tar": IMAGE,
    "podman run --rm --cap-add NET_ADMIN --cap-add NET_RAW --cap-add SYS_ADMIN sojourn:VERSION run bridge-latency "
    "--quick": IMAGE,
}
"""pipx makes the environment and runs pip there. podman itself is not run: runc starts the image with the capabilities
that docker and podman give and these three."""


def test_each_command_of_the_page_is_run_by_a_test() -> None:
    blocks = re.findall(r"^```bash\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line.partition(" #")[0].strip() for block in blocks for line in block.splitlines()]
    assert {re.sub(r"\d+\.\d+\.\d+", "VERSION", line) for line in lines} == set(RUN_BY)


@pytest.mark.parametrize("where", sorted(set(RUN_BY.values())))
def test_tests_named_for_commands_exist(where: str) -> None:
    path, name = where.split("::")
    assert re.search(rf"^def {name}\(", (ROOT / path).read_text(), re.MULTILINE)
