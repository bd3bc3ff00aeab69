"""Run the benchmarks one after the other: ``python benchmarks/run.py`` prints the tables of ``log.md``."""

from __future__ import annotations

import external_data
import inference
import operators
import reading
import retargeting
import startup
import trees


def main() -> None:
    for part in (reading, retargeting, external_data, inference, operators, trees, startup):
        part.main()


if __name__ == "__main__":
    main()
