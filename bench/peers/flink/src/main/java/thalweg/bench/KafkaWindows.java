package thalweg.bench;

import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The query of {@link Windows} from a topic of Kafka's to another: from the first record to the last that is there
 * at the start.
 *
 * <p>A message is a record as CSV, and so is an answer, {@code ts,card,spent,n} with the card as its key. Each
 * partition is in the order of time and has a watermark of its own, so nothing is late.
 */
public final class KafkaWindows {

    private KafkaWindows() {}

    public static void main(String[] args) throws Exception {
        Scratch.removeAtExit(System.getProperty("windows.scratch"));
        Windows.Arguments arguments;
        try {
            arguments = Windows.Arguments.parse(args, "--bootstrap");
        } catch (IllegalArgumentException e) {
            System.err.println("windows: " + e.getMessage());
            System.err.println(Windows.Arguments.USAGE);
            System.exit(2);
            return;
        }

        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(
                        arguments.parallelism, Windows.configuration(arguments));
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().set("table.local-time-zone", "UTC");
        tables.executeSql(source(arguments));
        tables.executeSql(sink(arguments));
        String query = "INSERT INTO answers " + Windows.query(arguments.windowMs);
        if (arguments.explain) {
            System.err.println(tables.explainSql(query));
        }
        long records = records(arguments);

        long jvmStarted = ManagementFactory.getRuntimeMXBean().getStartTime();
        double startup = (System.currentTimeMillis() - jvmStarted) / 1e3;
        long started = System.nanoTime();
        tables.executeSql(query).await();
        double seconds = (System.nanoTime() - started) / 1e9;

        System.out.printf(
                Locale.ROOT,
                "peer=flink-kafka-%s records=%d seconds=%.3f rate=%.0f startup_seconds=%.3f parallelism=%d%n",
                arguments.backend,
                records,
                seconds,
                records / seconds,
                startup,
                arguments.parallelism);
        System.out.flush();
        // The local cluster leaves threads behind that would delay the exit.
        System.exit(0);
    }

    /** How many records the source will read. */
    private static long records(Windows.Arguments arguments) {
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments.bootstrap);
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            List<TopicPartition> partitions =
                    consumer.partitionsFor(arguments.topic).stream()
                            .map(each -> new TopicPartition(each.topic(), each.partition()))
                            .toList();
            long end = sum(consumer.endOffsets(partitions));
            return end - sum(consumer.beginningOffsets(partitions));
        }
    }

    private static long sum(Map<TopicPartition, Long> offsets) {
        return offsets.values().stream().mapToLong(Long::longValue).sum();
    }

    /** The watermark is that of {@link Windows}. */
    private static String source(Windows.Arguments arguments) {
        return "CREATE TABLE payments ("
                + " ts BIGINT, card STRING, merchant STRING, amount DOUBLE,"
                + " rowtime AS TO_TIMESTAMP_LTZ(ts, 3),"
                + " WATERMARK FOR rowtime AS rowtime - INTERVAL '0.001' SECOND"
                + ") WITH (" + topic(arguments.bootstrap, arguments.topic)
                + ", 'format' = 'csv', 'scan.startup.mode' = 'earliest-offset', 'scan.bounded.mode' = 'latest-offset')";
    }

    private static String sink(Windows.Arguments arguments) {
        return "CREATE TABLE answers (ts BIGINT, card STRING, spent DOUBLE, n BIGINT) WITH ("
                + topic(arguments.bootstrap, arguments.answers)
                + ", 'key.format' = 'raw', 'key.fields' = 'card', 'value.format' = 'csv')";
    }

    private static String topic(String bootstrap, String name) {
        return "'connector' = 'kafka', 'properties.bootstrap.servers' = '" + bootstrap + "', 'topic' = '"
                + name.replace("'", "''") + "'";
    }
}
