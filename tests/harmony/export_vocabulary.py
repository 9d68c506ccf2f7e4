"""Writes Harmony's vocabulary out, so that openai-harmony loads without a network.

    python tests/harmony/export_vocabulary.py FOLDER        # with oss-harmony installed
    TIKTOKEN_ENCODINGS_BASE=FOLDER python -m pytest tests/harmony    # with openai-harmony installed

One line for each ordinary token: base64 of its bytes, a space, its id. openai-harmony checks the file's
sha256, and so does this script.
"""

import base64
import hashlib
import sys
from pathlib import Path

# Run as a script, from a checkout that need not be installed.
sys.path.insert(0, str(Path(__file__).parents[2]))

from gpt_oss_server.harmony.encoding import Encoding, load_encoding

FILE_NAME = "o200k_base.tiktoken"
SHA256 = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
ORDINARY_TOKENS = 199_998


def vocabulary(encoding: Encoding) -> bytes:
    lines = (
        base64.b64encode(encoding.token_bytes([token])) + f" {token}\n".encode()
        for token in range(ORDINARY_TOKENS)
    )
    return b"".join(lines)


def main() -> None:
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    content = vocabulary(load_encoding())
    found = hashlib.sha256(content).hexdigest()
    if found != SHA256:
        sys.exit(f"the vocabulary's sha256 is {found}, openai-harmony demands {SHA256}")
    (folder / FILE_NAME).write_bytes(content)


if __name__ == "__main__":
    main()
