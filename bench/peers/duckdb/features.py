#!/usr/bin/env python3
"""DuckDB as a peer: twenty features of each payment of a CSV file, as one batch query.

Prints one line: `peer=duckdb records=... seconds=... rate=... card_1m.n=...`, where each feature is added up over all
answers (bench/peers/README.md, "Totals").

The windows are ours, T - w < t <= T; SQL's RANGE includes both ends, so the lower bound is w - 1 ms.
"""

import argparse
import time

import duckdb

COLUMNS = {
    "ts": "BIGINT",
    "tx": "VARCHAR",
    "card": "VARCHAR",
    "device": "VARCHAR",
    "merchant": "VARCHAR",
    "country": "VARCHAR",
    "amount": "DOUBLE",
}

SPANS = {"1m": 60_000, "1h": 3_600_000, "24h": 86_400_000, "30d": 30 * 86_400_000}

# Feature, its key and window, its aggregate, and how an answer counts in the total.
# Averages often end in half a cent: what is added keeps them from a tie.
HUNDREDTHS = "round({} * 100 + 0.31387)::BIGINT"
FEATURES = [
    ("card_1m.n", "count(*)", HUNDREDTHS),
    ("card_1h.n", "count(*)", HUNDREDTHS),
    ("card_1h.spent", "sum(amount)", HUNDREDTHS),
    ("card_1h.shop", "last(merchant)", "substr({}, 2)::BIGINT"),
    ("card_24h.spent", "sum(amount)", HUNDREDTHS),
    ("card_24h.mean", "avg(amount)", HUNDREDTHS),
    ("card_24h.before", None, "ascii({})"),
    ("card_30d.deviation", "stddev_samp(amount)", HUNDREDTHS),
    ("card_30d.shops", "count(DISTINCT merchant)", HUNDREDTHS),
    ("card_30d.median", "quantile_disc(amount, 0.5)", HUNDREDTHS),
    ("device_1h.cards", "count(DISTINCT card)", HUNDREDTHS),
    ("device_24h.spent", "sum(amount)", HUNDREDTHS),
    ("device_24h.least", "min(amount)", HUNDREDTHS),
    ("device_30d.most", "max(amount)", HUNDREDTHS),
    ("device_30d.n", "count(*)", HUNDREDTHS),
    ("merchant_1m.taken", "sum(amount)", HUNDREDTHS),
    ("merchant_1h.mean", "avg(amount)", HUNDREDTHS),
    ("merchant_1h.deviation", "stddev_samp(amount)", HUNDREDTHS),
    ("merchant_24h.cards", "count(DISTINCT card)", HUNDREDTHS),
    ("merchant_30d.median", "quantile_disc(amount, 0.5)", HUNDREDTHS),
]


def column(name):
    return name.replace(".", "_")


def feature(name, aggregate):
    if aggregate is None:
        # The payment before is in the window if it is not too old.
        day = SPANS["24h"]
        return f"CASE WHEN lag(ts) OVER card > ts - {day} THEN lag(country) OVER card END"
    return f"{aggregate} OVER {name.split('.')[0]}"


def query(path):
    types = ", ".join(f"'{name}': '{kind}'" for name, kind in COLUMNS.items())
    literal = "'" + path.replace("'", "''") + "'"
    source = f"read_csv({literal}, header = true, delim = ',', auto_detect = false, columns = {{{types}}})"
    answers = ", ".join(f"{feature(name, of)} AS {column(name)}" for name, of, _ in FEATURES)
    windows = ["card AS (PARTITION BY card ORDER BY ts)"]
    for window in dict.fromkeys(name.split(".")[0] for name, _, _ in FEATURES):
        key, span = window.split("_")
        bound = f"RANGE BETWEEN {SPANS[span] - 1} PRECEDING AND CURRENT ROW"
        windows.append(f"{window} AS (PARTITION BY {key} ORDER BY ts {bound})")
    totals = ", ".join(f"coalesce(sum({worth.format(column(name))}), 0)" for name, _, worth in FEATURES)
    return (
        f"SELECT count(*), {totals} FROM (SELECT {answers} FROM {source} WINDOW {', '.join(windows)})"
    )


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--input", required=True, help="CSV file of payments")
    args.add_argument("--threads", type=int, default=2)
    args = args.parse_args()
    db = duckdb.connect()
    db.execute(f"SET threads = {args.threads}")
    db.execute("SET enable_progress_bar = false")
    # The order of rows doesn't matter to totals; DuckDB's guide advises this setting then.
    db.execute("SET preserve_insertion_order = false")
    started = time.perf_counter()
    records, *totals = db.execute(query(args.input)).fetchone()
    seconds = time.perf_counter() - started
    pairs = " ".join(f"{name}={total}" for (name, _, _), total in zip(FEATURES, totals))
    print(f"peer=duckdb records={records} seconds={seconds:.3f} rate={records / seconds:.0f} {pairs}")


if __name__ == "__main__":
    main()
