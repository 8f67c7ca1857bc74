"""The program of `math_judge`'s child process. It is run by its path and imports nothing of this package.

For every line of JSON, [seconds, answer, response], it prints 1 or 0; it ends itself when a comparison takes longer.
"""

import contextlib
import faulthandler
import json
import logging
import signal
import sys

STARTING_S = 60
MEMORY = 2**32


def main() -> None:
    """Say "ready", then answer line by line."""
    faulthandler.dump_traceback_later(STARTING_S, exit=True)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.disable()
    replies, sys.stdout = sys.stdout, sys.stderr  # what libraries print must not be taken for an answer
    _limit_memory()
    from math_verify import parse, verify

    faulthandler.cancel_dump_traceback_later()
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        limit, answer, response = json.loads(line)
        faulthandler.dump_traceback_later(limit, exit=True)
        try:
            expected = parse(answer, parsing_timeout=None)
            right = verify(expected, parse(response, parsing_timeout=None), timeout_seconds=None)
        except Exception:
            right = False
        faulthandler.cancel_dump_traceback_later()
        print(int(right), file=replies, flush=True)


def _limit_memory() -> None:
    with contextlib.suppress(ImportError, OSError, ValueError):
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, resource.getrlimit(resource.RLIMIT_AS)[1]))


if __name__ == "__main__":
    main()
