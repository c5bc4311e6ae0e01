#!/usr/bin/env python3
"""DuckDB as a peer: exact sliding windows per card over a CSV file, as one batch query.

Without --verify-answers: run the query, digest its answers, print one `peer=duckdb ...` line.
With it: compare a file of our engine's answers, row by row, with DuckDB's own result.

The windows are ours, T - w < t <= T. SQL's RANGE includes both ends, and times are whole
milliseconds, so the lower bound is w - 1 ms.
"""

import time

IMPORT_STARTED = time.perf_counter()

import argparse
import sys

import duckdb

INPUT_COLUMNS = {"ts": "BIGINT", "card": "VARCHAR", "merchant": "VARCHAR", "amount": "DOUBLE"}
ANSWER_COLUMNS = INPUT_COLUMNS | {"card_1h.spent": "DOUBLE", "card_1h.n": "BIGINT"}

# One term of the order-independent digest. The products are exact in 128 bits
# (below 10^13 * 10^14), and so is the sum of as many rows as fit on a disk.
DIGEST_TERM = """
    ((ts % 1000003)::HUGEINT + 31::HUGEINT * round({spent} * 100)::BIGINT)
    * (substr(card, 2)::BIGINT::HUGEINT + 1000000::HUGEINT * {n})
"""


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def read_csv(path, columns):
    # Types are given, so that nothing is sniffed.
    types = ", ".join(f"{literal(name)}: {literal(kind)}" for name, kind in columns.items())
    return (
        f"read_csv({literal(path)}, header = true, delim = ',', quote = '\"', "
        f"auto_detect = false, columns = {{{types}}})"
    )


def window_clause(window_ms):
    return (
        "WINDOW last AS (PARTITION BY card ORDER BY ts "
        f"RANGE BETWEEN {window_ms - 1} PRECEDING AND CURRENT ROW)"
    )


def connect(threads):
    db = duckdb.connect()
    db.execute(f"SET threads = {threads}")
    db.execute("SET enable_progress_bar = false")
    return db


def measure(db, args):
    # The order of rows doesn't matter to the digest; DuckDB's guide advises this setting then.
    db.execute("SET preserve_insertion_order = false")
    query = f"""
        SELECT count(*), sum({DIGEST_TERM.format(spent="spent", n="n")})
        FROM (
            SELECT ts, card, sum(amount) OVER last AS spent, count(*) OVER last AS n
            FROM {read_csv(args.input, INPUT_COLUMNS)}
            {window_clause(args.window_ms)}
        )
    """
    startup = time.perf_counter() - IMPORT_STARTED
    started = time.perf_counter()
    records, total = db.execute(query).fetchone()
    seconds = time.perf_counter() - started
    print(
        f"peer=duckdb records={records} seconds={seconds:.3f} rate={records / seconds:.0f} "
        f"digest={hexdigest(total)} startup_seconds={startup:.3f} active_seconds={seconds:.3f} "
        f"active_rate={records / seconds:.0f} threads={args.threads}"
    )
    return 0


def verify(db, args):
    # Row i of the answers belongs to row i of the input: both are numbered in file order.
    db.execute("SET preserve_insertion_order = true")
    query = f"""
        WITH records AS (
            SELECT row_number() OVER () AS i, * FROM {read_csv(args.input, INPUT_COLUMNS)}
        ), expected AS (
            SELECT *, sum(amount) OVER last AS spent, count(*) OVER last AS n
            FROM records {window_clause(args.window_ms)}
        ), answers AS (
            SELECT row_number() OVER () AS i, ts, card, merchant, amount,
                   "card_1h.spent" AS spent, "card_1h.n" AS n
            FROM {read_csv(args.verify_answers, ANSWER_COLUMNS)}
        ), compared AS (
            SELECT a.i AS answer, e.i AS record, a.ts, a.card, a.spent, a.n,
                   (a.ts, a.card, a.merchant, a.amount)
                       IS DISTINCT FROM (e.ts, e.card, e.merchant, e.amount) AS other_record,
                   a.n IS DISTINCT FROM e.n AS other_n,
                   abs(a.spent - e.spent) AS diff
            FROM expected e FULL JOIN answers a ON a.i = e.i
        )
        SELECT count(answer),
               -- A missing or null sum has a null difference, which is a mismatch as well.
               count(*) FILTER (other_record OR other_n OR (diff <= 1e-6) IS NOT TRUE),
               coalesce(max(diff), 0),
               sum({DIGEST_TERM.format(spent="spent", n="n")}) FILTER (answer IS NOT NULL),
               count(*) FILTER (answer IS NOT NULL AND record IS NOT NULL AND other_n),
               count(*) FILTER (answer IS NOT NULL AND record IS NOT NULL
                                AND (diff <= 1e-6) IS NOT TRUE),
               count(*) FILTER (answer IS NOT NULL AND record IS NOT NULL AND other_record),
               count(*) FILTER (answer IS NULL),
               count(*) FILTER (record IS NULL)
        FROM compared
    """
    rows, bad, diff, total, n, spent, fields, missing, extra = db.execute(query).fetchone()
    print(
        f"verify rows={rows} mismatched={bad} max_diff={diff:.3g} digest={hexdigest(total)} "
        f"n_differs={n} sum_differs={spent} record_differs={fields} missing={missing} extra={extra}"
    )
    return 1 if bad else 0


def hexdigest(total):
    return f"{int(total or 0) % 2**64:016x}"


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("--input", required=True, help="CSV file of records")
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--window-ms", type=int, default=3_600_000)
    args.add_argument("--verify-answers", metavar="ANSWERS", help="CSV file of our engine's answers")
    args = args.parse_args()
    if args.threads < 1 or args.window_ms < 1:
        sys.exit("windows.py: --threads and --window-ms must be at least 1")
    return (verify if args.verify_answers else measure)(connect(args.threads), args)


if __name__ == "__main__":
    sys.exit(main())
