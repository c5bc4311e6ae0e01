package thalweg.bench;

import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.data.StringData;
import org.apache.flink.table.data.binary.BinaryStringData;

/**
 * Digests every answer and discards it.
 *
 * <p>An answer (ts, card, spent, n) counts as {@code (a + 31 c) * (k + 1000000 n)}, where a is ts
 * mod 1000003, c the sum in cents, k the digits of the card. The digest is the sum of all, mod
 * 2^64, which is what {@code long} arithmetic gives; the order of answers doesn't matter.
 */
final class DigestSink implements Sink<RowData> {

    private static final long serialVersionUID = 1L;

    @Override
    public SinkWriter<RowData> createWriter(WriterInitContext context) {
        return new Writer();
    }

    private static final class Writer implements SinkWriter<RowData> {
        private long rows;
        private long digest;
        private long firstNanos;
        private long lastNanos;

        @Override
        public void write(RowData answer, Context context) {
            if (rows == 0) {
                firstNanos = System.nanoTime();
            }
            long a = answer.getLong(0) % 1_000_003;
            long k = digits(answer.getString(1));
            long c = Math.round(answer.getDouble(2) * 100);
            long n = answer.getLong(3);
            digest += (a + 31 * c) * (k + 1_000_000 * n);
            rows++;
        }

        private static long digits(StringData card) {
            BinaryStringData text = (BinaryStringData) card;
            long value = 0;
            for (int i = 1; i < text.getSizeInBytes(); i++) {
                value = value * 10 + (text.byteAt(i) - '0');
            }
            return value;
        }

        @Override
        public void flush(boolean endOfInput) {
            if (endOfInput) {
                lastNanos = System.nanoTime();
            }
        }

        @Override
        public void close() {
            Totals.add(new Totals(rows, digest, firstNanos, lastNanos));
        }
    }
}
