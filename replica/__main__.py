"""``python -m replica`` is the command line, as ``mysql-replica`` is."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
