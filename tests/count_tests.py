#!/usr/bin/env python3
"""Counts test cases in Meson's log: prints "passed failed skipped".

A cmocka program counts as many as it reports; any other test counts as one. Reasons of skips, and
what failed tests say about it, go to stderr. With --text FILE: prints how many cases a program's own output reports as passed, at least 1.
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


def main():
    if sys.argv[1] == "--text":
        with open(sys.argv[2], encoding="utf-8", errors="replace") as file:
            print(max(1, cases(file.read(), "passed")))
        return
    total = {"passed": 0, "failed": 0, "skipped": 0}
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        for line in file:
            test = json.loads(line)
            text = test.get("stdout", "") + "\n" + test.get("stderr", "")
            passed, failed, skipped = (cases(text, kind) for kind in CASES)
            if test["result"] == "SKIP":
                skipped = max(skipped, 1)
                reason = (text.strip().splitlines() or ["no reason given"])[-1]
                print(f"    skipped: {test['name']}: {reason}", file=sys.stderr)
            elif test["result"] == "OK":
                passed = max(passed, 0 if skipped else 1)
            else:
                failed = max(failed, 1)
                tell_failure(test["name"], text)
            total["passed"] += passed
            total["failed"] += failed
            total["skipped"] += skipped
    print(total["passed"], total["failed"], total["skipped"])


main()
