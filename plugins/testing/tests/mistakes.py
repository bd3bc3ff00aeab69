"""Share of planted mistakes that the conformance kit finds: ``uv run python plugins/testing/tests/mistakes.py [WORD]``.

Each line of ``authored/mistakes.jsonl`` is one mistake: kind, op, description, a text in the op's file, and its
replacement. Mistakes in both body and rule have a second such pair. ``--seeds N`` looks for false alarms instead.
"""

from __future__ import annotations

# ruff: noqa: T201 - a script that prints its findings
import argparse
import collections
import json
import time
import warnings

from authored_kit import FOLDER, OPS, Mistake, failures

from tenonnx_testing.kit import seed_draws


def planted() -> list[Mistake]:
    """Read all mistakes."""
    lines = (FOLDER / "mistakes.jsonl").read_text("utf-8").splitlines()
    return [Mistake(*line[:5], tuple(line[5:]) or None) for line in map(json.loads, lines)]


def find(words: str, save: bool) -> None:
    """Print the undetected mistakes, and the share of detected ones by kind; ``save`` also writes the share."""
    result, total = collections.Counter(), collections.Counter()
    for mistake in planted():
        title = f"{mistake.kind}: {mistake.op}: {mistake.what}"
        if words not in title:
            continue
        total[mistake.kind] += 1
        if failures(mistake.op, mistake, first=True):
            result[mistake.kind] += 1
        else:
            print("escaped:", title)
    for kind, count in total.items():
        print(f"{kind:16} {result[kind]:3} of {count}")
    print(f"{'all':16} {result.total():3} of {total.total()}")
    if save:
        shares = {kind: [result[kind], count] for kind, count in total.most_common()}
        (FOLDER / "found.json").write_text(json.dumps(shares, indent=2) + "\n", "utf-8")


def alarm(seeds: int) -> None:
    """Print every failure of the unchanged ops, and the CPU time of each run."""
    for seed in range(seeds):
        seed_draws(seed)
        begin = time.process_time()
        failing = {name: failed for name in OPS if (failed := failures(name))}
        print(f"seed {seed}: {time.process_time() - begin:.1f} s", failing or "")


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="?", default="", help="only the mistakes whose titles contain this")
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="look for false alarms with so many seeds")
    parser.add_argument("--save", action="store_true", help="write the shares, for tools/generate_planted_defects.py")
    chosen = parser.parse_args()
    if chosen.seeds:
        alarm(chosen.seeds)
    else:
        find(chosen.words, chosen.save)
