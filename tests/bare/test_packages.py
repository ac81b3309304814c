"""What `make dist` and `make image` make: the wheel by pipx, the .deb by apt, the image under runc.

Builds once, and measures what Sojourn says of a bed there. The systems are those of test_bare.py.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import uuid
import zipfile
from time import monotonic
from typing import TYPE_CHECKING

import pytest

import sojourn
from tests.bare.test_bare import ROOT, archive, system, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

__all__ = ["archive", "system"]

pytestmark = [pytest.mark.proof, pytest.mark.may_skip]

GET = "apt-get update -qq && apt-get install -qq -y --no-install-recommends"
MEASURE = "run bridge-latency --quick --set sessions=1 --set rounds=2 --out /tmp/run --json >/tmp/said"
ALONE = pytest.mark.parametrize("archive", ["bookworm"], indirect=True)
EACH = pytest.mark.parametrize(
    ("archive", "version"), [("bookworm", ""), ("jammy", ""), ("noble", "+python3.12")], indirect=["archive"]
)
"""A .deb is for one version of Python."""


STARTS = """
import subprocess, sys, time
def took():
    began = time.monotonic()
    subprocess.run(sys.argv[1:], check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began
print(sorted(took() for _ in range(11))[5])
"""
"""How long a command takes there: the median of 11, in seconds."""


def starts_and_sizes(python: str, program: str, folders: str) -> str:
    """The words for a shell that write what `figures` reads: how soon a program starts, and what folders hold."""
    return f"{python} /tmp/starts {program} --help >/tmp/started && du -sbc {folders} | tail -n 1 >/tmp/holds"


def figures(system: Path, package: Path) -> dict[str, float]:
    """The figures of a package that is installed in a system."""
    return {
        "file_bytes": package.stat().st_size,
        "installed_bytes": int((system / "tmp/holds").read_text().split()[0]),
        "help_seconds": float((system / "tmp/started").read_text()),
    }


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The three files, made anew; whoever runs the tests keeps theirs."""
    folder = tmp_path_factory.mktemp("dist")
    argv = [sys.executable, "-m", "scripts.make_dist", "--no-arm64", "--out", str(folder)]
    subprocess.run(argv, cwd=ROOT, check=True, timeout=3600)
    yield folder
    shutil.rmtree(folder)


@ALONE
def test_the_wheel_installs_in_a_fresh_environment_and_measures(
    system: Path, dist: Path, proven: Callable[..., None]
) -> None:
    began = monotonic()
    [wheel] = dist.glob("*.whl")
    assert "-manylinux_" in wheel.name, "its instrument needs no library that a system may lack"
    with zipfile.ZipFile(wheel) as packed:
        [bill] = [name for name in packed.namelist() if name.endswith(".dist-info/sboms/sojourn.cdx.json")]
        components = {one["name"] for one in json.loads(packed.read(bill))["components"]}
    assert components >= {"libbpf-sys", "arrow-ipc", "polars"}
    shutil.rmtree(system / "src")
    shutil.copy(wheel, system / "tmp")
    needs = f"{GET} pipx iproute2 ethtool >/dev/null"
    install = f"pipx install /tmp/{wheel.name} >/dev/null"
    (system / "tmp/starts").write_text(STARTS)
    sizes = starts_and_sizes("python3", "~/.local/bin/sojourn", "~/.local/pipx/venvs/sojourn")
    run = f"~/.local/bin/sojourn {MEASURE}"
    done = within(system, f"{needs} && {install} && {run}; echo status $?; cat /tmp/said; {sizes}")
    assert "status 0" in done.stdout, done.stdout[-2000:] + done.stderr[-2000:]
    assert '"verdict": "' in done.stdout
    proven("bare", "the wheel by pipx on bookworm", seconds=round(monotonic() - began))
    proven("packages", "the wheel by pipx on bookworm", **figures(system, wheel))
    environment = system / "root/.local/pipx/venvs/sojourn"
    assert (environment / "share/man/man1/sojourn-compare.1").is_file()
    assert (environment / "lib/systemd/system/sojourn-responder.service").is_file()


def test_the_sdist_installs_where_there_is_a_compiler(dist: Path, tmp_path: Path) -> None:
    uv, python = ROOT / ".venv/bin/uv", tmp_path / "v/bin/python"
    subprocess.run([uv, "venv", "-q", "--python", sys.executable, tmp_path / "v"], check=True)
    [source] = dist.glob("*.tar.gz")
    env = {**os.environ, "CARGO_TARGET_DIR": str(tmp_path / "target")}
    subprocess.run([uv, "pip", "install", "-q", "--python", python, source], check=True, env=env, timeout=1800)
    for program in ("sojourn", "sojourn-instrument"):
        said = subprocess.run([tmp_path / "v/bin" / program, "--version"], capture_output=True, text=True, check=True)
        assert sojourn.__version__ in said.stdout


COUNT = 20
AS_USERS = f"""
ip link add s0 type veth peer name s1 address 02:00:00:00:00:02
ip link set s0 up
ip link set s1 up
as() {{ user=$1; shift; exec setpriv --reuid="$user" --regid="$user" --init-groups -- "$@"; }}
probe="sojourn probe raw --dev s0 --to 02:00:00:00:00:02 --count {COUNT} --json"
(as member sojourn probe respond --raw s1) >/tmp/answering 2>&1 &
for _ in $(seq 100); do grep -q answering /tmp/answering && break; sleep 0.1; done
(as member $probe) >/tmp/measured
echo member measured $?
kill $!
wait
(as other $probe) 2>/tmp/refused
echo other refused $?
"""
"""Frames over a veth, which take packet sockets: a member of the group measures, another user is refused."""


@EACH
def test_the_deb_installs_measures_for_its_group_and_leaves_nothing(
    system: Path, version: str, dist: Path, request: pytest.FixtureRequest, proven: Callable[..., None]
) -> None:
    began = monotonic()
    package = dist / f"sojourn_{sojourn.__version__}{version}_amd64.deb"
    shutil.rmtree(system / "src")
    shutil.copy(package, system / "tmp")
    (system / "tmp/as-users").write_text(AS_USERS)
    (system / "tmp/starts").write_text(STARTS)
    helper = "/usr/libexec/sojourn/sojourn-instrument"
    done = within(
        system,
        f"{GET} /tmp/{package.name} man-db bash-completion >/dev/null\n"
        f"stat -c '%U:%G %a' {helper}; getcap {helper}; getent group sojourn\n"
        f"sojourn {MEASURE}; echo root $?\n"
        f"{starts_and_sizes('/usr/lib/sojourn/bin/python3', 'sojourn', '/usr/lib/sojourn /usr/libexec/sojourn')}\n"
        f"useradd -m -G sojourn member && useradd -m other\n"
        f"su other -c 'test -x {helper}' || echo only members may\n"
        "unshare --net sh /tmp/as-users\n"
        "man -w sojourn-emulate-run\n"
        "bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader sojourn; complete -p sojourn'\n"
        "ls /usr/lib/systemd/system/ | grep -c sojourn\n"
        "apt-get purge -qq -y sojourn >/dev/null\n"
        "ls -d /usr/lib/sojourn /usr/libexec/sojourn; getent group sojourn; echo end",
    )
    said = done.stdout
    assert "root:sojourn 750" in said, said + done.stderr[-2000:]
    [capabilities] = re.findall(rf"{helper} (\S+)=ep", said)
    assert set(capabilities.split(",")) == {"cap_ipc_lock", "cap_net_raw", "cap_sys_nice"}
    assert "root 0" in said, done.stderr[-2000:]
    assert "only members may" in said
    assert "member measured 0\nother refused 3\n" in said, said + done.stderr[-2000:]
    measured = json.loads((system / "tmp/measured").read_text())
    assert (measured["sent"], measured["target"]["dev"]) == (COUNT, "s0")
    assert 0 < measured["received"] <= COUNT
    assert (
        0 < measured["rtt"]["min_ns"] <= measured["rtt"]["p50_ns"] <= measured["rtt"]["max_ns"] < measured["timeout_ns"]
    )
    [refused] = (system / "tmp/refused").read_text().splitlines()
    assert refused.startswith(
        "sojourn: open a packet socket on s0 needs CAP_NET_RAW: run it as root, or join the group"
    )
    assert f"{helper}, which has it: `sudo usermod -aG sojourn $USER`" in refused
    assert "/usr/share/man/man1/sojourn-emulate-run.1.gz" in said
    assert "complete -F _sojourn sojourn" in said
    assert "\n3\n" in said
    assert said.rstrip().endswith("3\nend"), "purged without a trace"
    name = request.node.callspec.params["archive"]
    proven("bare", f"the .deb by apt on {name}, and purged", seconds=round(monotonic() - began))
    proven("packages", f"the .deb by apt on {name}", **figures(system, package))


DOCKERS = (
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "NET_RAW",
    "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
)  # fmt: skip
"""What docker leaves a container."""


def test_the_image_measures_with_the_rights_that_it_names(
    dist: Path, tmp_path: Path, proven: Callable[..., None]
) -> None:
    began = monotonic()
    subprocess.run([sys.executable, "-m", "scripts.make_image", "--dist", dist], cwd=ROOT, check=True, timeout=1800)
    [image] = dist.glob("*.oci.tar")
    layout, bundle = tmp_path / "layout", tmp_path / "bundle"
    with tarfile.open(image) as packed:
        packed.extractall(layout, filter="data")
    [described] = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(layout, described).read_text())
    config = json.loads(blob(layout, manifest["config"]).read_text())
    [layer] = manifest["layers"]
    assert sha256(gzip.decompress(blob(layout, layer).read_bytes())) == config["rootfs"]["diff_ids"][0]
    (bundle / "rootfs").mkdir(parents=True)
    subprocess.run(["tar", "-C", bundle / "rootfs", "-xzf", blob(layout, layer)], check=True)
    named = config["config"]["Labels"]["sojourn.capabilities"].split()
    asked = [*config["config"]["Cmd"], "--set", "sessions=1", "--set", "rounds=2"]
    done = contained(bundle, named, [*config["config"]["Entrypoint"], *asked])
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    assert "Report: /tmp/run/report/index.html" in done.stdout
    less = [one for one in named if one != "CAP_NET_ADMIN"]
    refused = contained(bundle, less, [*config["config"]["Entrypoint"], "run", "bridge-latency", "--quick"])
    assert refused.returncode == 3, refused.stdout[-2000:] + refused.stderr[-2000:]
    said = "sojourn: root lacks CAP_NET_ADMIN here, as in a container: start the container with --cap-add NET_ADMIN, or"
    assert refused.stderr.splitlines()[-1].startswith(said), refused.stderr[-2000:]
    proven("bare", "the image under runc, with its rights and with one less", seconds=round(monotonic() - began))
    shutil.rmtree(tmp_path)


def blob(layout: Path, described: dict[str, str]) -> Path:
    """The file of a descriptor, whose digest it has."""
    there = layout / "blobs" / described["digest"].replace(":", "/")
    assert sha256(there.read_bytes()) == described["digest"]
    return there


def sha256(octets: bytes) -> str:
    return f"sha256:{hashlib.sha256(octets).hexdigest()}"


def contained(bundle: Path, capabilities: list[str], words: list[str]) -> subprocess.CompletedProcess[str]:
    """Run words in the bundle's root file system under runc, with docker's capabilities and these."""
    (bundle / "config.json").unlink(missing_ok=True)
    subprocess.run(["runc", "spec"], cwd=bundle, check=True)
    spec = json.loads((bundle / "config.json").read_text())
    kept = sorted({*capabilities, *(f"CAP_{one}" for one in DOCKERS)})
    sets = {"bounding": kept, "effective": kept, "permitted": kept, "inheritable": [], "ambient": []}
    path = "PATH=/usr/sbin:/usr/bin:/sbin:/bin"
    spec["process"] |= {"args": words, "capabilities": sets, "terminal": False, "noNewPrivileges": False, "env": [path]}
    spec["root"]["readonly"] = False
    # The hierarchy of control groups differs between machines; nothing here is limited.
    spec["mounts"] = [mount for mount in spec["mounts"] if mount["destination"] != "/sys/fs/cgroup"]
    spec["linux"].pop("resources", None)
    spec["linux"]["namespaces"] = [one for one in spec["linux"]["namespaces"] if one["type"] != "cgroup"]
    (bundle / "config.json").write_text(json.dumps(spec))
    argv = ["runc", "run", f"sojourn-{uuid.uuid4().hex[:8]}"]
    return subprocess.run(argv, cwd=bundle, capture_output=True, text=True, check=False, timeout=600)
