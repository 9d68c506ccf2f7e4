"""A tour of what the server does: `make demo`. It starts its own servers and downloads nothing."""

import contextlib
import os
import runpy
import shutil
import sys
import tempfile
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tour

PARTS = (
    ("Reasoning, then an answer", "quickstart.py"),
    ("A call of the client's own function", "function_calling.py"),
    ("An answer with citations, from a folder of documents", "browser_citations.py"),
    ("A plot, drawn by a program in a sandbox", "python_plot.py"),
    ("A tool of an MCP server, after approval", "mcp_tools.py"),
    ("A background run that is resumed", "background.py"),
)


def main() -> int:
    print("Starting the embedded model, and a scripted one for what it is too small for …")
    with ThreadPoolExecutor() as both:
        flags = ("--model", "tiny", *tour.TOOLS), tour.SCRIPTED
        embedded, scripted = both.map(lambda each: tour.serve(*each), flags)
    os.environ |= {"OPENAI_BASE_URL": embedded, "TOUR_BASE_URL": scripted}
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, name) in enumerate(PARTS, 1):
            print(f"\n--- {number}. {title} (examples/{name})\n", flush=True)
            failed += [] if runs(name, folder) else [name]
        if (plot := Path(folder, "plot.png")).exists():
            shutil.copy(plot, "demo-plot.png")
            print("\nThe plot is in demo-plot.png.")
    if failed:
        print(f"\nThese parts did not run to their end, for the reasons above: {', '.join(failed)}")
    return 1 if failed else 0


def runs(name: str, folder: str) -> bool:
    """Runs it in this process, which has imported the SDK; returns whether it ran to its end."""
    with contextlib.chdir(folder):
        try:
            runpy.run_path(str(tour.FOLDER / name))
        except SystemExit as ended:
            print(ended, file=sys.stderr)
            return False
        except Exception:
            traceback.print_exc()
            return False
    return True


if __name__ == "__main__":
    sys.exit(main())
