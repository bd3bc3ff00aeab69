"""Style of docstrings, comments and names, see ``docs/reference/glossary.md``."""

import ast
import functools
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"

#: First words of a relative clause; a docstring begins with a verb in the imperative, or with a noun.
CLAUSES = re.compile(r"(What|Which|How|Where|When|Who|Whose|Why)\b")

#: Phrases that do not belong in a module's heading: relative clauses, and words with another usual meaning.
HEADINGS = re.compile(
    r"\b(what|beside|alone|tells?|told|strangers?|kin)\b|[,:] (which|whose|how)\b|\b(is|are) no\b", re.I
)

#: British spellings, where ONNX has the American ones.
BRITISH = re.compile(
    r"(quantis|normalis|initialis|optimis|serialis|tokenis|canonicalis|specialis|recognis|parallelis)"
    r"(e|es|ed|er|ers|ing|ation|ations)(?![a-z])"
    r"|(?<![a-z])(colour|behaviour|neighbour|favour|honour|labell|modell|licence)(s|ed|ing|ful|able)?(?![a-z])"
    r"(?!_by_classes)",  # an attribute of onnxruntime-extensions
    re.IGNORECASE,
)

#: A word of a name: ``AsUsed``, ``as_used`` and ``AS_USED`` have the words ``as`` and ``used``.
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@functools.cache
def files() -> tuple[Path, ...]:
    """Python files in Git, and untracked ones that are not ignored."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.py"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return tuple(path for name in listed.splitlines() if (path := ROOT / name).is_file())


@functools.cache
def parsed() -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text("utf-8")) for path in files()}


@functools.cache
def defining() -> tuple[tuple[str, ast.AST], ...]:
    """Syntax nodes that have a docstring or define a name, with the paths of their files."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef, ast.arg, ast.Name, ast.Attribute)
    return tuple(
        (path, node)
        for path, tree in parsed().items()
        for node in ast.walk(tree)
        if isinstance(node, kinds) and not isinstance(getattr(node, "ctx", None), ast.Load)
    )


def names(node: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and name that a syntax node defines."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            yield node.lineno, name
        case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
            yield node.lineno, name


def banned() -> dict[str, str]:
    """Words that names must not contain, with their replacements, from the last table of the glossary."""
    table = GLOSSARY.read_text("utf-8").partition("## Not used")[2]
    return dict(re.findall(r"^\| `(\w+)` \| (.+?) \|", table, re.MULTILINE))


def has_word(name: str, wanted: str) -> bool:
    """Whether the words of a name contain those of another as a consecutive sequence."""
    if wanted.replace("_", "") not in name.replace("_", "").lower():
        return False  # fast path for nearly all names
    words, sought = [[word.lower() for word in WORD.findall(each)] for each in (name, wanted)]
    return any(words[k : k + len(sought)] == sought for k in range(len(words) - len(sought) + 1))


def test_docstrings_begin_with_a_verb_or_a_noun():
    clauses = [
        f"{path}:{node.body[0].lineno}: {text.splitlines()[0]}"
        for path, node in defining()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (text := ast.get_docstring(node))
        and CLAUSES.match(text)
    ]
    assert clauses == []


def test_module_headings_are_noun_phrases():
    headings = {path: (ast.get_docstring(tree) or "").partition("\n\n")[0] for path, tree in parsed().items()}
    result = {path: heading for path, heading in headings.items() if HEADINGS.search(re.sub("``.*?``", "", heading))}
    assert result == {}


def test_functions_have_names():
    """Tracebacks and profiles print the name of a function."""
    unnamed = [
        f"{path}:{node.lineno}"
        for path, node in defining()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.strip("_")
    ]
    assert unnamed == []


def test_the_formatter_is_not_switched_off():
    switched_off = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files()
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if re.search(r"#\s*fmt: ?(skip|off)", line)
    ]
    assert switched_off == []


def test_names_have_no_banned_words():
    words = banned()
    assert len(words) > 5
    result = [
        f"{path}:{line}: {name}: {word} is {words[word]}"
        for path, node in defining()
        for line, name in names(node)
        for word in words
        if has_word(name, word)
    ]
    assert result == []
    modules = [f"{path}: {word}" for path in parsed() for word in words if has_word(Path(path).stem, word)]
    assert modules == []


@pytest.mark.parametrize(
    ("name", "word", "has"),
    [
        ("AsUsed", "as_used", True),
        ("is_as_used_by", "as_used", True),
        ("was_used", "as_used", False),
        ("RespelledCall", "respelled", True),
        ("unlearned", "learned", False),
    ],
)
def test_words_of_names(name, word, has):
    assert has_word(name, word) == has


def test_words_are_american():
    pages = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")]
    pages += [*sorted((ROOT / "docs").rglob("*.md")), *sorted((ROOT / "changes").glob("*.md"))]
    here = Path(__file__)
    british = [
        f"{path.relative_to(ROOT)}:{number}: {result[0]}"
        for path in (*files(), *pages)
        if path != here
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if (result := BRITISH.search(line))
    ]
    assert british == []
