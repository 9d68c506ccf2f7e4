"""A tour of what the server does: `make demo`. It starts its own servers and downloads nothing."""

import os
import shutil
import subprocess
import sys
import tempfile
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
    os.environ["OPENAI_BASE_URL"] = tour.serve("--model", "tiny")
    os.environ["TOUR_BASE_URL"] = tour.serve("--model", f"scripted:{tour.FOLDER / 'script.json'}")
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        for number, (title, name) in enumerate(PARTS, 1):
            print(f"\n--- {number}. {title} (examples/{name})\n", flush=True)
            done = subprocess.run([sys.executable, tour.FOLDER / name], cwd=folder)
            failed += [name] if done.returncode else []
        if (plot := Path(folder, "plot.png")).exists():
            shutil.copy(plot, "demo-plot.png")
            print("\nThe plot is in demo-plot.png.")
    if failed:
        print(f"\nThese parts did not run to their end, for the reasons above: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
