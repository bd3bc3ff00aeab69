"""Reference results of PyTorch for many recipes: rates by pattern, clipping, averages, mixed precision.

Run ``python recipes.py`` with PyTorch installed; it reads batches and initial weights from ``mlp.npz``, and writes
``recipes.npz`` next to this file: the losses of every step, and averaged parameters.
"""

import copy

import numpy as np
import torch
from make import FOLDER, mlp
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def steps(model, optimizer, data, *, clip_norm=None, clip_value=None, autocast=None, accumulate=1, after=None):
    losses = []
    for k, (x, labels) in enumerate(zip(data["x"], data["labels"], strict=True)):
        with torch.autocast("cpu", autocast or torch.bfloat16, enabled=autocast is not None):
            scores = model(torch.from_numpy(x))
        loss = nn.functional.cross_entropy(scores.float(), torch.from_numpy(labels))
        (loss / accumulate).backward()
        losses.append(loss.item())
        if (k + 1) % accumulate == 0:
            if clip_norm is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
            if clip_value is not None:
                nn.utils.clip_grad_value_(model.parameters(), clip_value)
            optimizer.step()
            optimizer.zero_grad()
            if after is not None:
                after()
    return np.array(losses)


def main():
    data = np.load(FOLDER / "mlp.npz")
    torch.manual_seed(0)
    start = mlp()
    for parameter in start.parameters():
        parameter.data += 0.05 * torch.randn_like(parameter)

    def fresh():
        return copy.deepcopy(start)

    result = {}
    model = fresh()
    groups = [
        {"params": [model[4].weight, model[4].bias], "lr": 3e-2, "weight_decay": 0.0},
        {"params": [p for k in (0, 2) for p in model[k].parameters()], "lr": 3e-3},
    ]
    result["groups"] = steps(model, torch.optim.AdamW(groups, lr=3e-3, weight_decay=0.1), data)
    model = fresh()
    result["clip_value"] = steps(model, torch.optim.SGD(model.parameters(), lr=0.5), data, clip_value=0.01)
    model = fresh()
    result["clip_norm"] = steps(model, torch.optim.SGD(model.parameters(), lr=0.5), data, clip_norm=0.1)
    model = fresh()
    result["accumulate"] = steps(model, torch.optim.Adam(model.parameters(), lr=1e-2), data, accumulate=4)
    model = fresh()
    result["rmsprop"] = steps(model, torch.optim.RMSprop(model.parameters(), lr=3e-3), data)
    for name, kind in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        model = fresh()
        result[name] = steps(model, torch.optim.Adam(model.parameters(), lr=1e-2), data, autocast=kind)
    model = fresh()
    averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    averaged.update_parameters(model)  # the first call copies
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    result["average"] = steps(model, optimizer, data, after=lambda: averaged.update_parameters(model))
    result |= {f"average/{name}": value.numpy() for name, value in averaged.module.state_dict().items()}
    np.savez_compressed(FOLDER / "recipes.npz", **result)


if __name__ == "__main__":
    main()
