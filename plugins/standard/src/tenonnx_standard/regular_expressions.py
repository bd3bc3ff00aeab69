"""Regular expressions in the syntax of RE2, in linear time.

Uses the package ``google-re2`` if installed. Otherwise an automaton tracks all alternatives in parallel, since
backtracking in Python's ``re`` takes exponential time for some patterns.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence
from re import _compiler, _constants, _parser  # type: ignore[attr-defined]
from typing import Any, NamedTuple, Protocol

from tenonnx.extend import TypeMismatch, installing, limits

Span = tuple[int, int]


class RegularExpression(Protocol):
    """A compiled pattern."""

    def matches(self, text: str) -> bool:
        """Whether the pattern matches the entire text."""
        ...

    def spans(self, text: str) -> Iterator[Span]:
        """Spans of non-overlapping matches from left to right. Alternatives are tried in order."""
        ...


@functools.lru_cache(maxsize=256)
def compiled(title: str, pattern: str | None) -> RegularExpression:
    """Compile an RE2 pattern.

    Raises ``TypeMismatch`` for invalid syntax, ``LimitExceeded`` for one that is too long.
    """
    if pattern is None:
        raise TypeMismatch(f"{title}: the pattern is missing", do="write the attribute pattern")
    limits.check("pattern", len(pattern), f"{title}: the pattern")
    try:
        import re2
    except ImportError:
        return _compiled_here(title, pattern)
    options = re2.Options()
    options.log_errors = False
    try:
        return _OfPackage(re2.compile(pattern, options))
    except re2.error as error:
        raise TypeMismatch(f"{title}: cannot parse the pattern: {error}", given=pattern) from error


class _OfPackage(NamedTuple):
    pattern: Any

    def matches(self, text: str) -> bool:
        return self.pattern.fullmatch(text) is not None

    def spans(self, text: str) -> Iterator[Span]:
        for found in self.pattern.finditer(text):
            yield found.span()


# ----- syntax ---------------------------------------------------------------------------------------------------------

#: The ASCII classes of RE2, for use inside brackets.
_CLASSES = {
    "alnum": "0-9A-Za-z",
    "alpha": "A-Za-z",
    "ascii": r"\x00-\x7f",
    "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": "!-~",
    "lower": "a-z",
    "print": " -~",
    "punct": r"!-/:-@\[-`{-~",
    "space": r"\t\n\v\f\r ",
    "upper": "A-Z",
    "word": r"0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}

#: Syntax that RE2 and Python interpret differently, or that only Python has.
_DIFFERENT = re.compile(
    r"\\Q(?P<literal>.*?)(?:\\E|$)|\[:(?P<kind>\w+):\]|(?P<escape>\\.)|(?P<group>\(\?<?[=!]|\(\?<)", re.DOTALL
)

#: Maximum repetition count of RE2.
_MOST_REPEATED = 1000


def _compiled_here(title: str, pattern: str) -> RegularExpression:
    def translated(found: re.Match[str]) -> str:
        if found["literal"] is not None:
            return re.escape(found["literal"])
        if found["kind"] is not None:
            return _CLASSES[found["kind"]]
        if found["escape"] is not None:
            if found["escape"][1] in "123456789pPC":
                raise TypeMismatch(
                    f"{title}: unsupported syntax in a pattern: {found['escape']}", given=pattern, do=_advice()
                )
            return r"\Z" if found["escape"] == r"\z" else found["escape"]
        if found["group"] != "(?<":
            raise TypeMismatch(f"{title}: RE2 does not support lookaround", given=pattern)
        return "(?P<"

    try:
        tree = _parser.parse(_DIFFERENT.sub(translated, pattern), re.ASCII)
        return _Automaton(title, pattern, tree)
    except (re.error, KeyError, OverflowError) as error:
        raise TypeMismatch(f"{title}: cannot parse the pattern: {error}", given=pattern, do=_advice()) from error


def _advice() -> str:
    return f"{installing('tenonnx-standard[text]')}: it knows all of RE2"


# ----- automata -------------------------------------------------------------------------------------------------------

_JUMP, _TEST, _READ, _END = range(4)

#: A state: its kind, its successors in order of preference, and a test of a position or of the next character.
Instruction = tuple[int, tuple[int, ...], Callable[..., bool] | None]

#: Maximum number of cached state sets.
_REMEMBERED = 10_000


class _Automaton:
    """A nondeterministic automaton, whose states are tracked in parallel."""

    def __init__(self, title: str, pattern: str, tree: Any) -> None:
        self.title, self.pattern = title, pattern
        self.steps: list[Instruction] = []
        self._sequence(tree, tree.state.flags)
        self._add(_END, ())
        self._places = any(kind == _TEST for kind, _, _ in self.steps)
        self._remembered: dict[tuple[tuple[int, ...], str], tuple[int, ...]] = {}

    # ----- construction

    def _add(self, kind: int, to: tuple[int, ...], test: Callable[..., bool] | None = None) -> int:
        limits.check("pattern", len(self.steps) + 1, f"{self.title}: the automaton of the pattern")
        self.steps.append((kind, to, test))
        return len(self.steps) - 1

    def _sequence(self, items: Any, flags: int) -> None:
        for operator, argument in items:
            self._item(operator, argument, flags)

    def _item(self, operator: Any, argument: Any, flags: int) -> None:
        name = str(operator)
        if name in ("LITERAL", "NOT_LITERAL", "ANY", "IN"):
            self._add(_READ, (len(self.steps) + 1,), _character(operator, argument, flags))
        elif name == "SUBPATTERN":
            _, added, removed, inner = argument
            self._sequence(inner, (flags | added) & ~removed)
        elif name == "BRANCH":
            self._branch(argument[1], flags)
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            self._repeat(*argument, name == "MAX_REPEAT", flags)  # type: ignore[call-arg]
        elif name == "AT":
            self._add(_TEST, (len(self.steps) + 1,), _place(operator, argument, flags))
        else:
            raise TypeMismatch(f"{self.title}: RE2 has no {name.lower().replace('_', ' ')}", given=self.pattern)

    def _branch(self, choices: Sequence[Any], flags: int) -> None:
        ends = []
        for choice in choices[:-1]:
            fork = self._add(_JUMP, ())
            self._sequence(choice, flags)
            ends.append(self._add(_JUMP, ()))
            self.steps[fork] = (_JUMP, (fork + 1, len(self.steps)), None)
        self._sequence(choices[-1], flags)
        for end in ends:
            self.steps[end] = (_JUMP, (len(self.steps),), None)

    def _repeat(self, least: int, most: Any, item: Any, greedy: bool, flags: int) -> None:
        unbounded = most is _constants.MAXREPEAT
        if least > _MOST_REPEATED or (not unbounded and most > _MOST_REPEATED):
            raise TypeMismatch(
                f"{self.title}: the pattern repeats more than {_MOST_REPEATED} times, the limit of RE2",
                given=self.pattern,
            )
        forks = [self._add(_JUMP, ())] if unbounded and not least else []
        start = len(self.steps)
        for _ in range(max(least, 1) if unbounded else least):  # RE2 repeats an empty match once, too
            start = len(self.steps)
            self._sequence(item, flags)
        for _ in range(0 if unbounded else most - least):
            forks.append(self._add(_JUMP, ()))
            self._sequence(item, flags)
        if unbounded:
            again = (start, len(self.steps) + 1)
            self._add(_JUMP, again if greedy else again[::-1])
        for fork in forks:
            to = (fork + 1, len(self.steps))
            self.steps[fork] = (_JUMP, to if greedy else to[::-1], None)

    # ----- matching

    def matches(self, text: str) -> bool:
        states = self._reach([0], text, 0)
        for place, character in enumerate(text):
            if not states:
                return False
            key = (states, character)
            following = self._remembered.get(key)
            if following is None or self._places:
                following = self._reach(self._read(states, character), text, place + 1)
                if len(self._remembered) > _REMEMBERED:
                    self._remembered.clear()
                self._remembered[key] = following
            states = following
        return any(self.steps[state][0] == _END for state in states)

    def spans(self, text: str) -> Iterator[Span]:
        start = 0
        while (found := self._search(text, start)) is not None:
            yield found
            start = max(found[1], found[0] + 1)

    def _search(self, text: str, start: int) -> Span | None:
        """The first match from ``start`` on; of those with the same start, the most preferred."""
        result: Span | None = None
        threads: list[tuple[int, int]] = []  # start of a match and its state, the most preferred first
        for place in range(start, len(text) + 1):
            if result is None:
                threads.append((place, 0))
            elif not threads:
                break
            seen: set[int] = set()
            reached = []
            for begin, state in threads:
                reached += [(begin, each) for each in self._reach([state], text, place, seen)]
            threads = []
            for begin, state in reached:
                kind, to, test = self.steps[state]
                if kind == _END:
                    result = (begin, place)
                    break
                if place < len(text) and test is not None and test(text[place]):
                    threads.append((begin, to[0]))
        return result

    def _read(self, states: Sequence[int], character: str) -> list[int]:
        steps = (self.steps[state] for state in states)
        return [to[0] for kind, to, test in steps if kind == _READ and test is not None and test(character)]

    def _reach(self, states: Sequence[int], text: str, place: int, seen: set[int] | None = None) -> tuple[int, ...]:
        """The reading and final states reachable without reading, the most preferred first."""
        seen = set() if seen is None else seen
        reached = []
        left = list(states)[::-1]
        while left:
            state = left.pop()
            if state in seen:
                continue
            seen.add(state)
            kind, to, test = self.steps[state]
            if kind in (_READ, _END):
                reached.append(state)
            elif kind == _JUMP or (test is not None and test(text, place)):
                left.extend(to[::-1])
        return tuple(reached)


def _single(operator: Any, argument: Any, flags: int) -> re.Pattern[str]:
    """A pattern of a single item, which Python matches without backtracking."""
    state = _parser.State()
    state.flags = flags
    pattern: re.Pattern[str] = _compiler.compile(_parser.SubPattern(state, [(operator, argument)]), flags)
    return pattern


def _character(operator: Any, argument: Any, flags: int) -> Callable[[str], bool]:
    match = _single(operator, argument, flags).match
    return functools.lru_cache(maxsize=512)(lambda character: match(character) is not None)


def _place(operator: Any, argument: Any, flags: int) -> Callable[[str, int], bool]:
    if argument is _constants.AT_END and not flags & re.MULTILINE:
        return lambda text, place: place == len(text)  # RE2 means the very end, Python also before a final newline
    match = _single(operator, argument, flags).match
    return lambda text, place: match(text, place) is not None
