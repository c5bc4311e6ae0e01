package thalweg.bench;

import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.types.DataType;

/**
 * Flink SQL as a peer: exact sliding windows per card over a CSV file, in streaming mode.
 *
 * <p>Everything runs in this process (Flink's own local cluster). The settings are the ones that
 * Flink's tuning guides advise for throughput; the README says which and why.
 */
public final class Windows {

    private Windows() {}

    public static void main(String[] args) throws Exception {
        Scratch.removeAtExit(System.getProperty("windows.scratch"));
        Arguments arguments;
        try {
            arguments = Arguments.parse(args, "--input");
        } catch (IllegalArgumentException e) {
            System.err.println("windows: " + e.getMessage());
            System.err.println(Arguments.USAGE);
            System.exit(2);
            return;
        }

        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(
                        arguments.parallelism, configuration(arguments));
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().set("table.local-time-zone", "UTC");
        tables.executeSql(source(arguments.input));
        Table answers = tables.sqlQuery(query(arguments.windowMs));

        if (arguments.explain) {
            System.err.println(answers.explain());
        }

        // Internal rows go straight to the sink: no conversion of each row to external types.
        DataType rows = answers.getResolvedSchema().toSinkRowDataType().bridgedTo(RowData.class);
        DataStream<RowData> stream = tables.toDataStream(answers, rows);
        stream.sinkTo(new DigestSink());

        long jvmStarted = ManagementFactory.getRuntimeMXBean().getStartTime();
        double startup = (System.currentTimeMillis() - jvmStarted) / 1e3;
        long started = System.nanoTime();
        env.execute("windows");
        double seconds = (System.nanoTime() - started) / 1e9;

        Totals totals = Totals.collected();
        double active = totals.activeSeconds();
        System.out.printf(
                Locale.ROOT,
                "peer=flink-%s records=%d seconds=%.3f rate=%.0f digest=%016x"
                        + " startup_seconds=%.3f active_seconds=%.3f active_rate=%.0f"
                        + " parallelism=%d%n",
                arguments.backend,
                totals.rows(),
                seconds,
                totals.rows() / seconds,
                totals.digest(),
                startup,
                active,
                totals.rows() / active,
                arguments.parallelism);
        System.out.flush();
        // The local cluster leaves threads behind that would delay the exit.
        System.exit(0);
    }

    static Configuration configuration(Arguments arguments) {
        Map<String, String> settings = new HashMap<>();
        settings.put("pipeline.object-reuse", "true");
        // No checkpoints: execution.checkpointing.interval stays unset.
        // Buffers leave only when they are full; nobody waits for a single answer here.
        settings.put("execution.buffer-timeout.enabled", "false");
        settings.put("pipeline.auto-watermark-interval", arguments.watermarkMs + " ms");
        settings.put("rest.bind-address", "127.0.0.1");
        settings.put("rest.address", "127.0.0.1");
        settings.put("rest.bind-port", "0");
        settings.put("taskmanager.memory.network.min", "256m");
        settings.put("taskmanager.memory.network.max", "256m");
        if (arguments.backend.equals("heap")) {
            settings.put("state.backend.type", "hashmap");
        } else {
            settings.put("state.backend.type", "rocksdb");
            // Memtables and block cache come out of managed memory, 128 MB if nothing is said.
            settings.put("taskmanager.memory.managed.size", arguments.managedMemory);
            settings.put("state.backend.rocksdb.timer-service.factory", "HEAP");
            settings.put("state.backend.rocksdb.predefined-options", arguments.rocksdbOptions);
            settings.put("state.backend.rocksdb.use-bloom-filter", "true");
        }
        settings.putAll(arguments.extra);
        return Configuration.fromMap(settings);
    }

    /**
     * The file as a table.
     *
     * <p>Flink's CSV format has no switch for a header line. It is read as a row whose numbers
     * don't parse and are therefore null, gets the time 0 (the watermark assigner takes no null),
     * and the query drops that row.
     *
     * <p>The watermark is one millisecond behind the record, so that a tie in time which falls
     * around a watermark isn't dropped as late.
     */
    private static String source(Path input) {
        String path = input.toAbsolutePath().toUri().toString().replace("'", "''");
        return "CREATE TABLE payments ("
                + " ts BIGINT, card STRING, merchant STRING, amount DOUBLE,"
                + " rowtime AS TO_TIMESTAMP_LTZ(COALESCE(ts, 0), 3),"
                + " WATERMARK FOR rowtime AS rowtime - INTERVAL '0.001' SECOND"
                + ") WITH ('connector' = 'filesystem', 'path' = '" + path + "',"
                + " 'format' = 'csv', 'csv.ignore-parse-errors' = 'true')";
    }

    /** RANGE includes its lower end and ours doesn't, so the bound is a millisecond shorter. */
    static String query(long windowMs) {
        String window =
                "OVER (PARTITION BY card ORDER BY rowtime RANGE BETWEEN "
                        + interval(windowMs - 1)
                        + " PRECEDING AND CURRENT ROW)";
        return "SELECT ts, card, SUM(amount) " + window + " AS spent, COUNT(*) " + window + " AS n"
                + " FROM payments WHERE ts IS NOT NULL";
    }

    /** An interval to the millisecond. Flink takes at most three leading digits, so seconds alone won't do. */
    static String interval(long ms) {
        Duration d = Duration.ofMillis(ms);
        return String.format(
                Locale.ROOT,
                "INTERVAL '%d %02d:%02d:%02d.%03d' DAY(3) TO SECOND(3)",
                d.toDays(),
                d.toHoursPart(),
                d.toMinutesPart(),
                d.toSecondsPart(),
                d.toMillisPart());
    }

    /** Of this program, and of {@link KafkaWindows}. */
    static final class Arguments {
        static final String USAGE =
                "usage: run.sh --input FILE | kafka --bootstrap HOST:PORT [--topic NAME]"
                        + " [--answers NAME] [--backend heap|rocksdb]"
                        + " [--parallelism N] [--window-ms W] [--watermark-ms M] [--managed-memory SIZE]"
                        + " [--rocksdb-options NAME] [--conf KEY=VALUE]... [--explain]";

        Path input;
        String bootstrap;
        String topic = "payments";
        String answers = "answers";
        String backend = "heap";
        int parallelism = 1;
        long windowMs = 3_600_000;
        long watermarkMs = 200;
        String managedMemory = "2g";
        String rocksdbOptions = "DEFAULT";
        boolean explain;
        final Map<String, String> extra = new HashMap<>();

        static Arguments parse(String[] args, String needed) {
            Arguments parsed = new Arguments();
            for (int i = 0; i < args.length; i++) {
                String name = args[i];
                if (name.equals("--explain")) {
                    parsed.explain = true;
                    continue;
                }
                if (i + 1 == args.length) {
                    throw new IllegalArgumentException(name + " needs a value");
                }
                parsed.set(name, args[++i]);
            }
            if (!List.of(args).contains(needed)) {
                throw new IllegalArgumentException(needed + " is missing");
            }
            return parsed;
        }

        private void set(String name, String value) {
            switch (name) {
                case "--input" -> {
                    input = Path.of(value);
                    require(Files.isReadable(input), "no readable file \"" + value + "\"");
                }
                case "--bootstrap" -> bootstrap = value;
                case "--topic" -> topic = value;
                case "--answers" -> answers = value;
                case "--backend" -> {
                    backend = value;
                    require(
                            value.equals("heap") || value.equals("rocksdb"),
                            "expected heap or rocksdb, got \"" + value + "\"");
                }
                case "--parallelism" -> parallelism = (int) atLeastOne(name, value);
                case "--window-ms" -> {
                    windowMs = atLeastOne(name, value);
                    require(
                            windowMs <= Duration.ofDays(999).toMillis(),
                            "Flink takes windows of at most 999 days, got " + value + " ms");
                }
                case "--watermark-ms" -> watermarkMs = atLeastOne(name, value);
                case "--managed-memory" -> managedMemory = value;
                case "--rocksdb-options" -> rocksdbOptions = value;
                case "--conf" -> {
                    int equals = value.indexOf('=');
                    require(equals > 0, "expected KEY=VALUE, got \"" + value + "\"");
                    extra.put(value.substring(0, equals), value.substring(equals + 1));
                }
                default -> throw new IllegalArgumentException("no such option: " + name);
            }
        }

        private static long atLeastOne(String name, String value) {
            // A value that isn't a number at all throws NumberFormatException, which names it.
            long number = Long.parseLong(value);
            require(number >= 1, name + " must be at least 1, got " + value);
            return number;
        }

        private static void require(boolean condition, String message) {
            if (!condition) {
                throw new IllegalArgumentException(message);
            }
        }
    }
}
