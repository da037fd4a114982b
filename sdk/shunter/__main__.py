"""`python -m shunter` is `shunter`."""

import sys

from shunter.cli import main

if __name__ == "__main__":
    sys.exit(main())
