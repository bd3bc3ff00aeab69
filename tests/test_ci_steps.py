"""Steps of ``.ci/run``: each test file belongs to one step, and the workflow has a job for each step."""

import ast
import functools
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RUN = (ROOT / ".ci/run").read_text("utf-8")
OPTIONS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["pytest"]["ini_options"]

#: Files and folders that several steps run, with the reasons.
REPEATED = {
    "plugins/backends/onnxruntime/tests/test_state.py": "state is kept alike by OpenVINO",
    "plugins/extensions/tests/test_conformance.py": "the nightly step draws more calls",
    "plugins/frontends/tensorflow/tests/backends": "Keras computes on JAX and on PyTorch",
    "plugins/testing/tests/test_winml.py": "its tables need pyarrow",
    "plugins/training/tests/test_backends_agree.py": "PyTorch and JAX train alike",
}


@functools.cache
def test_files():
    """Test files below the test paths, from Git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *OPTIONS["testpaths"]]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    return [name for name in listed if re.search(r"(^|/)tests/(.*/)?test_[^/]*\.py$", name)]


test_files.__test__ = False


@functools.cache
def named():
    """Paths that each step with its own environment passes to pytest."""
    bodies = dict(re.findall(r"^(\w+)\(\) \{(.*?)^\}", RUN, re.MULTILINE | re.DOTALL))
    lines = {step: re.findall(r'^ *"\$python" -m pytest (.*)$', body, re.MULTILINE) for step, body in bodies.items()}
    return {
        step: [word for line in result for word in line.split() if (ROOT / word).exists()]
        for step, result in lines.items()
        if result
    }


def is_below(name, paths):
    return any(Path(name).is_relative_to(path) for path in paths)


def steps_of(name):
    """Steps that run a test file: those that name it or its folder, or else steps of the default environment."""
    above = [path for paths in named().values() for path in paths if is_below(name, [path])]
    homes = [path for path in above if path != name]
    home = max(homes, key=len, default=None)
    result = [step for step, paths in named().items() if name in paths or home in paths]
    if home is None:
        result.append("slow" if is_below(name, OPTIONS["slow"]) else "tests")
    return result


def test_each_test_file_is_run_by_one_step():
    files = test_files()
    assert len(files) > 400
    steps = {name: steps_of(name) for name in files}
    several = {name for name, result in steps.items() if len(result) > 1}
    assert {name for name in several if not is_below(name, REPEATED)} == set()
    assert [path for path in REPEATED if not any(is_below(name, [path]) for name in several)] == []
    assert {step for result in steps.values() for step in result} >= {"tests", "slow", "torch", "extensions"}


def test_the_default_environment_skips_folders_of_other_environments():
    ignored = re.findall(r"--slow --ignore (\S+)", RUN)
    for step, paths in named().items():
        for folder in (path for path in paths if (ROOT / path).is_dir()):
            guards = [(ROOT / folder / "conftest.py"), (ROOT / folder).parent / "conftest.py"]
            assert any("collect_ignore" in each.read_text("utf-8") for each in guards if each.exists()), (step, folder)
            assert is_below(folder, OPTIONS["slow"]) == (folder in ignored), folder


def test_slow_files_exist():
    assert [path for path in OPTIONS["slow"] if not (ROOT / path).exists()] == []


def test_the_workflow_has_a_job_for_each_step():
    steps = " ".join(re.findall(r"^(?:narrow|wide)=\((.*?)\)", RUN, re.MULTILINE))
    (jobs,) = re.findall(r"^ +step: \[(.*)\]$", (ROOT / ".github/workflows/ci.yml").read_text("utf-8"), re.MULTILINE)
    assert jobs.split(", ") == steps.split()


def test_tests_that_need_vnni_exist():
    """``conftest.py`` skips them by parts of their names, which a renaming would change."""
    source = (ROOT / "conftest.py").read_text("utf-8")
    assigned = {each.targets[0].id: each.value for each in ast.parse(source).body if isinstance(each, ast.Assign)}
    for path, parts in ast.literal_eval(assigned["EXACT"]).items():
        names = re.findall(r"^def (test_\w+)", (ROOT / path).read_text("utf-8"), re.MULTILINE)
        ends = {part.partition("[")[0] for part in parts if re.match(r"[a-z]\w+(\[|$)", part)}
        assert [end for end in ends if not any(name.endswith(end) for name in names)] == []


@pytest.mark.parametrize("arguments", [[], ["--slow"], ["plugins/made/tests"]])
def test_a_run_without_paths_skips_slow_files(arguments, tmp_path):
    """Also in pytest's worker processes."""
    folder = tmp_path / "plugins/made/tests"
    folder.mkdir(parents=True)
    for name in ("quick", "slow"):
        (folder / f"test_{name}.py").write_text(f"def test_{name}(): pass\n")
    (tmp_path / "conftest.py").write_text((ROOT / "conftest.py").read_text("utf-8"))
    (tmp_path / "pytest.ini").write_text("[pytest]\ntestpaths = plugins\nslow = plugins/made/tests/test_slow.py\n")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-n", "1", "-rA", *arguments]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    ran = set(re.findall(r"^PASSED \S+::test_(\w+)", done.stdout, re.MULTILINE))
    assert ran == {(): {"quick"}, ("--slow",): {"slow"}}.get(tuple(arguments), {"quick", "slow"}), done.stdout
