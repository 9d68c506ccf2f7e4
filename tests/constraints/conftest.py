"""The grammars of the vocabulary, which all tests of this room share."""

import pytest

from gpt_oss_server.constraints.matcher import Grammars, grammars_of
from gpt_oss_server.harmony.encoding import Encoding


@pytest.fixture(scope="session")
def grammars(encoding: Encoding) -> Grammars:
    return grammars_of(encoding)
