#!/usr/bin/env python3
"""DuckDB as a peer: queries over the Parquet files of a table, asked again and again.

The files are those of our own table, named one a line in a file, and stand behind a view
`flows`, so that both systems are given the same text. Prints one line per query; the answer is the
sum of the last column.
"""

import argparse
import statistics
import sys
import threading
import time

import duckdb


def literal(text):
    return "'" + text.replace("'", "''") + "'"


def connect(args, files):
    db = duckdb.connect()
    db.execute(f"SET threads = {args.threads}")
    db.execute("SET enable_progress_bar = false")
    db.execute("SET preserve_insertion_order = false")
    # Ours keeps the files' metadata between queries, too.
    db.execute("SET parquet_metadata_cache = true")
    # Files without a column have no value of it.
    names = ", ".join(literal(file) for file in files)
    db.execute(f"CREATE VIEW flows AS SELECT * FROM read_parquet([{names}], union_by_name = true)")
    return db


def run(db, sql):
    started = time.perf_counter()
    rows = db.execute(sql).fetchall()
    elapsed = (time.perf_counter() - started) * 1e3
    return elapsed, (len(rows), sum(row[-1] for row in rows))


def warm(args, files, sql):
    db = connect(args, files)
    run(db, sql)
    runs = [[] for _ in range(args.clients)]

    def client(number):
        # A cursor is a connection of its own to the same database and its threads.
        cursor = db.cursor()
        started = time.perf_counter()
        while len(runs[number]) < args.repeat or time.perf_counter() - started < args.seconds:
            runs[number].append(run(cursor, sql))

    clients = [threading.Thread(target=client, args=(number,)) for number in range(args.clients)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()
    return [one for of_client in runs for one in of_client]


def main():
    args = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    args.add_argument("queries", nargs="+", metavar="NAME=SQL")
    args.add_argument("--files", required=True, help="a file with the paths of the Parquet files, one a line")
    args.add_argument("--threads", type=int, default=2)
    args.add_argument("--clients", type=int, default=1)
    args.add_argument("--repeat", type=int, default=7)
    args.add_argument("--seconds", type=float, default=0.0, help="each client goes on for so long at least")
    args = args.parse_args()
    with open(args.files, encoding="utf-8") as listed:
        files = listed.read().splitlines()
    for query in args.queries:
        name, sql = query.split("=", 1)
        runs = warm(args, files, sql)
        if len(runs) < args.clients * args.repeat or len({answer for _, answer in runs}) != 1:
            sys.exit(f"topn.py: query {name} gave different answers, or none")
        times = [elapsed for elapsed, _ in runs]
        rows, answer = runs[0][1]
        print(
            f"query={name} clients={args.clients} runs={len(runs)} "
            f"median_ms={statistics.median_high(times):.3f} least_ms={min(times):.3f} "
            f"most_ms={max(times):.3f} rows={rows} answer={answer}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
