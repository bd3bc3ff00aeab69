"""Test function of an op package, and the outcomes of its tests."""

from __future__ import annotations

import sys
import tomllib
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from tenonnx.extend import InvalidCall, Registry
from tenonnx.extend.testing import default_registry
from tenonnx_testing.cases import EXAMPLES
from tenonnx_testing.collecting import Item, find_items
from tenonnx_testing.kit import seed_draws
from tenonnx_testing.run import Failure


def project_of(place: Path) -> str:
    """Name of the project that contains a file or folder. Raises ``InvalidCall`` if there is none."""
    for folder in [place.absolute(), *place.absolute().parents]:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return str(tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))["project"]["name"])
    do = 'name the domain or distribution: conformance("com.acme")'
    raise InvalidCall("no project found for a conformance test without a name", given=str(place), do=do)


def conformance(
    domain_or_distribution: str | None = None, *, op: str | None = None, registry: Registry | None = None
) -> Callable[..., None]:
    """Return a pytest function with all checks of all cases of a domain or distribution.

    ``test = conformance("my.domain")`` is a complete test file. The default is the project that contains the calling
    file. ``op`` restricts the tests to one op. Cases are found through the entry-point group ``tenonnx.conformance``.
    Raises ``InvalidCall`` if no installed package has that name or domain, or none of its ops is called ``op``.
    """
    wanted = domain_or_distribution or project_of(Path(sys._getframe(1).f_code.co_filename))
    items = list(find_items(wanted, default_registry() if registry is None else registry))
    if op is not None:
        items = _items_of(op, items)

    @pytest.mark.parametrize("item", items, ids=[item.label for item in items])
    @pytest.mark.tenonnx_always(*(item.label for item in items if item.always))
    def test(item: Item, request: pytest.FixtureRequest) -> None:
        seed_draws(request.config.getoption("tenonnx_seed", 0))
        run_item(item.run, request.config.getoption("tenonnx_examples", EXAMPLES), item.label)

    return test


def _items_of(op: str, items: list[Item]) -> list[Item]:
    """Tests of one op, by its name with or without domain and version."""
    titles = {item.label: item.label.partition("-")[0].partition("#")[0] for item in items if "@" in item.label}
    names = {
        title: {title, title.partition("@")[0], title.partition("@")[0].rpartition(".")[2]} for title in titles.values()
    }
    result = [item for item in items if item.label in titles and op in names[titles[item.label]]]
    if not result:
        known = sorted({title.partition("@")[0] for title in titles.values()})
        raise InvalidCall(f'there is no op "{op}" with conformance tests', available=", ".join(known))
    return result


#: Outcome of each test of this process, by test id.
_outcomes: dict[str, str] = {}


def outcomes() -> dict[str, str]:
    """Outcomes of the tests of this process by test id: passed, failed, skipped or xfailed, with the reason."""
    return dict(_outcomes)


def run_item(run: Callable[[int], None], examples: int, label: str = "") -> None:
    """Run one test; report a failure by its message and source line instead of a traceback through the kit."""
    try:
        run(examples)
    except Failure as failure:
        _outcomes[label] = f"failed: {failure}"
        text = "\n".join([str(failure), *_places(failure), *getattr(failure, "__notes__", [])])
        raise pytest.fail.Exception(text, pytrace=False) from None
    except (pytest.skip.Exception, pytest.xfail.Exception) as outcome:
        _outcomes[label] = f"{'xfailed' if isinstance(outcome, pytest.xfail.Exception) else 'skipped'}: {outcome}"
        raise
    except BaseException as error:
        _outcomes[label] = f"failed: {type(error).__name__}: {error}"
        raise
    _outcomes[label] = "passed"


def _places(failure: Failure) -> list[str]:
    """Source line where the exception behind a failure was raised, as a list of at most one text."""
    cause: BaseException = failure
    while cause.__cause__ is not None:
        cause = cause.__cause__
    frames = traceback.extract_tb(cause.__traceback__) if cause is not failure else []
    notes = "\n".join(getattr(failure, "__notes__", ()))
    places = [f"{frame.filename}:{frame.lineno}: {frame.line}" for frame in frames[-1:]]
    return [f"raised by {place}" for place in places if place not in notes]
