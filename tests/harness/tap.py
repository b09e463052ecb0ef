# SPDX-License-Identifier: Apache-2.0
"""TAP for Python tests: functions marked @test run in order, each prints one line."""
import sys
import traceback

_tests = []


def test(function):
    _tests.append(function)
    return function


class Skip(Exception):
    """Raised by a test that can't run here, with the reason."""


def main():
    wanted = sys.argv[1:]
    chosen = [t for t in _tests if not wanted or t.__name__ in wanted]
    failed = 0
    for number, function in enumerate(chosen, 1):
        try:
            function()
            print(f"ok {number} - {function.__name__}", flush=True)
        except Skip as why:
            print(f"ok {number} - {function.__name__} # SKIP {why}", flush=True)
        except BaseException:  # a failing test must not end the others
            failed += 1
            for line in traceback.format_exc().splitlines():
                print(f"# {line}")
            print(f"not ok {number} - {function.__name__}", flush=True)
            if isinstance(sys.exc_info()[1], KeyboardInterrupt):
                break
    print(f"1..{len(chosen)}")
    sys.exit(1 if failed else 0)


def equal(got, want, what=""):
    assert got == want, f"{what}: got {got!r}, want {want!r}"
