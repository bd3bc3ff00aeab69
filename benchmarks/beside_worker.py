"""Work of one tool in its own environment: ``python beside_worker.py TASK TOOL ROUNDS < jobs.json``.

Jobs are ``{"id", "source", "output", "opset"}``. Each prints a line of JSON with its median seconds, or the error; the
last line has the peak memory of the process in KiB. ``beside.py`` starts this, also in environments without tenonnx.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

Job = dict[str, Any]

#: Time limit in seconds for fitting and exporting one estimator.
LONGEST = 4

#: Time limit in seconds for all exports of one module.
SLOWEST = 240


def convert_tenonnx(job: Job) -> None:
    import tenonnx as tx

    tx.export(tx.retarget(tx.load(job["source"]), opset_version=job["opset"]), job["output"])


def convert_version_converter(job: Job) -> None:
    import onnx
    from onnx import version_converter

    onnx.save(version_converter.convert_version(onnx.load(job["source"]), job["opset"]), job["output"])


def simplify_tenonnx(job: Job) -> None:
    import tenonnx as tx

    tx.export(tx.simplify(tx.load(job["source"])), job["output"])


def simplify_onnxsim(job: Job) -> None:
    import onnx
    import onnxsim

    onnx.save(onnxsim.simplify(onnx.load(job["source"]))[0], job["output"])


def simplify_onnxslim(job: Job) -> None:
    import onnxslim

    onnxslim.slim(job["source"], job["output"])


def quantize_tenonnx(job: Job) -> None:
    import tenonnx as tx

    tx.export(tx.quantize(tx.load(job["source"]), mode="dynamic")[0], job["output"])


def quantize_onnxruntime(job: Job) -> None:
    from onnxruntime.quantization import quantize_dynamic

    quantize_dynamic(job["source"], job["output"])


def estimator_tenonnx(estimator: Any, rows: Any, path: str) -> None:
    import tenonnx as tx

    tx.export(tx.load(estimator, rows, verify=False), path)


def estimator_skl2onnx(estimator: Any, rows: Any, path: str) -> None:
    from skl2onnx import to_onnx

    Path(path).write_bytes(to_onnx(estimator, rows).SerializeToString())


def module_tenonnx(module: Any, inputs: tuple[Any, ...], path: str) -> None:
    import tenonnx as tx

    tx.export(tx.load(module, *inputs, verify=False), path)


def module_torch(module: Any, inputs: tuple[Any, ...], path: str) -> None:
    import torch

    torch.onnx.export(module, inputs, path, dynamo=True, external_data=False)


def module_script(module: Any, inputs: tuple[Any, ...], path: str) -> None:
    import torch

    torch.onnx.export(module, inputs, path, dynamo=False)


TOOLS: dict[str, dict[str, Callable[..., None]]] = {
    "convert": {"tenonnx": convert_tenonnx, "onnx.version_converter": convert_version_converter},
    "simplify": {"tenonnx": simplify_tenonnx, "onnxsim": simplify_onnxsim, "onnxslim": simplify_onnxslim},
    "quantize": {"tenonnx": quantize_tenonnx, "onnxruntime.quantization": quantize_onnxruntime},
    "estimators": {"tenonnx": estimator_tenonnx, "skl2onnx": estimator_skl2onnx},
    "modules": {
        "tenonnx": module_tenonnx,
        "torch.onnx.export": module_torch,
        "torch.onnx.export(dynamo=False)": module_script,
    },
}

#: For each tool the functions of tenonnx-compat that replace it.
SHIMS = {
    "tenonnx_compat.version_converter": "onnx.version_converter",
    "tenonnx_compat.onnxsim": "onnxsim",
    "tenonnx_compat.onnxslim": "onnxslim",
    "tenonnx_compat.quantization": "onnxruntime.quantization",
    "tenonnx_compat.skl2onnx": "skl2onnx",
    "tenonnx_compat.torch_onnx": "torch.onnx.export",
}

#: Image architectures: package and factory function.
IMAGES = {
    "torchvision": (
        "alexnet densenet121 efficientnet_b0 googlenet mobilenet_v2 mobilenet_v3_small regnet_x_400mf resnet18 "
        "resnet50 shufflenet_v2_x0_5 squeezenet1_1 vgg11"
    ),
    "timm": (
        "vit_tiny_patch16_224 deit_tiny_patch16_224 convnext_atto mobilevit_xxs mixer_s32_224 ghostnet_050 "
        "edgenext_xx_small efficientformer_l1 levit_128s poolformer_s12"
    ),
}

#: Architectures of transformers, built with small configurations.
TEXTS = (
    "Albert Bert DistilBert Electra GPT2 GPTNeoX Llama MobileBert MPNet OPT Phi Qwen2 Roberta RoFormer SqueezeBert "
    "XLMRoberta"
)


def timed(work: Callable[[], None], rounds: int) -> float:
    """Median processor seconds of ``rounds`` calls, after one warm-up call."""
    times = []
    for k in range(rounds + 1):
        start = time.process_time()
        work()
        times += [time.process_time() - start] if k else []
    return statistics.median(times)


def files(jobs: list[Job], work: Callable[[Job], None], rounds: int) -> Iterator[Job]:
    """Run each job that has a file; yields the results."""
    for job in jobs:
        yield {"id": job["id"], "begun": True}
        try:
            yield {"id": job["id"], "seconds": timed(lambda job=job: work(job), rounds)}  # type: ignore[misc]
        except Exception as error:
            yield {"id": job["id"], "error": said(error)}


def estimators(folder: str, export: Callable[..., None], rounds: int) -> Iterator[Job]:
    """Export each scikit-learn estimator that can be fitted to the iris data with defaults; yields the results."""
    import numpy as np
    from sklearn.datasets import load_iris
    from sklearn.utils import all_estimators

    X, y = load_iris(return_X_y=True)  # noqa: N806
    X = X.astype(np.float32)  # noqa: N806
    for name, kind in all_estimators():
        np.random.seed(0)
        try:
            with within(LONGEST):
                estimator = kind()
                with suppress(Exception):
                    estimator.set_params(random_state=0)
                estimator.fit(X, y)
                method = next(m for m in ("predict", "transform") if hasattr(estimator, m))
                wanted = getattr(estimator, method)(X)
                wanted = np.asarray(wanted.toarray() if hasattr(wanted, "toarray") else wanted)
        except BaseException:  # the estimator needs other data or arguments, or takes too long
            continue
        path = f"{folder}/{name}.onnx"
        try:
            with within(LONGEST):
                seconds = timed(lambda: export(estimator, X, path), rounds)  # noqa: B023
        except Exception as error:
            yield {"id": name, "error": said(error)}
            continue
        yield {"id": name, "seconds": seconds, **judged(path, X, wanted)}


def modules(folder: str, export: Callable[..., None], rounds: int) -> Iterator[Job]:
    """Export each architecture with random weights; yields the results. Skips missing packages."""
    import numpy as np
    import onnxruntime
    import torch

    for name, make in architectures():
        torch.manual_seed(0)
        path = f"{folder}/{name.replace('/', '-')}.onnx"
        try:
            module, inputs = make()
            with torch.no_grad():
                wanted = first_tensor(module(*inputs))
        except Exception as error:  # this version of the package does not have it
            print(name, said(error), file=sys.stderr)
            continue
        yield {"id": name, "begun": True}
        try:
            with within(SLOWEST):
                seconds = timed(lambda: export(module, inputs, path), rounds)  # noqa: B023
        except Exception as error:
            yield {"id": name, "error": said(error)}
            continue
        try:
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            names = [each.name for each in session.get_inputs()]
            feeds = {each: array.numpy() for each, array in zip(names, inputs, strict=True)}
            given = session.run(None, feeds)[0]
            error = float(np.abs(given - wanted.numpy()).max() / max(float(wanted.abs().max()), 1e-12))
            yield {"id": name, "seconds": seconds, "right": error < 1e-3, "why": f"outputs differ by {error:.2g}"}
        except Exception as failure:
            yield {"id": name, "seconds": seconds, "right": False, "why": said(failure)}


def first_tensor(result: Any) -> Any:
    """The first tensor of a module's output: a tensor, a tuple or a dataclass."""
    while not hasattr(result, "detach"):
        result = next(iter(result.values())) if hasattr(result, "values") else result[0]
    return result


def architectures() -> Iterator[tuple[str, Callable[[], tuple[Any, tuple[Any, ...]]]]]:
    """Names of architectures, with functions that make a module in evaluation mode and its inputs."""
    import importlib

    import torch

    def images(package: str, name: str) -> tuple[Any, tuple[Any, ...]]:
        if package == "timm":
            network = importlib.import_module("timm").create_model(name, pretrained=False)
        else:
            network = importlib.import_module("torchvision.models").get_model(name, weights=None)
        return network.eval(), (torch.randn(1, 3, 224, 224),)

    def texts(name: str) -> tuple[Any, tuple[Any, ...]]:
        package = importlib.import_module("transformers")
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        sizes |= {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64, "n_embd": 32, "n_layer": 2, "n_head": 4}
        sizes |= {"embedding_size": 32, "vocab_size": 64, "ffn_dim": 64, "word_embed_proj_dim": 32}
        sizes |= {"num_key_value_heads": 2, "pad_token_id": 0, "use_cache": False, "true_hidden_size": 32}
        kind = getattr(package, f"{name}Config")
        known = {key: size for key, size in sizes.items() if hasattr(kind(), key)}
        module = getattr(package, f"{name}Model")(kind(**known)).eval()
        return module, (torch.randint(1, 64, (2, 7)),)

    for package, names in IMAGES.items():
        for name in names.split():
            yield f"{package}/{name}", lambda package=package, name=name: images(package, name)  # type: ignore[misc]
    for name in TEXTS.split():
        yield f"transformers/{name}", lambda name=name: texts(name)  # type: ignore[misc]


def judged(path: str, rows: Any, wanted: Any) -> Job:
    """Compare the first output of a file in onnxruntime with the estimator's output."""
    import numpy as np
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        given = np.asarray(session.run(None, {session.get_inputs()[0].name: rows})[0])
        if given.size != wanted.size:
            return {"right": False, "why": f"{given.shape} in place of {wanted.shape}"}
        given = given.reshape(wanted.shape)
        if wanted.dtype.kind in "fc":
            return {"right": bool(np.allclose(given, wanted, rtol=1e-3, atol=1e-4)), "why": "other numbers"}
        return {"right": bool(np.mean(given == wanted) > 0.99), "why": "other labels"}
    except Exception as error:
        return {"right": False, "why": said(error)}


class within:  # noqa: N801
    """Context manager that raises ``TimeoutError`` after ``seconds``."""

    def __init__(self, seconds: int) -> None:
        self.seconds = seconds

    def __enter__(self) -> None:
        def late(*_: Any) -> None:
            raise TimeoutError(f"not within {self.seconds} seconds")

        signal.signal(signal.SIGALRM, late)
        signal.alarm(self.seconds)

    def __exit__(self, *_: object) -> None:
        signal.alarm(0)


def said(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:200]


def main() -> None:
    task, tool, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # tools print to standard error, results to standard output
    warnings.simplefilter("ignore")
    given = json.load(sys.stdin)
    if tool in SHIMS:
        from tenonnx_compat.imports import redirect_imports

        redirect_imports()
    work = TOOLS[task][SHIMS.get(tool, tool)]
    each = {"estimators": estimators, "modules": modules}.get(task, files)
    outcomes = each(given, work, rounds)  # type: ignore[operator]
    for outcome in outcomes:
        print(json.dumps(outcome), file=answers, flush=True)
    status = Path("/proc/self/status").read_text()
    peak = next(line.split()[1] for line in status.splitlines() if line.startswith("VmHWM:"))
    print(json.dumps({"peak": int(peak)}), file=answers, flush=True)


if __name__ == "__main__":
    main()
