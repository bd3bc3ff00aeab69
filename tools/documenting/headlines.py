"""Headlines of errors, read from the sources without importing them.

A headline is an expression: a literal, an f-string, a conditional, a variable, or a parameter of a helper, whose
calls are followed. Expressions inside an f-string appear by name, in braces.
"""

from __future__ import annotations

import ast
import itertools
import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda

#: Errors of click, whose message is only a headline.
_OF_CLICK = ("UsageError", "BadParameter", "BadOptionUsage", "BadArgumentUsage", "ClickException")

#: Placeholder of a parameter in a template: the parameter's name.
_PARAMETER = re.compile(r"\0(\w+)\0")


class Message(NamedTuple):
    """A row of the table, its fields in the order of the columns."""

    headline: str
    kind: str
    module: str


class _Source(NamedTuple):
    module: str
    tree: ast.Module


class _Helper(NamedTuple):
    """A function with a parameter that is a headline, or a part of one."""

    function: Function
    template: str
    kind: str


def packages(root: Path) -> Iterator[tuple[str, Path]]:
    """The name and the source folder of every published package."""
    for path in sorted(root.glob("**/pyproject.toml")):
        inside = path.relative_to(root).parts
        if any(part.startswith(".") or part in ("tests", "build", "examples") for part in inside):
            continue
        sources = path.parent / "src"
        project = tomllib.loads(path.read_text("utf-8")).get("project")
        if project is not None and sources.is_dir():
            yield project["name"], sources


def sources(folder: Path) -> list[_Source]:
    """The modules in a folder of sources."""
    result = []
    for path in sorted(folder.rglob("*.py")):
        name = ".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__")
        result.append(_Source(name, ast.parse(path.read_text("utf-8"))))
    return result


class Headlines:
    """The headlines of all packages in ``folders``, by the name of the package."""

    def __init__(self, folders: Iterable[tuple[str, Path]]) -> None:
        self.sources = {package: sources(folder) for package, folder in folders}
        self.package_of = {id(s.tree): package for package, each in self.sources.items() for s in each}
        self.found: dict[str, set[Message]] = {package: set() for package in self.sources}
        self._all = [each for sources in self.sources.values() for each in sources]
        self._classes = self._error_classes()
        self._parents: dict[int, ast.AST] = {}
        self._source_of: dict[int, _Source] = {}
        self._imported = {s.module: set(_imported(s.tree)) for s in self._all}
        self._functions: dict[str, list[Function]] = {}
        self._calls: dict[str, list[ast.Call]] = {}
        for source in self._all:
            for node in ast.walk(source.tree):
                self._source_of[id(node)] = source
                self._parents.update((id(child), node) for child in ast.iter_child_nodes(node))
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    self._functions.setdefault(node.name, []).append(node)
                elif isinstance(node, ast.Call):
                    self._calls.setdefault(_name(node.func), []).append(node)
        self._followed: set[tuple[int, str, str]] = set()
        for name, calls in sorted(self._calls.items()):
            for call in calls:
                self._read(name, call)

    def _error_classes(self) -> dict[str, ast.ClassDef | None]:
        """Error classes by name: the project's, and None for those of click."""
        classes: dict[str, ast.ClassDef | None] = dict.fromkeys((*_OF_CLICK, "TenonnxError"))
        defined = [node for s in self._all for node in ast.walk(s.tree) if isinstance(node, ast.ClassDef)]
        while new := [c for c in defined if c.name not in classes and any(_name(b) in classes for b in c.bases)]:
            classes.update({c.name: c for c in new})
        return classes

    def _read(self, name: str, call: ast.Call) -> None:
        """Add the headlines of a call that makes an error."""
        arguments = call.args
        if name in self._classes:
            initialize = _method(self._classes[name], "__init__")
            if initialize is None:
                text = arguments[0] if arguments else _keyword(call, "what")
                self._note(call, text, name)
        elif name == "__init__" and isinstance(call.func, ast.Attribute) and _name(call.func.value) == "super":
            owner = next((p for p in self._ancestors(call) if isinstance(p, ast.ClassDef)), None)
            if owner is not None and owner.name in self._classes and arguments:
                self._note(call, arguments[0], owner.name)
        elif name == "as_a" and len(arguments) > 1:
            self._note(call, arguments[1], _name(arguments[0]))
        elif name == "holds" and arguments:
            for text in self._returned(arguments[0], call):
                self._add(call, "{op}: " + text, "TypeMismatch")

    def _note(self, call: ast.Call, text: ast.expr | None, kind: str) -> None:
        if text is not None and not isinstance(text, ast.Starred):
            for template in self._templates(text):
                self._add(call, template, kind)

    def _add(self, place: ast.AST, template: str, kind: str) -> None:
        """Add a headline, or follow the calls of the helper if it is one of the helper's parameters."""
        function = next((p for p in self._ancestors(place) if isinstance(p, Function)), None)
        names = _PARAMETER.findall(template)
        if names and function is not None and not _says_enough(template):
            self._follow(_Helper(function, template, kind))
            return
        headline = _PARAMETER.sub(r"{\1}", template).strip()
        if re.search(r"[A-Za-z]{2}", re.sub(r"\{[^{}]*\}", "", headline)):
            source = self._source(place)
            self.found[self.package_of[id(source.tree)]].add(Message(headline, kind, source.module))

    def _follow(self, helper: _Helper) -> None:
        function = helper.function
        key = (id(function), helper.template, helper.kind)
        if key in self._followed or isinstance(function, ast.Lambda):
            return
        self._followed.add(key)
        owner = self._parents[id(function)]
        name = owner.name if function.name == "__init__" and isinstance(owner, ast.ClassDef) else function.name
        source = self._source(function)
        for call in self._calls.get(name, ()):
            if not self._reaches(call, name, source, method=isinstance(owner, ast.ClassDef)):
                continue
            values: dict[str, list[str]] = {}
            for parameter in dict.fromkeys(_PARAMETER.findall(helper.template)):
                given = _argument(function, call, parameter, method=isinstance(owner, ast.ClassDef))
                values[parameter] = ["{" + parameter + "}"] if given is None else self._templates(given)
            for chosen in itertools.product(*values.values()):
                filled = dict(zip(values, chosen, strict=True))
                self._add(call, _PARAMETER.sub(lambda m: filled[m[1]], helper.template), helper.kind)  # noqa: B023

    def _reaches(self, call: ast.Call, name: str, source: _Source, *, method: bool) -> bool:
        """Whether a call of ``name`` may reach the function of that name in ``source``."""
        here = self._source(call)
        if here is source or method:
            return True
        last = source.module.rpartition(".")[2]
        if isinstance(call.func, ast.Attribute):
            return _name(call.func.value) == last
        return (source.module.split(".")[0], name) in self._imported[here.module]

    # ----- texts ------------------------------------------------------------------------------------------------------

    def _templates(self, node: ast.expr, depth: int = 3) -> list[str]:
        """Possible values of a string expression."""
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        if isinstance(node, ast.IfExp):
            return [*self._templates(node.body, depth), *self._templates(node.orelse, depth)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            return self._concatenations([node.left, node.right], depth)
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            return [text for value in node.values for text in self._templates(value, depth)]
        if isinstance(node, ast.JoinedStr):
            return self._concatenations(node.values, depth)
        if isinstance(node, ast.FormattedValue):
            return self._templates(node.value, depth) if isinstance(node.value, ast.Name) else [_shown(node.value)]
        if isinstance(node, ast.NamedExpr):
            return self._templates(node.value, depth)
        if isinstance(node, ast.Name) and depth:
            return self._of_name(node, depth - 1)
        if isinstance(node, ast.Call) and depth:
            return self._of_call(node, depth - 1)
        return [_shown(node)]

    def _concatenations(self, parts: list[ast.expr], depth: int) -> list[str]:
        """Possible concatenations of parts. Names are only followed if the literal parts say too little."""
        short = ["".join(_brief(part) for part in parts)]
        if _says_enough(short[0]):
            return short
        texts = [[str(p.value)] if isinstance(p, ast.Constant) else self._templates(p, depth) for p in parts]
        return ["".join(chosen) for chosen in itertools.islice(itertools.product(*texts), 40)]

    def _of_name(self, node: ast.Name, depth: int) -> list[str]:
        functions = [p for p in self._ancestors(node) if isinstance(p, Function)]
        for scope in (*functions, self._source(node).tree):
            assigned = [
                each.value
                for each in ast.walk(scope)
                if isinstance(each, ast.Assign | ast.NamedExpr | ast.AnnAssign) and _binds(each, node.id)
            ]
            texts = [t for v in assigned if v is not None and _is_text(v) for t in self._templates(v, depth)]
            if texts:
                return list(dict.fromkeys(texts))
            if not isinstance(scope, ast.Module) and not assigned and node.id in _parameters(scope):
                return [f"\0{node.id}\0" if scope is functions[0] else "{" + node.id + "}"]
        return ["{" + node.id + "}"]

    def _of_call(self, node: ast.Call, depth: int) -> list[str]:
        name = _name(node.func)
        texts: list[str] = []
        for function in self._functions.get(name, ()):
            if self._reaches(node, name, self._source(function), method=False) and _returns_text(function):
                texts += self._returned(function, node, depth)
        return [_PARAMETER.sub(r"{\1}", text) for text in texts] or [_shown(node)]

    def _returned(self, node: ast.AST, place: ast.AST, depth: int = 3) -> list[str]:
        """Possible return values of a function that returns strings."""
        if isinstance(node, ast.Lambda):
            texts = self._templates(node.body, depth)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            returns = [each.value for each in ast.walk(node) if isinstance(each, ast.Return) and each.value]
            texts = [text for value in returns for text in self._templates(value, depth)]
        else:
            name = _name(node.func if isinstance(node, ast.Call) else node)
            near = [f for f in self._functions.get(name, ()) if self._source(f) is self._source(place)]
            every = near or self._functions.get(name, ())
            return [text for function in every for text in self._returned(function, place, depth)]
        return [_PARAMETER.sub(r"{\1}", text) for text in texts if text != "None"]

    def _ancestors(self, node: ast.AST) -> Iterator[ast.AST]:
        while (node := self._parents.get(id(node))) is not None:  # type: ignore[assignment]
            yield node

    def _source(self, node: ast.AST) -> _Source:
        return self._source_of[id(node)]


# ----- expressions ----------------------------------------------------------------------------------------------------


def _imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The names that a module imports, each with its package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from (((node.module or "").split(".")[0], alias.name) for alias in node.names)


def _says_enough(template: str) -> bool:
    """Whether the literal words of a template say what failed, without the names in it."""
    return len(re.findall(r"[A-Za-z]{2,}", re.sub(r"\{[^{}]*\}", "", _PARAMETER.sub("", template)))) >= 2


def _brief(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(map(_brief, node.values))
    if isinstance(node, ast.BinOp):
        return _brief(node.left) + _brief(node.right)
    return _shown(node)


def _shown(node: ast.AST) -> str:
    """Placeholder of an expression: its name in braces, or one of its possible values."""
    if isinstance(node, ast.FormattedValue):
        return _shown(node.value)
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.IfExp):
        return " | ".join(dict.fromkeys(text for text in (_brief(node.body), _brief(node.orelse)) if text.strip()))
    if (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "counted"
        and len(node.args) == 2
    ):
        return f"{_shown(node.args[0])} {_brief(node.args[1])}s"
    return "{" + _word(node) + "}"


def _word(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id.strip("_")
    if isinstance(node, ast.Attribute):
        return (
            f"{node.value.id}.{node.attr}"
            if isinstance(node.value, ast.Name) and node.value.id != "self"
            else node.attr
        )
    if isinstance(node, ast.Subscript | ast.Starred | ast.Await):
        return _word(node.value)
    if isinstance(node, ast.Call):
        inner = [_word(each) for each in node.args if not isinstance(each, ast.Constant | ast.Lambda)]
        return inner[-1] if inner else _word(node.func)
    if isinstance(node, ast.GeneratorExp | ast.ListComp):
        return _word(node.generators[0].iter)
    if isinstance(node, ast.BoolOp):
        return _word(node.values[0])
    if isinstance(node, ast.BinOp):
        return _word(node.left) if not isinstance(node.left, ast.Constant) else _word(node.right)
    return "..."


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        return _name(node.func)
    return node.id if isinstance(node, ast.Name) else ""


def _binds(node: ast.Assign | ast.NamedExpr | ast.AnnAssign, name: str) -> bool:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return any(isinstance(target, ast.Name) and target.id == name for target in targets)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.IfExp):
        return _is_text(node.body) or _is_text(node.orelse)
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _returns_text(function: Function) -> bool:
    returns = getattr(function, "returns", None)
    return returns is not None and ast.unparse(returns) in ("str", "str | None")


def _method(owner: ast.ClassDef | None, name: str) -> ast.FunctionDef | None:
    body = [] if owner is None else owner.body
    return next((node for node in body if isinstance(node, ast.FunctionDef) and node.name == name), None)


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [each.arg for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((each.value for each in call.keywords if each.arg == name), None)


def _argument(function: Function, call: ast.Call, name: str, *, method: bool) -> ast.expr | None:
    """Argument of a call for a parameter, or its default."""
    if (given := _keyword(call, name)) is not None:
        return given
    positional = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    first = positional[1:] if method and positional and positional[0] in ("self", "cls") else positional
    if name in first and first.index(name) < len(call.args):
        given = call.args[first.index(name)]
        return None if isinstance(given, ast.Starred) else given
    defaults = dict(zip(positional[::-1], function.args.defaults[::-1], strict=False))
    return defaults.get(name)
