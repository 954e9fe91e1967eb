"""Where the checkout is, and the corpus of real logs that stands beside it where there is one."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"
