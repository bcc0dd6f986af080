"""The command line's door: whatever ends a command, from its first moment on, is one sentence and an exit status."""

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
"""How signs are written that a terminal does not have: they must not cost the numbers beside them."""
ASCII = str.maketrans({"µ": "u", "–": "-", "…": "...", "●": "*", "■": "#", "○": "o", "◇": "+"})


class CtrlC:
    """Ctrl-C as long as no command has a use of its own for it.

    While the commands are loaded it is only noted: an import that is broken off tells of it in its own words, or of
    something else. The second one ends the process at once.
    """

    def __init__(self) -> None:
        self.pressed = False
        self.is_loaded = False

    def begin(self) -> None:
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is not to be heard
            signal.signal(signal.SIGINT, self._pressed)

    def loaded(self) -> None:
        """From now on it is a KeyboardInterrupt, at once if it came before."""
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
    """Exit 0 on success, 1 where something failed, 2 for what cannot be asked, 130 when a person stopped it."""
    ctrl_c = CtrlC()
    ctrl_c.begin()
    # at the very end Python would give Ctrl-C back to the system, and with it the exit status
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)
    codecs.register_error(IN_ASCII, _in_ascii)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors=IN_ASCII)
    code = _printed(status(sys.argv[1:], ctrl_c))
    # all is said and stored: Ctrl-C now does not interrupt what puts threads away, but does it sooner
    signal.signal(signal.SIGINT, lambda *_: os._exit(code))
    sys.exit(code)


def _in_ascii(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeEncodeError)
    lost = error.object[error.start : error.end]
    return lost.translate(ASCII).encode("ascii", "replace").decode(), error.end


def status(arguments: list[str], ctrl_c: CtrlC | None = None) -> int:
    """The exit status of one command line. With --json one document is printed, whatever happens."""
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
        output.say(exit_status.sentence(ending))
        return code
    finally:
        for sentence in resources.sentences():
            output.say(sentence)


def _without(error: ImportError, json_wanted: bool) -> int:
    """The exit status where a library is missing without which there is no command; what it prints has none either."""
    import json

    from workbench.cli import missing

    if (sentence := missing.sentence(error)) is None:
        raise error
    if json_wanted:
        print(json.dumps({"outcome": "failure", "stage": "lost", "message": sentence}))
    print(sentence, file=sys.stderr)
    return 1


def _printed(code: int) -> int:
    """*code*, unless what was printed does not fit where it goes."""
    try:
        sys.stdout.flush()
    except OSError as error:
        from workbench.cli import exit_status, output

        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # Python would try again and complain
        if not isinstance(error, BrokenPipeError):
            output.say(exit_status.sentence(error))
            return code or exit_status.FAILED
    return code
