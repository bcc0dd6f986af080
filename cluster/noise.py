"""What Dask and its libraries say of a connection that ended goes into a file: people read our sentence about it."""

from __future__ import annotations

import asyncio.log
import logging
import sys
import traceback
from functools import cache
from logging.handlers import RotatingFileHandler
from pathlib import Path

import platformdirs

MOST_BYTES = 500_000
"""Of the file; one older file of this size is kept beside it."""
LOGGERS = ("distributed", "distributed.client", "tornado", "tornado.application", "bokeh")
"""To which Dask gives a handler that writes on standard error, when it is imported."""
PACKAGES = ("distributed", "tornado")
"""Whose forgotten tasks asyncio tells of."""


def path() -> Path:
    """The file, for who looks for more than our sentence."""
    return platformdirs.user_state_path("overlap-workbench") / "dask.log"


@cache
def into_file() -> None:
    """From now on, in this process; handlers that somebody has added for himself stay."""
    handler = _handler()
    for name in LOGGERS:
        logger = logging.getLogger(name)
        for dasks in [each for each in logger.handlers if _is_on_stderr(each)]:
            logger.removeHandler(dasks)
            logger.addHandler(handler)
    asyncio.log.logger.addFilter(lambda record: not _diverted(record, handler))


def _is_on_stderr(handler: logging.Handler) -> bool:
    return type(handler) is logging.StreamHandler and handler.stream in (sys.stderr, sys.__stderr__)


def _diverted(record: logging.LogRecord, handler: logging.Handler) -> bool:
    """Whether *record* of asyncio's is about a task of Dask's, which is then written into the file."""
    error = record.exc_info[1] if record.exc_info else None
    if error is None:
        return False
    names = [frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__)]
    names.append(type(error).__module__)
    if not any(str(name).partition(".")[0] in PACKAGES for name in names):
        return False
    handler.handle(record)
    return True


class _Quiet(RotatingFileHandler):
    """What cannot be written, as on a full disk, is lost: nobody waits for it."""

    def handleError(self, record: logging.LogRecord) -> None:
        return


def _handler() -> logging.Handler:
    file = path()
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        handler: logging.Handler = _Quiet(file, maxBytes=MOST_BYTES, backupCount=1, encoding="utf-8", delay=True)
    except OSError:
        return logging.NullHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(process)d %(name)s %(levelname)s %(message)s"))
    return handler
