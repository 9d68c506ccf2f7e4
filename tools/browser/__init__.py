"""The browser of gpt-oss: `search`, `open` and `find`, with cursors, citations and a choice of backends.

Other packages import from here. It knows neither the server nor inference.
"""

from tools.browser.backends import default_backend, parse_backend
from tools.browser.citations import Citation, CitationRewriter, Piece, Text
from tools.browser.session import BrowserSession, BrowserTool

__all__ = ["BrowserSession", "BrowserTool", "Citation", "CitationRewriter", "Piece", "Text"]
__all__ += ["default_backend", "parse_backend"]
