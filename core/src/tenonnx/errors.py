"""The exceptions of tenonnx.

Every message says what failed and, where useful, what was given, what is available and one thing to do.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path
from typing import Any, Protocol, TypeVar

Kind = TypeVar("Kind", bound="TenonnxError")


def counted(count: int, noun: str) -> str:
    """A count in words: ``1 input``, ``2 inputs``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def interpreter() -> str:
    """The interpreter in use, for a shell: ``python`` where that is the first one on the path."""
    import shutil  # imported here, as it imports compression modules and is rarely needed

    here, first = sys.executable or "python", shutil.which("python") or ""
    if Path(here).parent == Path(first).parent:
        return "python"
    return f'"{here}"' if " " in here else here


def installing(*packages: str) -> str:
    """The shell command that installs packages, or folders of packages, for the interpreter in use.

    The packages of this project are not on an index yet, so they are installed from a folder of wheels.
    """
    named = " ".join(f'"{each}"' if set(each) & set("[<>= ") else each for each in packages)
    if importlib.util.find_spec("pip") is not None:
        command = f"{interpreter()} -m pip install"
    else:
        active = os.environ.get("VIRTUAL_ENV") == sys.prefix
        command = "uv pip install" if active else f"uv pip install -p {interpreter()}"
    if not any(each.startswith(("tenonnx", ".")) for each in packages):
        return f"{command} {named}"
    return f"{command} --find-links WHEELS {named} (WHEELS is a folder that tools/wheels.py made)"


def import_optional(module: str, task: str, *, install: str = "", otherwise: str = "") -> Any:
    """Import a module that only ``task``, such as ``"plot"``, needs.

    Raises ``InvalidCall`` if its package is missing or broken, with the command that installs ``install`` (by default
    the package), or with the alternative ``otherwise``.
    """
    try:
        importlib.import_module(module.partition(".")[0])
        return importlib.import_module(module)
    except ImportError as error:
        package = module.partition(".")[0].replace("_", "-")
        absent = f"{module}.".startswith(f"{error.name}.")
        raise InvalidCall(
            f"cannot {task}: the package {package} {'is not installed' if absent else 'cannot be imported'}",
            given="" if absent else str(error),
            do=", or ".join(filter(None, (installing(install or package), otherwise))),
        ) from error


def listing(names: Iterable[str], most: int = 10) -> str:
    """Names for a message: the first ``most``, and the number of the others."""
    found = list(names)
    return ", ".join(found[:most]) + (f" and {len(found) - most:,} more" if len(found) > most else "")


def did_you_mean(name: object, names: Iterable[str]) -> str:
    """A question that suggests names similar to an unknown one, empty if there are none."""
    near = similar_names(str(name), names)
    return f"did you mean {' or '.join(near)}?" if near else ""


def did_you_mean_file(path: str | os.PathLike[str]) -> str:
    """A question that suggests files of the same folder with similar names; empty for a file that exists."""
    place = Path(path)
    try:
        names = [] if place.exists() else [each.name for each in islice(place.parent.iterdir(), _FILES)]
    except (OSError, ValueError):  # no such folder, or a NUL in the name
        return ""
    near = [str(place.with_name(name)) for name in similar_names(place.name, names)]
    return f"did you mean {' or '.join(near)}?" if near else ""


#: Folders with more files are not searched by ``did_you_mean_file``.
_FILES = 1000


def similar_names(name: str, names: Iterable[str]) -> list[str]:
    """The name that differs only in case, hyphens or underscores, else up to three that look like ``name``."""
    import difflib

    spelled = {_letters(each): each for each in names}
    wanted = _letters(name)
    return [spelled[near] for near in ([wanted] if wanted in spelled else difflib.get_close_matches(wanted, spelled))]


def _letters(name: str) -> str:
    return name.replace("_", "").replace("-", "").lower()


class Titled(Protocol):
    """Object that messages can name; its title is built only when a call fails."""

    @property
    def title(self) -> str: ...


class TenonnxError(Exception):
    """Base class of all errors that a user can cause.

    ``what`` is one sentence; the other parts of the message are keyword arguments, and empty ones are left out.
    """

    def __init__(
        self, what: str, *, given: str = "", available: str = "", do: str = "", also: str | Iterable[str] = ""
    ) -> None:
        self.what, self.given, self.available, self.do = what, given, available, do
        self.also = also if isinstance(also, str) else "\n".join(also)
        super().__init__(what)

    def as_a(self, kind: type[Kind], what: str = "") -> Kind:
        """Convert the error to another class, optionally with another first sentence."""
        return kind(what or self.what, given=self.given, available=self.available, do=self.do, also=self.also)

    def __str__(self) -> str:
        parts = [self.what.replace("\n", "\\n")]
        for label in ("given", "available", "do", "also"):
            text = getattr(self, label)
            if text:
                parts.append(f"  {label:<10} " + text.replace("\n", "\n" + " " * 13))
        return "\n".join(parts)


class InvalidModel(TenonnxError):
    """The file or graph breaks a rule of the ONNX specification."""


class InvalidCall(TenonnxError):
    """An op or a library function was called with invalid arguments."""


class TypeMismatch(InvalidCall):
    """A dtype, rank or shape is not what an op accepts."""


class UnknownType(TypeMismatch):
    """A required dtype or rank is unknown."""


class InvalidFeed(InvalidCall):
    """A feed is missing or unknown, or its type differs from that of the graph input."""


class UnsupportedOp(TenonnxError):
    """No installed package defines an op, or a consumer cannot compute it."""


class NotRepresentable(TenonnxError):
    """A node or value of the graph cannot be expressed in the export target."""


class NotDifferentiable(TenonnxError):
    """No gradient is defined along a requested path; ``names`` lists such values if others have one."""

    names: tuple[str, ...] = ()


class PluginError(TenonnxError):
    """A plugin could not be loaded, or two plugins claim one name."""


class VerificationFailed(TenonnxError):
    """Two models or results that should be equal differ. ``verification`` is their comparison, if available."""

    verification: Any = None


class UnsafePath(InvalidModel):
    """External data would be read or written outside the model's folder."""


class LimitExceeded(TenonnxError):
    """A file or call exceeds one of ``tenonnx.limits``."""


class OutOfTime(LimitExceeded):
    """Work exceeded its deadline."""


class FallbackWarning(UserWarning):
    """A graph runs on a slower backend than requested."""


class PluginWarning(UserWarning):
    """A package or a part of it is ignored."""
