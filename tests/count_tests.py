#!/usr/bin/env python3
"""Counts test cases in Meson's log: prints "passed failed skipped".

    count_tests.py LOG [AGAIN]      AGAIN: the log of some of its tests, asked again alone
    count_tests.py --again LOG      the names of those to ask again, a line each
    count_tests.py --text FILE      how many cases a program's own output reports as passed, at least 1

A cmocka program counts as many as it reports; any other test counts as one. Reasons of skips, and what failed
tests say about it, go to stderr.

A test that fails beside others and passes alone counts as passed, and is named: on a busy machine a wait may end
late. Wrong bits and what a sanitizer finds stay failures, and so do more than three of them.
"""
import json
import re
import sys

CASES = {
    "passed": re.compile(r"^\[  PASSED  \] (\d+) test", re.M),
    "failed": re.compile(r"^\[  FAILED  \] (\d+) test", re.M),
    "skipped": re.compile(r"^\[  SKIPPED \] (\d+) test", re.M),
}


def cases(text, kind):
    return sum(int(n) for n in CASES[kind].findall(text))


FAILURE = re.compile(r"^\[  ERROR   \]|^\[   LINE   \]|ThreadSanitizer|AddressSanitizer|runtime error:|^FAILED")


def tell_failure(name, text):
    lines = text.strip().splitlines() or ["it says nothing"]
    for line in ([one for one in lines if FAILURE.search(one)] or lines[-5:])[:10]:
        print(f"    failed: {name}: {line[:200]}", file=sys.stderr)


FINDING = re.compile(r"Sanitizer|runtime error:|WRONG")
MOST_AGAIN = 3


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            test = json.loads(line)
            yield test["name"], test["result"], test.get("stdout", "") + "\n" + test.get("stderr", "")


def has_failed(result):
    return result not in ("OK", "SKIP", "EXPECTEDFAIL")


def tell_again(path):
    failed = [(name, text) for name, result, text in read(path) if has_failed(result)]
    if len(failed) <= MOST_AGAIN and not any(FINDING.search(text) for _, text in failed):
        for name, _ in failed:
            print(name.split(" / ", 1)[-1])


def count(path, again):
    passed_alone = {name for name, result, _ in read(again) if result == "OK"} if again else set()
    total = {"passed": 0, "failed": 0, "skipped": 0}
    for name, result, text in read(path):
        passed, failed, skipped = (cases(text, kind) for kind in CASES)
        if result == "SKIP":
            skipped = max(skipped, 1)
            reason = (text.strip().splitlines() or ["no reason given"])[-1]
            print(f"    skipped: {name}: {reason}", file=sys.stderr)
        elif has_failed(result):
            failed = max(failed, 1)
            tell_failure(name, text)
            if name in passed_alone:
                passed, failed = passed + failed, 0
                print(f"    passed when asked again, alone: {name}", file=sys.stderr)
        else:
            passed = max(passed, 0 if skipped else 1)
        total["passed"] += passed
        total["failed"] += failed
        total["skipped"] += skipped
    print(total["passed"], total["failed"], total["skipped"])


def main():
    if sys.argv[1] == "--text":
        with open(sys.argv[2], encoding="utf-8", errors="replace") as file:
            print(max(1, cases(file.read(), "passed")))
    elif sys.argv[1] == "--again":
        tell_again(sys.argv[2])
    else:
        count(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None)


main()
