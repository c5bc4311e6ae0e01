package thalweg.bench;

import java.nio.ByteBuffer;
import org.apache.kafka.common.serialization.Deserializer;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;

/** What a window comes to: in a store these are 16 bytes. */
record Sum(double spent, long n) {

    static final Sum NONE = new Sum(0, 0);

    static final Serde<Sum> SERDE =
            Serdes.serdeFrom(
                    (topic, sum) ->
                            sum == null ? null : ByteBuffer.allocate(16).putDouble(sum.spent).putLong(sum.n).array(),
                    (Deserializer<Sum>)
                            (topic, bytes) -> {
                                if (bytes == null) {
                                    return null;
                                }
                                ByteBuffer buffer = ByteBuffer.wrap(bytes);
                                return new Sum(buffer.getDouble(), buffer.getLong());
                            });

    Sum plus(double amount) {
        return new Sum(spent + amount, n + 1);
    }
}
