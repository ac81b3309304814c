"""What a device made beyond its interfaces is removed where a bed was begun, and only there; nothing is built here."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pytest

from sojourn import devices
from sojourn.bed import BedSpec, build, build_bed
from sojourn.bed.backends.simulated import SimulatedBackend
from sojourn.devices import Mode, commands
from sojourn.errors import MachineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sojourn.bed.hosts import HostName

PATCH = Mode(
    name="patch",
    title="The patch panel",
    box="patch panel",
    longest=3,
    build=lambda box: commands("sh", f"build {box.left.dev}"),
    remove=lambda box: commands("sh", f"remove {box.left.dev}"),
)
ran: list[str] = []


class Refusing(SimulatedBackend):
    """Says yes to everything but to build a patch panel, and to remove the first."""

    def run(self, host: HostName, argv: Sequence[str], input: str | None = None) -> str:  # noqa: A002
        del host, argv
        if (input or "").startswith(("build", "remove")):
            ran.extend((input or "").splitlines())
        if (input or "").startswith(("build", "remove d-patchx3-1l")):
            raise MachineError("it will not")
        return ""


class Real(Refusing):
    simulated: ClassVar[bool] = False


@pytest.fixture(autouse=True)
def _patch_panels(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    found = devices.modes() | {"patch": PATCH}
    monkeypatch.setattr(devices, "modes", lambda: found)
    ran.clear()
    yield
    devices.parse.cache_clear()


def test_bed_that_cannot_be_built_is_removed_station_by_station(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "load", lambda _: Real)
    with pytest.raises(MachineError, match="it will not"), build_bed(BedSpec(devices=("patch*3",)), "unbuilt"):
        pytest.fail("it was built")
    assert [line for line in ran if line.startswith("remove")] == [f"remove d-patchx3-{i}l" for i in (1, 2, 3)]


def test_simulated_bed_removes_nothing_from_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "load", lambda _: Refusing)
    with build_bed(BedSpec(devices=("patch",)), "simulated"):
        pass
    assert ran == []
