"""The command line: ``python -m millstream``."""

import sys

from millstream._cli import main

if __name__ == "__main__":
    sys.exit(main())
