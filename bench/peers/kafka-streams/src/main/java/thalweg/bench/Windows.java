package thalweg.bench;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.LongAdder;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorSupplier;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.BuiltInDslStoreSuppliers;
import org.apache.kafka.streams.state.KeyValueBytesStoreSupplier;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.StoreBuilder;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Kafka Streams as a peer: exact sliding windows per card, from a topic to a topic.
 *
 * <p>{@code --how sliding} takes the windows of its DSL, {@link SlidingWindows}, which its guide has for this. They
 * differ from ours in what they keep and in what they say:
 *
 * <ul>
 *   <li>There is a window that ends with each record, and one that begins just after it. Each record is added to every
 *       window that contains it, so a record costs as many updates of the store as its card has records in the hour.
 *       Each window is a row of the store, and goes only when it is older than the store's retention.
 *   <li>The stream of results has each update of each window. Ours has one answer for each record, which is that of
 *       the window that ends with it: these are picked here, and the others are counted and left.
 *   <li>With the cache on (Kafka's default), updates of one window between two commits become one. The window that
 *       ends with a record is updated once, so none of these answers is lost; but they leave at a commit only, or when
 *       the cache is full.
 *   <li>Records that are late by more than the grace are dropped. The input has none.
 *   <li>{@code --store memory} looks at each time of any card in the hour, for each record: a map of all times is the
 *       first thing that such a store has. Its cost grows with the square of the rate.
 * </ul>
 *
 * <p>{@code --how rows} is what one writes by hand instead; see {@link Rows}. With {@code --count 0} it runs until it is
 * killed; instances with the same {@code --application} share the partitions.
 */
public final class Windows {

    private Windows() {}

    /** No record takes that long. */
    private static final long PATIENCE_SECONDS = 120;

    private static final AtomicLong taken = new AtomicLong();
    private static final LongAdder updates = new LongAdder();
    private static final LongAdder answers = new LongAdder();
    private static volatile long firstNanos;

    public static void main(String[] args) throws Exception {
        Scratch.removeAtExit();
        Map<String, String> defaults = new HashMap<>();
        defaults.put("--bootstrap", "");
        defaults.put("--count", "");
        defaults.put("--topic", "payments");
        defaults.put("--answers", "answers");
        defaults.put("--window-ms", "3600000");
        defaults.put("--grace-ms", "0");
        defaults.put("--threads", "1");
        defaults.put("--how", "sliding");
        defaults.put("--store", "rocksdb");
        defaults.put("--changelog", "on");
        defaults.put("--cache", "10485760");
        defaults.put("--commit-ms", "1000");
        defaults.put("--guarantee", "at_least_once");
        defaults.put("--isolation", "read_uncommitted");
        // One of its own for each run: it begins with the first record, and with empty stores.
        defaults.put("--application", "windows-" + ProcessHandle.current().pid());
        Options options = Options.parse("windows", defaults, args);

        long count = options.number("--count");
        CountDownLatch all = new CountDownLatch(1);
        KafkaStreams streams = new KafkaStreams(topology(options, count, all), settings(options));
        streams.setUncaughtExceptionHandler(
                error -> {
                    error.printStackTrace();
                    Runtime.getRuntime().halt(1);
                    return StreamThreadExceptionResponse.SHUTDOWN_APPLICATION;
                });

        double startup = (System.currentTimeMillis() - ManagementFactory.getRuntimeMXBean().getStartTime()) / 1e3;
        long started = System.nanoTime();
        streams.start();
        if (count == 0) {
            Thread.currentThread().join();
        }
        await(all);
        double active = (System.nanoTime() - firstNanos) / 1e9;
        // Closing writes what the caches hold, waits until the broker has all of it, and commits.
        streams.close();
        double seconds = (System.nanoTime() - started) / 1e9;

        System.out.printf(
                Locale.ROOT,
                "peer=kafka-streams-%s-%s records=%d seconds=%.3f rate=%.0f answers=%d updates=%d"
                        + " startup_seconds=%.3f active_seconds=%.3f active_rate=%.0f cpu_seconds=%.2f peak_bytes=%d"
                        + " threads=%d%n",
                options.text("--how"),
                options.text("--store"),
                taken.get(),
                seconds,
                taken.get() / seconds,
                answers.sum(),
                updates.sum(),
                startup,
                active,
                taken.get() / active,
                ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime() / 1e9,
                peakBytes(),
                options.number("--threads"));
    }

    private static Topology topology(Options options, long count, CountDownLatch all) {
        // Both ends of these windows belong to them, and ours is open at its start: a millisecond less.
        long differenceMs = options.number("--window-ms") - 1;
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, Double> amounts =
                builder.stream(
                                options.text("--topic"),
                                Consumed.with(Serdes.String(), Serdes.String())
                                        .withTimestampExtractor(Windows::time))
                        .peek((card, payment) -> take(count, all))
                        .mapValues(Windows::amount);
        KStream<String, String> answers =
                switch (options.text("--how")) {
                    case "sliding" -> sliding(amounts, differenceMs, options);
                    case "rows" -> amounts.process(rows(differenceMs, options));
                    default -> throw new IllegalArgumentException("--how is sliding or rows");
                };
        answers.peek((card, answer) -> Windows.answers.increment())
                .to(options.text("--answers"), Produced.with(Serdes.String(), Serdes.String()));
        return builder.build();
    }

    /** The topic has the card as its key, so nothing moves to another partition. */
    private static KStream<String, String> sliding(
            KStream<String, Double> amounts, long differenceMs, Options options) {
        Duration grace = Duration.ofMillis(options.number("--grace-ms"));
        Materialized<String, Sum, WindowStore<Bytes, byte[]>> store = Materialized.with(Serdes.String(), Sum.SERDE);
        store.withStoreType(
                inMemory(options) ? BuiltInDslStoreSuppliers.IN_MEMORY : BuiltInDslStoreSuppliers.ROCKS_DB);
        if (!options.flag("--changelog")) {
            store.withLoggingDisabled();
        }
        return amounts.groupByKey(Grouped.with(Serdes.String(), Serdes.Double()))
                .windowedBy(SlidingWindows.ofTimeDifferenceAndGrace(Duration.ofMillis(differenceMs), grace))
                .aggregate(() -> Sum.NONE, (card, amount, sum) -> sum.plus(amount), store)
                .toStream()
                .process(Own::new);
    }

    private static ProcessorSupplier<String, Double, String, String> rows(long differenceMs, Options options) {
        KeyValueBytesStoreSupplier kind =
                inMemory(options)
                        ? Stores.inMemoryKeyValueStore(Rows.STORE)
                        : Stores.persistentKeyValueStore(Rows.STORE);
        StoreBuilder<KeyValueStore<Bytes, Double>> store =
                Stores.keyValueStoreBuilder(kind, Serdes.Bytes(), Serdes.Double());
        if (!options.flag("--changelog")) {
            store.withLoggingDisabled();
        }
        return new ProcessorSupplier<>() {
            @Override
            public Processor<String, Double, String, String> get() {
                return new Rows(differenceMs);
            }

            @Override
            public Set<StoreBuilder<?>> stores() {
                return Set.of(store);
            }
        };
    }

    private static boolean inMemory(Options options) {
        return switch (options.text("--store")) {
            case "memory" -> true;
            case "rocksdb" -> false;
            default -> throw new IllegalArgumentException("--store is memory or rocksdb");
        };
    }

    static String answer(long ts, String card, double spent, long n) {
        return ts + "," + card + "," + spent + "," + n;
    }

    private static long time(ConsumerRecord<Object, Object> record, long partitionTime) {
        String payment = (String) record.value();
        return Long.parseLong(payment, 0, payment.indexOf(','), 10);
    }

    private static double amount(String payment) {
        return Double.parseDouble(payment.substring(payment.lastIndexOf(',') + 1));
    }

    private static void take(long count, CountDownLatch all) {
        long number = taken.incrementAndGet();
        if (number == 1) {
            firstNanos = System.nanoTime();
        }
        if (number == count) {
            all.countDown();
        }
    }

    /** Lets the answers through that end with their record. */
    private static final class Own extends ContextualProcessor<Windowed<String>, Sum, String, String> {
        @Override
        public void process(Record<Windowed<String>, Sum> update) {
            updates.increment();
            // An update has the time of the last record in its window.
            if (update.key().window().end() != update.timestamp()) {
                return;
            }
            String card = update.key().key();
            Sum sum = update.value();
            String answer = answer(update.timestamp(), card, sum.spent(), sum.n());
            context().forward(update.withKey(card).withValue(answer));
        }
    }

    private static Properties settings(Options options) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, options.text("--application"));
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, options.text("--bootstrap"));
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, (int) options.number("--threads"));
        settings.put(StreamsConfig.STATE_DIR_CONFIG, System.getProperty("java.io.tmpdir"));
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, options.number("--cache"));
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, options.number("--commit-ms"));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, options.text("--guarantee"));
        settings.put(StreamsConfig.mainConsumerPrefix("isolation.level"), options.text("--isolation"));
        return settings;
    }

    /** Waits for the last record, as long as records come. */
    private static void await(CountDownLatch all) throws InterruptedException {
        long before = -1;
        while (!all.await(PATIENCE_SECONDS, TimeUnit.SECONDS)) {
            long now = taken.get();
            if (now == before) {
                System.err.println("windows: no record for two minutes, after " + now);
                Runtime.getRuntime().halt(1);
            }
            before = now;
        }
    }

    /** The most memory that was resident at once. */
    private static long peakBytes() throws IOException {
        for (String line : Files.readAllLines(Path.of("/proc/self/status"))) {
            if (line.startsWith("VmHWM:")) {
                return Long.parseLong(line.replaceAll("[^0-9]", "")) * 1024;
            }
        }
        return 0;
    }
}
