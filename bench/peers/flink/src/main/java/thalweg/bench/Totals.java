package thalweg.bench;

/**
 * What all sink writers saw together.
 *
 * <p>Flink's local cluster runs its tasks in this process and loads their classes with its own
 * class loader, so that a static field is enough to bring the result back.
 */
record Totals(long rows, long digest, long firstNanos, long lastNanos) {

    private static Totals collected = new Totals(0, 0, Long.MAX_VALUE, Long.MIN_VALUE);

    static synchronized void add(Totals writer) {
        if (writer.rows == 0) {
            return;
        }
        collected =
                new Totals(
                        collected.rows + writer.rows,
                        // Wraps, which is the digest's addition mod 2^64.
                        collected.digest + writer.digest,
                        Math.min(collected.firstNanos, writer.firstNanos),
                        Math.max(collected.lastNanos, writer.lastNanos));
    }

    static synchronized Totals collected() {
        return collected;
    }

    /** From the first answer to the last. */
    double activeSeconds() {
        return rows == 0 ? 0 : (lastNanos - firstNanos) / 1e9;
    }
}
