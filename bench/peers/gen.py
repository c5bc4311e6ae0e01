#!/usr/bin/env python3
"""Write payments as CSV (`ts,card,merchant,amount`) for trying out the peers alone.

Times are epoch milliseconds and strictly increase, so no two records tie.
The same arguments give the same bytes on every machine and Python version:
the only randomness is a counter-based mixer, not the `random` module.
"""

import argparse
import sys

MASK = (1 << 64) - 1
START_MS = 1_600_000_000_000
MERCHANTS = 10_000


def mix(x):
    """The finaliser of SplitMix64: 64 well-spread bits for a counter."""
    x = (x + 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def records(count, cards, seed, gap_ms, hot):
    base = mix(seed)
    ts = START_MS
    spread = 2 * gap_ms - 1
    for i in range(count):
        # Two draws of 64 bits serve all fields; their bit ranges don't overlap much.
        a = mix(base + 2 * i)
        b = mix(base + 2 * i + 1)
        ts += 1 + (a & 0xFFFFFF) % spread
        card = (a >> 24) % cards
        if hot and (b & 0xFFFF) % 10 == 0:
            card = 0
        merchant = ((b >> 16) & 0xFFFFFF) % MERCHANTS
        cents = 1 + (b >> 40) % 50_000
        yield f"{ts},c{card:07d},m{merchant:05d},{cents // 100}.{cents % 100:02d}\n"


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--count", type=int, required=True, help="number of records")
    args.add_argument("--cards", type=int, required=True, help="number of distinct cards")
    args.add_argument("--seed", type=int, default=1)
    args.add_argument("--gap-ms", type=int, default=2, help="mean time between two records")
    args.add_argument("--hot", action="store_true", help="one card has a tenth of all records")
    args.add_argument("--output", help="file to write; stdout if absent")
    args = args.parse_args()
    if args.count < 0 or args.cards < 1 or args.gap_ms < 1:
        sys.exit("gen.py: --count must not be negative, --cards and --gap-ms must be at least 1")

    out = open(args.output, "w", newline="") if args.output else sys.stdout
    with out:
        out.write("ts,card,merchant,amount\n")
        out.writelines(records(args.count, args.cards, args.seed, args.gap_ms, args.hot))


if __name__ == "__main__":
    main()
