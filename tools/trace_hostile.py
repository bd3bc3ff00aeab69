"""Read hostile files of each format under ``strace``, and report effects outside of their folder.

    python tools/trace_hostile.py                         # the formats whose packages are installed
    python tools/trace_hostile.py --kinds keras pt2 --mutants 50

The files are those of the tests, hostile links and locations of external data, and mutants of ``fuzz_formats.py``.
Findings are those of ``traced.py``: files written or read outside the model's folder, connections, and programs other
than this Python. Foreign exceptions are printed with "!". The exit code is 1 after findings, and 2 without strace.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path[:0] = [
    str(ROOT / each) for each in ("tools", "plugins/frontends/tensorflow/tests", "plugins/frontends/torch/tests")
]

from fuzz_formats import NEEDED  # noqa: E402
from fuzzing import formats  # noqa: E402
from fuzzing.links import external_data, linked  # noqa: E402
from traced import traced  # noqa: E402

#: System programs that frameworks start.
PROGRAMS = ("/usr/bin/uname", "/bin/uname", "/sbin/ldconfig", "/sbin/ldconfig.real", "/usr/sbin/ldconfig")
SETTINGS = ("/etc/os-release", "/etc/passwd", "/etc/nsswitch.conf", "/etc/group", str(Path.home() / ".keras"))

#: A case: its name, and a function that writes its files into an empty folder.
Case = tuple[str, Callable[[Path], Any]]

#: The function that loads a model.
_LOADED = formats.TRIALS["savedmodel"]


def cases(kind: str, mutants: int) -> Iterator[Case]:
    """Hostile files of a kind."""
    if kind == "onnx":
        for path in sorted((ROOT / "tests" / "hostile").iterdir()):
            yield path.name, lambda folder, path=path: (folder / path.name).write_bytes(path.read_bytes())
        yield from external_data()
        return
    if find_spec("tensorflow") and kind in ("keras", "h5", "savedmodel", "frozen"):
        import hostile_files

        folders = {"keras": "keras_files", "h5": "h5_files", "savedmodel": "saved_models", "frozen": "frozen_files"}
        yield from getattr(hostile_files, folders[kind])()
    if kind == "pt2":
        yield from _programs()
    seeds = formats.seeds().get(kind, {})
    if seeds:
        yield from linked(seeds)
    for number in range(mutants if seeds else 0):
        files = formats.mutant(seeds, random.Random(f"traced/{kind}/{number}"))
        yield f"mutant {number}", lambda folder, files=files: formats._write(folder, files)


def _programs() -> Iterator[Case]:
    import hostile_programs

    for name in hostile_programs.hostile(Path("marker")):

        def write(folder: Path, name: str = name) -> None:
            honest = folder.parent / "honest.pt2"
            honest.write_bytes(formats.seeds()["pt2"]["m.pt2"])
            members = hostile_programs.members_of(honest)  # the edits expect a layer named "l"
            named = {n: d.replace(b"linear.", b"l.") if n.endswith(".json") else d for n, d in members.items()}
            hostile_programs.write(honest, named)
            hostile_programs.edited(honest, folder / "m.pt2", hostile_programs.hostile(folder.parent / "marker")[name])

        yield name, write


def make(kind: str, mutants: int, root: Path) -> list[tuple[str, str]]:
    """Write each case into its own folder below ``root``; returns the names and folders."""
    files = []
    for number, (name, write) in enumerate(cases(kind, mutants)):
        folder = root / f"{kind}-{number}" / "inside"
        folder.mkdir(parents=True)
        try:
            write(folder)
        except (OSError, KeyError, IndexError, TypeError, ValueError) as error:  # this edit expects another valid file
            sys.stderr.write(f"{kind}, {name}: not made: {type(error).__name__}: {error}\n")
            continue
        (folder.parent / "marker").unlink(missing_ok=True)  # written by making the case
        files.append((name, str(folder)))
    return files


def read(kind: str, listed: str) -> None:
    """Read the files of each case, in the traced process."""
    import warnings

    warnings.simplefilter("ignore")
    outcomes: dict[str, int] = {}
    for _, folder in json.loads(Path(listed).read_text()):
        outcome = _read(kind, Path(folder))
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    sys.stdout.write(f"{kind}: {json.dumps(outcomes)}\n")
    if any(outcome.startswith("!") for outcome in outcomes):
        sys.exit(1)


def _read(kind: str, folder: Path) -> str:
    """Read a case; returns the outcome."""
    import tenonnx as tx

    trial = formats.TRIALS.get(kind, _LOADED)
    if kind in ("onnx", "frozen"):
        trial = formats._model(next(folder.glob("*.pb" if kind == "frozen" else "*.[os]*")).name)
    if kind == "savedmodel" and (folder / "model").is_dir():
        folder /= "model"
    try:
        trial(folder)
    except tx.TenonnxError as error:
        return type(error).__name__
    except Exception as error:
        return f"!{type(error).__name__}"
    return "ok"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {"onnx": "onnx", **NEEDED, "frozen": "tensorflow"}
    parser.add_argument("--kinds", nargs="+", choices=sorted(kinds), help="by default all that can be")
    parser.add_argument("--mutants", type=int, default=25, help="how many mutants of each format that has some")
    parser.add_argument("--list", help=argparse.SUPPRESS)
    given = parser.parse_args()
    chosen = given.kinds or [kind for kind, package in kinds.items() if find_spec(package)]
    if given.list:
        read(chosen[0], given.list)
        return 0
    os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", "MPLCONFIGDIR": ""}
    failed = False
    for kind in chosen:
        with tempfile.TemporaryDirectory() as place:
            root, temporary = Path(place, "files"), Path(place, "temporary")
            temporary.mkdir()
            root.mkdir()
            files = make(kind, given.mutants, root)
            listed = Path(place, "cases.json")
            listed.write_text(json.dumps(files))
            os.environ["TMPDIR"] = str(temporary)
            folders = [folder for _, folder in files]
            command = [sys.executable, "-B", __file__, "--kinds", kind, "--list", str(listed)]
            allowed = [str(temporary), *(folders if kind == "manifest" else ())]
            readable = [*folders, str(temporary), str(listed), str(ROOT), *SETTINGS]
            try:
                found, code = traced(command, allowed, readable, PROGRAMS)
                found = [each for each in found if "/__pycache__" not in each]  # workers write bytecode
            except FileNotFoundError as error:
                parser.error(str(error))
            finally:
                del os.environ["TMPDIR"]
        sys.stdout.write(f"{kind}: {len(files)} files, exit code {code}, {len(found)} findings\n")
        for each in found:
            sys.stdout.write(f"  {each.replace(place, '.')}\n")
        failed |= bool(found) or code != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
