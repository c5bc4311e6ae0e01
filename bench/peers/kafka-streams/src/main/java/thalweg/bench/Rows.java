package thalweg.bench;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;

/**
 * The window by hand: a row of the store for each payment, under card and time.
 *
 * <p>A record adds its row, adds up those of the hour, and deletes those that have left it. It costs one write, and
 * reads as many rows as its card has in the hour. Nothing of a card goes without a record of that card.
 */
final class Rows extends ContextualProcessor<String, Double, String, String> {

    static final String STORE = "rows";

    private final long differenceMs;
    private KeyValueStore<Bytes, Double> store;

    Rows(long differenceMs) {
        this.differenceMs = differenceMs;
    }

    @Override
    public void init(ProcessorContext<String, String> context) {
        super.init(context);
        store = context.getStateStore(STORE);
    }

    @Override
    public void process(Record<String, Double> payment) {
        String card = payment.key();
        long ts = payment.timestamp();
        long first = ts - differenceMs;
        store.put(row(card, ts), payment.value());
        double spent = 0;
        long n = 0;
        List<Bytes> left = new ArrayList<>();
        try (KeyValueIterator<Bytes, Double> rows = store.range(row(card, 0), row(card, ts))) {
            while (rows.hasNext()) {
                KeyValue<Bytes, Double> row = rows.next();
                if (time(row.key) < first) {
                    left.add(row.key);
                } else {
                    spent += row.value;
                    n++;
                }
            }
        }
        left.forEach(store::delete);
        context().forward(payment.withValue(Windows.answer(ts, card, spent, n)));
    }

    /** Times are positive, so they sort as their bytes do. Equal times of a card would be one row: there are none. */
    private static Bytes row(String card, long ts) {
        byte[] name = card.getBytes(StandardCharsets.UTF_8);
        return Bytes.wrap(ByteBuffer.allocate(name.length + 9).put(name).put((byte) 0).putLong(ts).array());
    }

    private static long time(Bytes row) {
        byte[] bytes = row.get();
        return ByteBuffer.wrap(bytes, bytes.length - 8, 8).getLong();
    }
}
