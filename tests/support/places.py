"""Where the checkout is, and the corpus of real logs that stands beside it where there is one."""

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
CORPUS = ROOT.parent / "shared" / "corpus"


def corpus_index() -> list[dict[str, Any]]:
    index = CORPUS / "index.json"
    return json.loads(index.read_text()) if index.exists() else []
