"""No reader of foreign bytes is forgotten: what decodes bytes is run by an example of a fuzz target, or excused here.

Found by the calls of decoders in the source of the package, so that a new reader fails this test until a target has it.
"""

from __future__ import annotations

import ast
import sys
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import sojourn
from tests.fuzz.targets import TARGETS, once, seeds

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

PACKAGE = Path(sojourn.__file__).parent
DECODERS = frozenset({
    "loads", "json_value", "read_json", "json_file", "toml_tables", "read_toml", "raw_decode", "literal_eval",
    "unpack", "unpack_from", "iter_unpack", "from_bytes", "frombuffer", "from_buffer", "fromhex", "b64decode",
    "decompress", "decompressobj", "open_stream", "open_file", "open_memory", "ParquetFile", "read_parquet",
    "scan_parquet", "read_csv", "scan_csv", "read_ndjson", "fromstring", "cast_bytes",
})  # fmt: skip
"""Functions of ours, of the standard library, of NumPy, Arrow and polars that decode bytes or text."""

OF_THIS_PROCESS = "what this process, or one that it has just started, has written"
OF_THE_USER = "a word of the command line, which refuses what is no value"
OF_THE_PACKAGE = "a file of the package"
BY_ANOTHER = "another reader, which has a target, takes the same bytes in the same way"
EXCUSED = {
    "analysis/crossings.py read": OF_THIS_PROCESS,
    "analysis/limits.py unquoted": OF_THE_USER,
    "api/runs.py Run.results": BY_ANOTHER,  # records.results.read_parquet
    "api/runs.py Run.samples": BY_ANOTHER,
    "api/tcplog.py TcpLog.status": OF_THIS_PROCESS,
    "bed/doctor.py _direct_rtt": OF_THIS_PROCESS,
    "bed/events.py _count": "a counter of the kernel, of a fixed length",
    "bed/settings.py _read_here": "a value of the kernel, of a fixed length",
    "cli/apart.py _raise_what_it_said": OF_THIS_PROCESS,
    "cli/apart.py main": OF_THIS_PROCESS,
    "cli/conclude.py conclude": OF_THIS_PROCESS,
    "cli/emulate.py conclude": OF_THIS_PROCESS,
    "cli/printed/logs.py sample": OF_THE_PACKAGE,
    "cli/real_hosts.py bed_new": OF_THIS_PROCESS,
    "cli/tcplog_run.py list_flows": OF_THIS_PROCESS,
    "cli/published.py asked_before": "compared with what is asked for now; nothing else is read of it",
    "conduct/facts.py keep_facts": BY_ANOTHER,  # records.bed.read_bed, which it calls first
    "conduct/facts.py keep_moment": OF_THIS_PROCESS,
    "history/entry.py Figure.row": "History.read has refused a row whose factors are no JSON",
    "instruments/new_addresses.py main": OF_THIS_PROCESS,
    "instruments/slices.py match_slice": OF_THIS_PROCESS,
    "instruments/spark.py _Job.counted": OF_THIS_PROCESS,
    "instruments/spark.py _files_of": OF_THIS_PROCESS,
    "instruments/spark.py _counts": OF_THIS_PROCESS,
    "plan/load.py has_variant": BY_ANOTHER,  # load_plan
    "plan/load.py plan_from_text": OF_THE_PACKAGE,
    "records/asked.py read_run_plan": BY_ANOTHER,  # Run.read of the report
    "report/experiments.py _catalogue": OF_THE_PACKAGE,
    "report/glossary.py glossary": OF_THE_PACKAGE,
    "report/run.py Run.samples": BY_ANOTHER,  # records.results.read_parquet
    "timeline/packed.py unpack": "the decoder of the page, in Python, for tests",
    "watch/giving_way.py main": OF_THIS_PROCESS,
    "watch/watched.py Watched._look_once": OF_THIS_PROCESS,
}
"""Functions that decode and that no example runs, and why: a path below the package, and a name."""


def decoding() -> Iterator[tuple[str, str, set[int]]]:
    """Each function that calls a decoder: its place, the path of its file, and the lines at which it may begin."""
    for path in sorted(PACKAGE.rglob("*.py")):
        for name, function in functions_in(ast.parse(path.read_text(encoding="utf-8")), ""):
            if DECODERS & set(called_in(function)):
                begins = {function.lineno, *(one.lineno for one in function.decorator_list)}
                yield f"{path.relative_to(PACKAGE)} {name}", str(path), begins


def functions_in(tree: ast.AST, above: str) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """Each function below, with its qualified name."""
    for node in ast.iter_child_nodes(tree):
        name = f"{above}{node.name}" if isinstance(node, DEFINITIONS) else ""
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield name, node
        yield from functions_in(node, f"{name}." if name else above)


DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def called_in(function: ast.AST) -> Iterator[str]:
    """The last names of what a function itself calls, or hands on, without its inner functions."""
    for node in ast.iter_child_nodes(function):
        if isinstance(node, DEFINITIONS):
            continue
        if isinstance(node, ast.Call):
            for one in (node.func, *node.args):
                if isinstance(one, ast.Attribute):
                    yield one.attr
                elif isinstance(one, ast.Name) and one.id != "loads":  # loads of streams, too, have this name
                    yield one.id
        yield from called_in(node)


@contextmanager
def noting(begun: set[tuple[str, int]]) -> Iterator[None]:
    """Note each function of Python that begins: its file and its first line."""

    def note(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            begun.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    before = sys.getprofile()
    sys.setprofile(note)
    threading.setprofile(note)
    try:
        yield
    finally:
        threading.setprofile(None)
        sys.setprofile(before)


def test_every_function_that_decodes_is_run_by_an_example_of_a_target_or_excused() -> None:
    begun: set[tuple[str, int]] = set()
    examples = [(target, octets) for name, target in TARGETS.items() for octets in seeds(name)]
    with noting(begun):
        for target, octets in examples:
            once(target, octets)
    decode = {place: any((path, line) in begun for line in lines) for place, path, lines in decoding()}
    assert sum(decode.values()) > 70
    missing = {place for place, is_run in decode.items() if not is_run}
    assert missing - set(EXCUSED) == set(), "these decode, and no example of a fuzz target runs them"
    assert set(EXCUSED) - missing == set(), "these are excused in vain"
