"""Execution of a probe: runs every single-op model, with a journal of results."""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

from tenonnx.extend import InvalidCall, TenonnxError
from tenonnx.extend.checks import CallFailed, NoAnswer, ProcessCrashed
from tenonnx.extend.testing import default_registry
from tenonnx_testing.cases import Case, load
from tenonnx_testing.kit import seed_draws
from tenonnx_testing.probing import summary
from tenonnx_testing.probing.journal import Journal, Result
from tenonnx_testing.probing.target_text import json_text, target_table, toml_text
from tenonnx_testing.probing.traits import find_traits
from tenonnx_testing.probing.trials import OLDEST, Probe, cases_of, newest_versions, probes, with_constants
from tenonnx_testing.run import Failure, expect

#: Number of crashes and hangs of a case after which its remaining calls are skipped.
_ENOUGH = 3

#: Maximum number of characters of a reason.
_LONGEST_REASON = 120


class Runner(Protocol):
    """Consumer under test: returns the outputs ``names`` of the file at ``path``."""

    name: str

    def __call__(self, path: Path, feeds: Mapping[str, Any], names: Sequence[str]) -> list[Any]: ...


@dataclass(frozen=True, slots=True)
class ProbeRequest:
    """Options of a probe: ``ops`` of ``domains`` (all if empty), with ``examples`` calls of each case.

    The target is named ``name``. Its text is TOML or, with ``json``, JSON, which loads faster.
    """

    title: str
    command: str
    domains: Sequence[str] = ("ai.onnx",)
    ops: Sequence[str] = ()
    examples: int = 12
    seed: int = 0
    name: str = ""
    json: bool = False


@dataclass(slots=True)
class Measured:
    """Result of a probe: text of the target file, number of calls by outcome, limits by op, and failures."""

    text: str
    outcomes: Counter[str]
    ops: Mapping[str, Sequence[summary.OpEntry]]
    failures: Sequence[summary.OpFailure] = field(default_factory=list)


def measure(
    runner: Runner, request: ProbeRequest, journal: Path, progress: Callable[[str], None] = lambda title: None
) -> Measured:
    """Probe a consumer and return the measured target.

    ``journal`` stores results for resuming an interrupted probe. ``progress`` is called with the title of each case.
    Raises ``InvalidCall`` if no case matches the request.
    """
    default_registry().load_all()
    load()
    seed_draws(request.seed)
    chosen = cases_of(request.domains, request.ops)
    if not chosen:
        unknown = ", ".join(request.ops or request.domains)
        raise InvalidCall("no op to probe", given=unknown, do="tenonnx ops lists the ops with cases")
    settings = {"runner": runner.name, "examples": request.examples, "seed": request.seed, "onnx": version("onnx")}
    entries = Journal(journal, settings)
    if entries.traits is None:
        entries.set_traits(asdict(find_traits(runner)))
    traits: Mapping[str, Any] = entries.traits or {}
    newest = newest_versions(request.domains, traits["opset"])
    for case in chosen:
        if case.title not in entries.results:
            progress(case.title)
            entries.add(case.title, _results(runner, case, newest, request.examples, traits["ir_version"]))
    results = [result for case in chosen for result in entries.results[case.title]]
    ops, failed = summary.entries(results, newest), summary.failures(results)
    outcomes = Counter(result["outcome"] for result in results)
    table = target_table(_keys(request, traits, newest, results), ops, failed)
    return Measured((json_text if request.json else toml_text)(table, request.name), outcomes, ops, failed)


def _keys(
    request: ProbeRequest, traits: Mapping[str, Any], newest: Mapping[str, int], results: Collection[Result]
) -> dict[str, Any]:
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {
        "title": request.title,
        "source": f"measured on {today} by {request.command}",
        "note": f"{len(results)} calls of single ops; onnx {version('onnx')}, tenonnx {version('tenonnx-core')}",
        "opsets": dict(newest),
        "minimum": {domain: OLDEST for domain in newest if domain == "ai.onnx"},
        "ir_version": traits["ir_version"],
        "static_shapes": traits["static_shapes"],
        "external_data": traits["external_data"],
    }


def _results(runner: Runner, case: Case, newest: Mapping[str, int], examples: int, ir_version: int) -> list[Result]:
    result: list[Result] = []
    with TemporaryDirectory(prefix="tenonnx-") as folder:
        for number, probe in enumerate(probes(case, newest, examples)):
            path = Path(folder, f"{number}.onnx")
            outcome, reason = _outcome(runner, probe, path, ir_version)
            entry = {**probe.facts, "outcome": outcome, "reason": reason[:_LONGEST_REASON], "with_constants": False}
            failed = outcome in (summary.WRONG, summary.REFUSED) and not probe.computed
            if failed and (fixed := with_constants(probe, newest)) is not None:
                again = _outcome(runner, replace(probe, trial=fixed), path, ir_version)
                entry["with_constants"] = again[0] == summary.RIGHT
            result.append(entry)
            if sum(each["outcome"] in (summary.CRASHED, summary.HUNG) for each in result) >= _ENOUGH:
                break
    return result


def _outcome(runner: Runner, probe: Probe, path: Path, ir_version: int) -> tuple[str, str]:
    """The outcome of a call whose model is written to ``path``, and a reason."""
    model = probe.trial.model
    model.ir_version = min(model.ir_version, ir_version)
    path.write_bytes(model.SerializeToString())
    names = [output.name for output in model.graph.output]
    try:
        outputs = runner(path, probe.trial.feeds, names)
    except CallFailed as error:
        return summary.REFUSED, _one_line(f"{error.kind}: {error.given}", path)
    except ProcessCrashed as error:
        return summary.CRASHED, _one_line(error.what, path)
    except NoAnswer as error:
        return summary.HUNG, _one_line(error.what, path)
    except InvalidCall:
        raise
    except (TenonnxError, TypeError) as error:  # feeds that cannot be sent to a process
        return summary.REFUSED, _one_line(str(error), path)
    try:
        expect(probe.case, probe.call, "it", outputs, probe.trial.expected)
    except Failure as failure:
        return summary.WRONG, _one_line(str(failure), path)
    except Exception as error:  # outputs of any kind
        return summary.WRONG, _one_line(f"its outputs cannot be compared: {error}", path)
    return summary.RIGHT, ""


def _one_line(text: str, path: Path) -> str:
    return " ".join(text.replace(str(path), "model.onnx").split())
