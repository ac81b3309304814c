"""A disk as a trace tells it (strace): what was written, synced, named, and what of that a loss of power may leave.

What was not synced may be lost, wholly or from some place on; a name that was made, changed or removed since its folder
was synced may be there or not, whatever became of the content behind it.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator, Sequence
    from pathlib import Path

CALLS = (
    "openat,open,creat,mkdir,mkdirat,write,pwrite64,writev,pwritev,ftruncate,lseek,fsync,fdatasync,rename,renameat,"
    "renameat2,link,linkat,unlink,unlinkat,rmdir"
)
LONGEST = 1 << 24
"""Bytes of one write that are traced."""

Left = Literal["least", "names", "most", "some"]
"""What a loss of power leaves: what is certain; all names, and certain content; all; a part of what is not certain."""

LEFT: tuple[Left, ...] = ("least", "names", "most", "some")


def can_trace() -> bool:
    """Whether strace is there and may trace."""
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


def traced(argv: Sequence[str], trace: Path, cwd: Path) -> list[str]:
    """Run a program to its end, and all that it starts; the lines of its trace, each call in one."""
    words = ["strace", "-f", "-y", "-xx", "-s", str(LONGEST), "-e", f"trace={CALLS}", "-e", "signal=none"]
    done = subprocess.run([*words, "-o", str(trace), *argv], cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(_joined(trace.read_text(encoding="ascii").splitlines()))


def _joined(lines: Sequence[str]) -> Iterator[str]:
    """Calls that others interrupted, each in one line, where it ended."""
    pending: dict[str, str] = {}
    for line in lines:
        process, _, call = line.partition(" ")
        call = call.lstrip()
        if call.startswith("<... "):
            began = pending.pop(process, None)
            if began is not None:
                yield f"{process} {began}{call.partition(' resumed>')[2]}"
        elif call.endswith("<unfinished ...>"):
            pending[process] = call.removesuffix("<unfinished ...>")
        else:
            yield f"{process} {call}"


@dataclass
class File:
    """What was written of a file, and what of that is on the disk."""

    content: bytearray = field(default_factory=bytearray)
    synced: bytes = b""
    is_folder: bool = False


@dataclass
class Disk:
    """All below a folder, act by act."""

    root: str
    names: dict[str, File] = field(default_factory=dict)
    certain: dict[str, File] = field(default_factory=dict)
    open_: dict[tuple[str, str], File] = field(default_factory=dict)
    places: dict[tuple[str, str], int] = field(default_factory=dict)
    """Where the next write goes, by the number and the path of a descriptor; absent: to the end."""

    def take(self, line: str) -> str | None:
        """Do what a call did; its name, where it made something certain or changed a name."""
        found = CALL.match(line)
        if found is None or int(found["result"]) < 0:
            return None
        process, name, words = found["process"], found["name"], found["words"]
        act = getattr(self, f"_{ALIASES.get(name, name)}", None)
        assert act is not None, line
        return name if act(process, words, found) else None

    def _openat(self, process: str, words: str, found: re.Match[str]) -> bool:
        flags = words
        path = self._path(words, 0)
        key = (process, found["result"])
        self.open_.pop(key, None)
        if "O_TMPFILE" in flags:
            self.open_[key] = File()
            return False
        if path is None:
            return False
        is_new = path not in self.names
        if is_new and "O_CREAT" in flags:
            self.names[path] = File()
        if path not in self.names:
            return False
        file = self.open_[key] = self.names[path]
        if "O_TRUNC" in flags:
            file.content.clear()
        self.places.pop((found["result"], path), None)
        if "O_APPEND" not in flags:
            self.places[found["result"], path] = 0
        return is_new

    def _mkdir(self, process: str, words: str, found: re.Match[str]) -> bool:
        del process, found
        path = self._path(words, 0)
        if path is None:
            return False
        self.names[path] = File(is_folder=True)
        return True

    def _write(self, process: str, words: str, found: re.Match[str]) -> bool:
        file = self._file(process, words)
        if file is not None:
            key, length = self._key(words), int(found["result"])
            place = self.places.get(key)
            self._put(file, len(file.content) if place is None else place, QUOTED.findall(words), length)
            if place is not None:
                self.places[key] = place + length
        return False

    def _key(self, words: str) -> tuple[str, str]:
        return words.partition("<")[0], self._named(words) or ""

    def _pwrite64(self, process: str, words: str, found: re.Match[str]) -> bool:
        file = self._file(process, words)
        if file is not None:
            self._put(file, int(words.rpartition(", ")[2]), QUOTED.findall(words), int(found["result"]))
        return False

    @staticmethod
    def _put(file: File, at: int, texts: list[str], length: int) -> None:
        octets = b"".join(decoded(one) for one in texts)[:length]
        assert len(octets) == length, "a write was traced in part"
        file.content.extend(bytes(max(0, at + length - len(file.content))))
        file.content[at : at + length] = octets

    def _ftruncate(self, process: str, words: str, found: re.Match[str]) -> bool:
        del found
        file = self._file(process, words)
        if file is not None:
            length = int(words.rpartition(", ")[2])
            del file.content[length:]
            file.content.extend(bytes(length - len(file.content)))
        return False

    def _lseek(self, process: str, words: str, found: re.Match[str]) -> bool:
        file = self._file(process, words)
        if file is not None and self._key(words) in self.places:
            self.places[self._key(words)] = int(found["result"])
        return False

    def _fsync(self, process: str, words: str, found: re.Match[str]) -> bool:
        del found
        path, file = self._named(words), self._file(process, words)
        if path is not None and (path == self.root or (file is not None and file.is_folder)):
            self._sync_names(path)
            return True
        if file is None:
            return False
        file.synced = bytes(file.content)
        return True

    def _sync_names(self, folder: str) -> None:
        for names, of in ((self.names, self.certain), (self.certain, self.names)):
            for path in [
                one for one in names if one.rpartition("/")[0] == folder and names.get(one) is not of.get(one)
            ]:
                if path in self.names:
                    self.certain[path] = self.names[path]
                else:
                    del self.certain[path]

    def _rename(self, process: str, words: str, found: re.Match[str]) -> bool:
        del process, found
        one, other = self._path(words, 0), self._path(words, 1)
        if one is None or other is None:
            return False
        if "RENAME_EXCHANGE" in words:
            self._move({one: other, other: one})
        else:
            for path in [path for path in self.names if path == other or path.startswith(f"{other}/")]:
                del self.names[path]
            self._move({one: other})
        return True

    def _move(self, whither: dict[str, str]) -> None:
        moved = {}
        for path in list(self.names):
            for one, other in whither.items():
                if path == one or path.startswith(f"{one}/"):
                    moved[other + path.removeprefix(one)] = self.names.pop(path)
                    break
        self.names |= moved

    def _linkat(self, process: str, words: str, found: re.Match[str]) -> bool:
        del found
        source, path = decoded(QUOTED.findall(words)[0]).decode(), self._path(words, 1)
        if path is None:
            return False
        file = self.open_.get((process, source.removeprefix("/proc/self/fd/"))) or self.names.get(source)
        assert file is not None, words
        self.names[path] = file
        return True

    def _unlink(self, process: str, words: str, found: re.Match[str]) -> bool:
        del process, found
        path = self._path(words, 0)
        return path is not None and self.names.pop(path, None) is not None

    def _file(self, process: str, words: str) -> File | None:
        """The open file of a call's first descriptor."""
        path = self._named(words)
        if path is None or not path.startswith(self.root):
            return None
        number = words.partition("<")[0]
        file = self.names.get(path)
        return file if file is not None else self.open_.get((process, number))

    @staticmethod
    def _named(words: str) -> str | None:
        found = DESCRIPTOR.match(words)
        return None if found is None else decoded(found[1]).decode()

    def _path(self, words: str, nth: int) -> str | None:
        """The nth path of a call, where it is below the root; relative ones are of a folder that is open."""
        paths = [decoded(one).decode() for one in QUOTED.findall(words)]
        path = paths[nth]
        if not path.startswith("/"):
            folders = [decoded(one).decode() for one in FOLDER.findall(words)]
            path = f"{folders[min(nth, len(folders) - 1)]}/{path}" if folders else path
        path = path.rstrip("/")
        return path if path.startswith(f"{self.root}/") else None

    def leave(self, what: Left, into: Path, rng: random.Random) -> None:
        """Write down what a loss of power leaves now, below a folder that is not there yet."""
        into.mkdir()
        names = self._left_names(what, rng)
        for path in sorted(names):
            file, place = names[path], into / path.removeprefix(f"{self.root}/")
            if not place.parent.is_dir():
                continue  # its folder's name is lost
            if file.is_folder:
                place.mkdir(exist_ok=True)
            else:
                place.write_bytes(self._left_content(what, file, rng))

    def _left_names(self, what: Left, rng: random.Random) -> dict[str, File]:
        if what == "least":
            return self.certain
        if what in ("names", "most"):
            return self.names
        found = {}
        for path in sorted(self.names.keys() | self.certain.keys()):
            file = rng.choice((self.names.get(path), self.certain.get(path)))
            if file is not None:
                found[path] = file
        return found

    @staticmethod
    def _left_content(what: Left, file: File, rng: random.Random) -> bytes:
        if what == "most":
            return bytes(file.content)
        if what == "some" and bytes(file.content[: len(file.synced)]) == file.synced:
            return bytes(file.content[: rng.randint(len(file.synced), len(file.content))])
        return file.synced


CALL = re.compile(r"(?P<process>\d+) (?P<name>\w+)\((?P<words>.*)\)\s+= (?P<result>-?\d+)")
QUOTED = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
DESCRIPTOR = re.compile(r"\d+<((?:[^<>\\]|\\x[0-9a-f]{2})*)>")
FOLDER = re.compile(r"(?:AT_FDCWD|\d+)<((?:[^<>\\]|\\x[0-9a-f]{2})*)>")
ALIASES = {
    "open": "openat", "creat": "openat", "mkdirat": "mkdir", "writev": "write", "pwritev": "pwrite64",
    "fdatasync": "fsync",
    "renameat": "rename", "renameat2": "rename", "link": "linkat", "unlinkat": "unlink", "rmdir": "unlink",
}  # fmt: skip


def decoded(text: str) -> bytes:
    """A text of a trace, whose characters may be written as numbers."""
    return bytes.fromhex(text.replace("\\x", "")) if "\\x" in text else text.encode()
