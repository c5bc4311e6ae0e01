package thalweg.bench;

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Reads all answers of a topic, {@code ts,card,…,spent,n} each, and prints their number and their digest. What is in
 * the middle is not looked at: ours have the whole record there.
 *
 * <p>An answer counts as {@code (a + 31 c) * (k + 1000000 n)}, where a is ts mod 1000003, c the sum in cents, k the
 * digits of the card. The digest is the sum of all, mod 2^64, which is what {@code long} arithmetic gives; the order
 * of answers doesn't matter. Answers of transactions that were aborted don't count.
 */
public final class Digest {

    private Digest() {}

    public static void main(String[] args) {
        Scratch.removeAtExit();
        Options options = Options.parse("digest", Map.of("--bootstrap", "", "--topic", "answers"), args);
        Map<String, Object> settings =
                Map.of(
                        "bootstrap.servers", options.text("--bootstrap"),
                        "isolation.level", "read_committed",
                        "max.poll.records", 10_000);
        long answers = 0;
        long digest = 0;
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions =
                    consumer.partitionsFor(options.text("--topic")).stream()
                            .map(each -> new TopicPartition(each.topic(), each.partition()))
                            .toList();
            consumer.assign(partitions);
            consumer.seekToBeginning(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                    digest += of(new String(record.value(), StandardCharsets.UTF_8));
                    answers++;
                }
            }
        }
        System.out.printf(Locale.ROOT, "digest answers=%d digest=%016x%n", answers, digest);
    }

    private static long of(String answer) {
        String[] fields = answer.split(",");
        long a = Long.parseLong(fields[0]) % 1_000_003;
        long k = Long.parseLong(fields[1].substring(1));
        long c = Math.round(Double.parseDouble(fields[fields.length - 2]) * 100);
        long n = Long.parseLong(fields[fields.length - 1]);
        return (a + 31 * c) * (k + 1_000_000 * n);
    }
}
