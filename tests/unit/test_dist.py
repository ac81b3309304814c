"""What the packages are made of: the wheel's platform, where man pages and completion go, the .deb's control files."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts import debian, make_dist, make_manual
from sojourn.bed import copies

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    """The build hook, which lies outside every package."""
    sys.path.insert(0, str(ROOT))
    import hatch_build

    return hatch_build


@pytest.mark.parametrize(
    ("libraries", "newest", "expected"),
    [
        (set(), (2, 28), "manylinux_2_28_x86_64"),
        ({"libc.so.6", "libm.so.6"}, (2, 17), "manylinux_2_28_x86_64"),
        ({"libc.so.6", "libz.so.1"}, (2, 35), "manylinux_2_35_x86_64"),
        ({"libc.so.6", "libelf.so.1"}, (2, 17), "linux_x86_64"),
    ],
)
def test_a_wheel_is_manylinux_only_where_its_binary_is_and_for_its_machine(
    hook: ModuleType,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    libraries: set[str],
    newest: tuple[int, int],
    expected: str,
) -> None:
    monkeypatch.setattr(hook, "needs_of", lambda _: (libraries, newest))
    binary = tmp_path / "binary"
    for number, machine in ((62, "x86_64"), (183, "aarch64")):
        binary.write_bytes(b"\x7fELF".ljust(18, b"\0") + number.to_bytes(2, "little"))
        assert hook.platform_of(binary) == expected.replace("x86_64", machine)


def test_bed_hosts_and_wheels_support_the_same_architectures(hook: ModuleType) -> None:
    assert hook.MACHINES == copies.MACHINES


def test_folder_with_files_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept"
    kept.write_text("kept")
    for named in (tmp_path, kept):
        assert make_dist.main(["--out", str(named)]) == 2
        assert capsys.readouterr().err == f"dist: {named} is no empty folder: name a new one, or remove it\n"
    assert kept.read_text() == "kept"


def test_output_goes_into_the_named_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(out: Path, *_: str, **__: str) -> None:
        (out / "sojourn.whl").write_bytes(b"wheel")

    monkeypatch.setattr(make_dist, "build", build)
    monkeypatch.setattr(make_dist, "binary", lambda: "")
    monkeypatch.setattr(make_manual, "main", lambda: 0)
    before = sorted(make_dist.DIST.glob("*"))
    assert make_dist.main(["--out", str(tmp_path), "--no-deb", "--no-arm64"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["sojourn.whl"]
    assert sorted(make_dist.DIST.glob("*")) == before


def test_required_glibc_version_is_read_from_the_binary(hook: ModuleType) -> None:
    libraries, newest = hook.needs_of(Path("/bin/sh").resolve())
    assert "libc.so.6" in libraries
    assert newest >= (2, 2)
    needs = debian.needed(Path("/bin/sh").resolve())
    assert re.fullmatch(r"libc6 \(>= 2\.\d+\)", needs[0])


def test_libraries_of_the_deb_are_installed_by_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The export has no option that leaves hashes out, and uv refuses what has none; the wheel comes by itself."""
    uv = tmp_path / "uv"
    uv.write_text(
        f'#!/bin/sh\n[ "$1" = export ] && echo "altair==6.3.0 --hash=sha256:7d"\necho "$@" >>{tmp_path}/calls\n'
    )
    uv.chmod(0o755)
    (tmp_path / "build").mkdir()
    monkeypatch.setattr(debian, "ROOT", tmp_path)
    monkeypatch.setattr(debian, "UV", uv)
    debian.libraries(tmp_path / "sojourn.whl", tmp_path / "home", "3.11")
    export, needs, wheel = (tmp_path / "calls").read_text().splitlines()
    assert "--frozen" in export
    assert "--no-hashes" not in export
    assert needs.endswith(
        f" --no-deps --python-version 3.11 --only-binary :all: --require-hashes -r {tmp_path}/build/needs.txt"
    )
    assert "--hash=sha256:7d" in (tmp_path / "build/needs.txt").read_text()
    assert wheel.endswith(f" --only-binary :all: {tmp_path}/sojourn.whl")
    assert "--require-hashes" not in wheel


def test_the_deb_has_the_libraries_of_the_bill_of_materials_and_no_others(hook: ModuleType) -> None:
    """`uv export --no-dev` leaves out one group: the other default ones, with Sphinx, were in the package."""
    exported = set(re.findall(r"^([a-z0-9][\w.-]*)==", debian.locked(), re.MULTILINE))
    assert exported >= {"polars", "typer"}
    assert exported == {one["name"] for one in hook.libraries(ROOT)}


def test_man_pages_and_completions_are_installed_in_standard_places(hook: ModuleType, tmp_path: Path) -> None:
    assert hook.manual(tmp_path) == {}
    for name in ("man/sojourn.1", "completion/sojourn.bash", "completion/_sojourn", "completion/sojourn.fish"):
        (tmp_path / "build" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "build" / name).write_text("x")
    assert sorted(hook.manual(tmp_path).values()) == [
        "share/bash-completion/completions/sojourn",
        "share/fish/vendor_completions.d/sojourn.fish",
        "share/man/man1/sojourn.1",
        "share/zsh/vendor-completions/_sojourn",
    ]


def test_the_wheel_has_every_file_of_the_package_also_those_that_are_no_python() -> None:
    from hatchling.builders.wheel import WheelBuilder

    packed = {one.distribution_path for one in WheelBuilder(str(ROOT)).recurse_included_files()}
    listed = subprocess.run(["git", "ls-files", "python/sojourn"], cwd=ROOT, capture_output=True, text=True, check=True)
    tracked = {name.removeprefix("python/") for name in listed.stdout.splitlines()}
    assert any(name.endswith("/pairs/page.toml") for name in tracked)
    assert tracked - packed == set()


@pytest.mark.parametrize("script", [debian.POSTINST, debian.PRERM, debian.POSTRM])
def test_package_scripts_are_valid_shell(script: str) -> None:
    assert subprocess.run(["sh", "-n"], input=script, text=True, check=False).returncode == 0
    assert script.startswith("#!/bin/sh\nset -e\n")


@pytest.mark.parametrize(("there", "is_host"), [(False, False), (True, False), (False, True)])
def test_package_removes_only_what_is_its_own_and_aborted_upgrade_restores_the_copy(
    there: bool, is_host: bool, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "groups").write_text("sojourn" * there)
    stubs = {
        "getent": f"grep -q $2 {tmp_path}/groups",
        "groupadd": f"echo sojourn >{tmp_path}/groups",
        "groupdel": f": >{tmp_path}/groups",
        "setcap": "true",
        "install": f"for last; do :; done; mkdir -p {tmp_path}/x; "
        'if [ "$1" = -d ]; then mkdir -p "$last"; else : >"$last"; fi',
    }
    for name, body in stubs.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/sh\n{body}\n")
        (tmp_path / "bin" / name).chmod(0o755)
    helper = tmp_path / "x/instrument"

    def run(script: str, *words: str) -> None:
        here = script.replace(debian.HELPER, str(helper)).replace(debian.STATE, f"{tmp_path}/state")
        here = here.replace("/usr/lib/sojourn", f"{tmp_path}/lib").replace("/run/systemd/system", f"{tmp_path}/none")
        env = {"PATH": f"{tmp_path}/bin:/usr/bin:/bin"}
        subprocess.run(["sh", "-s", *words], input=here, text=True, check=True, env=env)

    run(debian.POSTINST, "configure")
    assert helper.exists()
    run(debian.PRERM, "upgrade", "0.2.0")
    assert not helper.exists()
    run(debian.POSTINST, "abort-upgrade", "0.2.0")
    assert helper.exists(), "members of the group can measure again"
    run(debian.PRERM, "remove")
    if is_host:  # of a bed: another machine's controller keeps instruments there
        (tmp_path / "state/instrument").touch()
    run(debian.POSTRM, "purge")
    assert (tmp_path / "groups").read_text() == "sojourn" * there
    assert list(tmp_path.glob("state/*")) == [tmp_path / "state/instrument"] * is_host
    assert (tmp_path / "state").exists() == is_host


def test_dpkg_reads_the_control_file(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    (tmp_path / "usr/bin/sojourn-instrument").write_bytes(Path("/bin/sh").resolve().read_bytes())
    (tmp_path / "usr/bin/sojourn-instrument").chmod(0o755)
    debian.control(tmp_path, "0.1.0", "3.12")
    made = tmp_path.parent / "x.deb"
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", str(tmp_path), str(made)], check=True)
    shown = subprocess.run(["dpkg-deb", "-f", str(made)], capture_output=True, text=True, check=True).stdout
    assert "Package: sojourn\n" in shown
    assert ", python3.12, " in shown
    contents = subprocess.run(["dpkg-deb", "-c", str(made)], capture_output=True, text=True, check=True).stdout
    assert re.search(r"^-rwxr-xr-x root/root .* \./usr/bin/sojourn-instrument$", contents, re.MULTILINE)
    sums = (tmp_path / "DEBIAN/md5sums").read_text()
    assert re.fullmatch(r"[0-9a-f]{32}  usr/bin/sojourn-instrument\n", sums)
