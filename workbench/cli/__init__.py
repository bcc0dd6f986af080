"""The entry point of the command line: whatever ends a command becomes one message and an exit status."""

import _signal as signal
import atexit
import codecs
import os
import sys
from io import TextIOWrapper

# Until `CtrlC.begin` Ctrl-C is a traceback: nothing is loaded before it that Python has not loaded itself. That is why
# annotations are plain here, and why it is `_signal`: `signal` loads enum first, and typing takes as long again.

JSON = "--json"
IN_ASCII = "in ascii"
"""The error handler for signs that a terminal does not have, so that the numbers next to them are still printed."""
ASCII = str.maketrans({"µ": "u", "–": "-", "…": "...", "●": "*", "■": "#", "○": "o", "◇": "+"})


class CtrlC:
    """The handler of Ctrl-C while no command has its own.

    While the commands are loaded it only notes Ctrl-C, as an interrupted import raises whatever it likes. The second
    one ends the process at once.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.is_loaded = False

    def begin(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else the caller ignores Ctrl-C
            signal.signal(signal.SIGINT, self._pressed)

    def loaded(self) -> None:
        """From now on Ctrl-C raises KeyboardInterrupt; at once if it came before."""
        self.is_loaded = True
        if self.pressed:
            raise KeyboardInterrupt

    def _pressed(self, number: int, frame: object) -> None:
        if self.pressed and not self.is_loaded:
            os._exit(130)
        self.pressed = True
        if self.is_loaded:
            raise KeyboardInterrupt


def main() -> None:
    """Runs the command line; exits with 0 on success, 1 on a failure, 2 on a refusal, 130 if a person stopped it."""
    ctrl_c = CtrlC()
    ctrl_c.begin()
    # at the very end Python would give Ctrl-C back to the system, and with it the exit status
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    codecs.register_error(IN_ASCII, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=IN_ASCII)
    code = _printed(status(sys.argv[1:], ctrl_c))
    # all is printed and stored: Ctrl-C now ends the process instead of interrupting the end of its threads
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    sys.exit(code)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return lost.translate(ASCII).encode("ascii", "replace").decode(), error.end


def status(arguments: list[str], ctrl_c: CtrlC | None = None) -> int:
    """Runs one command line and returns its exit status; with --json it prints one document, whatever happens."""
    try:
        from workbench import resources
        from workbench.cli import app, exit_status, output
    except ImportError as error:
        return _without(error, JSON in arguments)
    output.begin()
    resources.begin()
    try:
        if ctrl_c is not None:
            ctrl_c.loaded()
        with resources.noting_reads():
            code = app.app(arguments, prog_name=app.app.info.name, standalone_mode=False)
        return int(code or exit_status.DONE)
    except (Exception, KeyboardInterrupt) as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(app.help_of(error))
            return exit_status.DONE
        ending = ValueError(app.usage(error)) if isinstance(error, app.USAGE) else error
        if ctrl_c is not None and ctrl_c.pressed:  # whatever a library made of it
            ending = exit_status.Interrupted()
        if JSON in arguments and not output.documents():
            output.show_json(output.document(exit_status.failure(ending)))
        if (code := exit_status.of_error(ending)) is None:
            raise
        output.say(exit_status.message(ending))
        return code
    finally:
        for message in resources.messages():
            output.say(message)


def _without(error: ImportError, json_wanted: bool) -> int:
    """Prints that a library is missing, and returns the exit status; uses nothing that needs a library."""
    import json

    from workbench.cli import missing

    if (message := missing.message(error)) is None:
        raise error
    if json_wanted:
        print(json.dumps({"outcome": "failure", "stage": "lost", "message": message}))
    print(message, file=sys.stderr)
    return 1


def _printed(code: int) -> int:
    """*code*, or a failure where the printed text could not be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        from workbench.cli import exit_status, output

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again and complain
        if not isinstance(error, BrokenPipeError):
            output.say(exit_status.message(error))
            return code or exit_status.FAILED
    return code
