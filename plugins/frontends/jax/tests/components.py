"""Write the table of components in docs/how-to/jax.md from the cases.

``python plugins/frontends/jax/tests/components.py``.
"""

import re
from pathlib import Path

from cases import Case, load_all

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "jax.md"
START, END = "<!-- components -->\n", "<!-- end of components -->\n"

#: Rows of the table, with prefixes of names of their cases.
ROWS = {
    "Flax nnx": r"nnx\.",
    "Flax linen": r"linen\.",
    "Equinox": r"eqx",
    "jax.nn": r"(jax\.)?nn\.|causal attention",
    "Networks": r"MNIST|MLP|transformer|patch|conv embedding|ViT",
}


def table(cases: dict[str, Case]) -> str:
    """The table: each component once, whose cases with dynamic and static batch share the first part of their name."""
    lines = ["| | components with tests, each at opsets 13, 17 and 21 |", "| --- | --- |"]
    left = dict.fromkeys(name.removesuffix(" of any batch") for name in cases)
    for title, pattern in ROWS.items():
        result = [name for name in left if re.match(pattern, name)]
        lines.append(f"| {title} | {', '.join(re.sub(r'^(nnx|linen|eqx|nn)[.]', '', name) for name in result)} |")
        for name in result:
            del left[name]
    lines.append(f"| Functions | {len(left)} more of jax.numpy, jax.lax, jax.scipy and jax.random |")
    return "\n".join(lines) + "\n"


def page() -> str:
    """The page with an updated table."""
    text = PAGE.read_text("utf-8")
    before, rest = text.split(START)
    return f"{before}{START}{table(load_all())}{END}{rest.split(END)[1]}"


if __name__ == "__main__":
    PAGE.write_text(page(), "utf-8")
