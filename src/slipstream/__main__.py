"""``python -m slipstream`` is the command line."""

import sys

from slipstream.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
