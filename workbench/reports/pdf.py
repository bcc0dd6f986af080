"""A page on paper: Chromium prints it, within a deadline and without a network."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

from kernels.failed import Failed
from workbench.file_kinds import MADE

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
"""Names under which Chromium and Chrome are installed, in the order in which they are looked for."""


def browser() -> str:
    """The program that prints, or one sentence on what to install."""
    program = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if program is None:
        raise ValueError(
            f"Printing a PDF needs Chromium or Chrome, and the PATH has none of {', '.join(BROWSERS)}. Install one "
            "(Debian, Ubuntu: `apt install chromium`), or ask for html, which any browser prints."
        )
    return program


def pdf(page: str, *, deadline_s: float = 60.0) -> bytes:
    """The HTML *page*, which carries all that it needs, printed as PDF."""
    program = browser()
    with tempfile.TemporaryDirectory(prefix="workbench-pdf-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        source, target = folder / "page.html", folder / "page.pdf"
        source.write_text(page, "utf-8")
        complaint = _run([program, *_flags(folder), f"--print-to-pdf={target}", source.as_uri()], deadline_s)
        if not target.exists():
            raise Failed(f"{program} wrote no PDF. Its last words: {complaint}. Accepted instead: html.")
        return target.read_bytes() + f"% {MADE}\n".encode()  # readers pass over what follows the end


def _flags(folder: Path) -> list[str]:
    flags = [
        "--headless",
        "--disable-gpu",
        "--no-pdf-header-footer",
        "--no-first-run",
        "--disable-background-networking",
        "--host-resolver-rules=MAP * ~NOTFOUND",
        f"--user-data-dir={folder / 'profile'}",
    ]
    # Chromium refuses to run its sandbox as root, as in most containers; the page is ours and holds no script.
    return [*flags, "--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else flags


def _run(command: list[str], deadline_s: float) -> str:
    """Run *command* to its end and give the last line it said; at the deadline it ends with all it started."""
    with subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace", start_new_session=True
    ) as process:
        try:
            _, said = process.communicate(timeout=deadline_s)
        except subprocess.TimeoutExpired:
            raise Failed(
                f"{command[0]} did not print the report within {deadline_s:g} s. Accepted instead: html, which any "
                "browser prints."
            ) from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    return (said.strip().splitlines() or ["nothing"])[-1]
