"""`python -m gpt_oss_server` is `gpt-oss-server`."""

import sys

from gpt_oss_server.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
