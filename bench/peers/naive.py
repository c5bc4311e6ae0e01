#!/usr/bin/env python3
"""Recount every window from scratch, in whole cents, and print the digest that the peers must print.

This is the oracle for small files: no running sums, no expiry, no floats, so nothing can drift.
Its cost grows with the number of records in a window.
"""

import argparse
import csv
import time
from bisect import bisect_right
from collections import defaultdict


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--input", required=True)
    args.add_argument("--window-ms", type=int, default=3_600_000)
    args = args.parse_args()

    started = time.perf_counter()
    times, cents = defaultdict(list), defaultdict(list)
    records = digest = 0
    with open(args.input, newline="") as file:
        for row in csv.DictReader(file):
            ts, card = int(row["ts"]), row["card"]
            whole, fraction = row["amount"].split(".")
            assert len(fraction) == 2 and not whole.startswith("-"), row
            times[card].append(ts)
            cents[card].append(int(whole) * 100 + int(fraction))
            # The window is T - w < t <= T: skip everything at or before T - w.
            held = cents[card][bisect_right(times[card], ts - args.window_ms):]
            key = int(card[1:])
            digest += (ts % 1_000_003 + 31 * sum(held)) * (key + 1_000_000 * len(held))
            records += 1
    seconds = time.perf_counter() - started
    print(
        f"peer=naive records={records} seconds={seconds:.3f} "
        f"rate={records / seconds:.0f} digest={digest % 2**64:016x}"
    )


if __name__ == "__main__":
    main()
