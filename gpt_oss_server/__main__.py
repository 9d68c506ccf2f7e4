"""`python -m gpt_oss_server` is `gpt-oss-server`."""

from __future__ import annotations

import sys

from gpt_oss_server.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
