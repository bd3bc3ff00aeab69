"""Write ``docs/why/planted-defects.md`` from the planted defects in the tests of the conformance kit."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "plugins" / "testing" / "tests"))

import planted_claims  # noqa: E402, F401 - what they plant
import planted_numbers  # noqa: E402, F401
from planted import page  # noqa: E402

if __name__ == "__main__":
    (ROOT / "docs" / "why" / "planted-defects.md").write_text(page(), "utf-8")
