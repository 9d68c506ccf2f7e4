"""A session of the browser over a shelf of pages."""

import pytest

from tests.doubles.tools.shelf import Shelf
from tools.browser import BrowserTool
from tools.browser.session import BrowserSession


@pytest.fixture
def shelf() -> Shelf:
    return Shelf()


@pytest.fixture
def session(shelf: Shelf) -> BrowserSession:
    return BrowserTool(shelf, timeout=5).open()
