package thalweg.bench;

import java.io.Serializable;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.flink.api.connector.sink2.Sink;
import org.apache.flink.api.connector.sink2.SinkWriter;
import org.apache.flink.api.connector.sink2.WriterInitContext;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.streaming.api.datastream.DataStream;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.table.annotation.DataTypeHint;
import org.apache.flink.table.annotation.FunctionHint;
import org.apache.flink.table.api.Table;
import org.apache.flink.table.api.bridge.java.StreamTableEnvironment;
import org.apache.flink.table.data.RowData;
import org.apache.flink.table.functions.AggregateFunction;
import org.apache.flink.table.types.DataType;
import org.apache.flink.table.types.logical.LogicalType;
import org.apache.flink.table.types.logical.LogicalTypeRoot;

/**
 * Flink SQL as a peer: twenty features of each payment of a CSV file, in streaming mode.
 *
 * <p>All {@code OVER} aggregates of one query must have one window, so there is a query for each
 * window, over the answers of the one before.
 */
public final class Features {

    private Features() {}

    /** A window, and its aggregates by the names of the features. */
    private record Window(String name, String key, long ms, List<String[]> features) {}

    private static final long MINUTE = 60_000;
    private static final long HOUR = 60 * MINUTE;
    private static final long DAY = 24 * HOUR;

    /** STDDEV_SAMP is not there for OVER in streaming mode. */
    private static final String DEVIATION =
            "CASE WHEN COUNT(*) @ > 1 THEN SQRT(GREATEST(0.0E0, (SUM(amount * amount) @"
                    + " - SUM(amount) @ * SUM(amount) @ / COUNT(*) @) / (COUNT(*) @ - 1))) END";

    private static final List<Window> WINDOWS =
            List.of(
                    window("card_1m", "card", MINUTE, "n", "COUNT(*) @"),
                    window(
                            "card_1h", "card", HOUR,
                            "n", "COUNT(*) @", "spent", "SUM(amount) @", "shop", "LAST_VALUE(merchant) @"),
                    window("card_24h", "card", DAY, "spent", "SUM(amount) @", "mean", "AVG(amount) @"),
                    window(
                            "card_30d", "card", 30 * DAY,
                            "deviation", DEVIATION, "shops", "COUNT(DISTINCT merchant) @",
                            "median", "MEDIAN(amount) @"),
                    window("device_1h", "device", HOUR, "cards", "COUNT(DISTINCT card) @"),
                    window(
                            "device_24h", "device", DAY,
                            "spent", "SUM(amount) @", "least", "MIN(amount) @"),
                    window(
                            "device_30d", "device", 30 * DAY, "most", "MAX(amount) @", "n", "COUNT(*) @"),
                    window("merchant_1m", "merchant", MINUTE, "taken", "SUM(amount) @"),
                    window(
                            "merchant_1h", "merchant", HOUR,
                            "mean", "AVG(amount) @", "deviation", DEVIATION),
                    window("merchant_24h", "merchant", DAY, "cards", "COUNT(DISTINCT card) @"),
                    window("merchant_30d", "merchant", 30 * DAY, "median", "MEDIAN(amount) @"));

    private static Window window(String name, String key, long ms, String... features) {
        List<String[]> pairs = new ArrayList<>();
        for (int i = 0; i < features.length; i += 2) {
            pairs.add(new String[] {features[i], features[i + 1]});
        }
        return new Window(name, key, ms, pairs);
    }

    public static void main(String[] args) throws Exception {
        Scratch.removeAtExit(System.getProperty("windows.scratch"));
        Path input = null;
        int parallelism = 2;
        for (int i = 0; i + 1 < args.length; i += 2) {
            switch (args[i]) {
                case "--input" -> input = Path.of(args[i + 1]);
                case "--parallelism" -> parallelism = Integer.parseInt(args[i + 1]);
                default -> throw new IllegalArgumentException("no such option: " + args[i]);
            }
        }
        if (input == null || !Files.isReadable(input)) {
            System.err.println("usage: run.sh features --input FILE [--parallelism N]");
            System.exit(2);
        }

        Configuration configuration = Configuration.fromMap(Map.of(
                "pipeline.object-reuse", "true",
                "execution.buffer-timeout.enabled", "false",
                "rest.bind-address", "127.0.0.1",
                "rest.address", "127.0.0.1",
                "rest.bind-port", "0",
                "taskmanager.memory.network.min", "256m",
                "taskmanager.memory.network.max", "256m",
                "state.backend.type", "hashmap"));
        StreamExecutionEnvironment env =
                StreamExecutionEnvironment.createLocalEnvironment(parallelism, configuration);
        StreamTableEnvironment tables = StreamTableEnvironment.create(env);
        tables.getConfig().set("table.local-time-zone", "UTC");
        tables.createTemporarySystemFunction("MEDIAN", Median.class);
        tables.executeSql(source(input));
        List<String> names = new ArrayList<>();
        Table answers = tables.sqlQuery(query(names));
        DataType rows = answers.getResolvedSchema().toSinkRowDataType().bridgedTo(RowData.class);
        LogicalTypeRoot[] kinds =
                rows.getLogicalType().getChildren().stream()
                        .map(LogicalType::getTypeRoot)
                        .toArray(LogicalTypeRoot[]::new);
        DataStream<RowData> stream = tables.toDataStream(answers, rows);
        stream.sinkTo(new TotalsSink(kinds));

        long started = System.nanoTime();
        env.execute("features");
        double seconds = (System.nanoTime() - started) / 1e9;
        StringBuilder totals = new StringBuilder();
        for (int i = 0; i < names.size(); i++) {
            totals.append(' ').append(names.get(i)).append('=').append(TotalsSink.totals[i]);
        }
        System.out.printf(
                Locale.ROOT,
                "peer=flink-heap records=%d seconds=%.3f rate=%.0f%s%n",
                TotalsSink.rows,
                seconds,
                TotalsSink.rows / seconds,
                totals);
        System.out.flush();
        // The local cluster leaves threads behind that would delay the exit.
        System.exit(0);
    }

    private static String source(Path input) {
        String path = input.toAbsolutePath().toUri().toString().replace("'", "''");
        return "CREATE TABLE payments ("
                + " ts BIGINT, tx STRING, card STRING, device STRING, merchant STRING, country STRING,"
                + " amount DOUBLE, rowtime AS TO_TIMESTAMP_LTZ(COALESCE(ts, 0), 3),"
                + " WATERMARK FOR rowtime AS rowtime - INTERVAL '0.001' SECOND"
                + ") WITH ('connector' = 'filesystem', 'path' = '" + path + "',"
                + " 'format' = 'csv', 'csv.ignore-parse-errors' = 'true')";
    }

    /**
     * Queries within queries; {@code names} gets the features in the order of the columns.
     *
     * <p>The planner drops a query that only renames columns, and then finds its own name for an
     * aggregate twice. So the first feature of each is computed with, by ABS.
     */
    private static String query(List<String> names) {
        String from = "SELECT * FROM payments WHERE ts IS NOT NULL";
        // The payment before is in the window of a day if it is not too old.
        String before = "OVER (PARTITION BY card ORDER BY rowtime)";
        from = "SELECT *, ABS(LAG(ts, 1) " + before + ") AS before_ts, LAG(country, 1) " + before
                + " AS before_country FROM (" + from + ")";
        List<String> columns = new ArrayList<>();
        for (Window window : WINDOWS) {
            String over = "OVER (PARTITION BY " + window.key + " ORDER BY rowtime RANGE BETWEEN "
                    + Windows.interval(window.ms - 1) + " PRECEDING AND CURRENT ROW)";
            StringBuilder select = new StringBuilder("SELECT *");
            for (String[] feature : window.features) {
                String column = window.name + "_" + feature[0];
                String value = feature[1].replace("@", over);
                boolean isFirst = feature == window.features.get(0);
                select.append(", ").append(isFirst ? "ABS(" + value + ")" : value);
                select.append(" AS ").append(column);
                names.add(window.name + "." + feature[0]);
                columns.add(column);
            }
            from = select + " FROM (" + from + ")";
        }
        names.add("card_24h.before");
        columns.add("CASE WHEN before_ts > ts - " + DAY + " THEN before_country END");
        return "SELECT " + String.join(", ", columns) + " FROM (" + from + ")";
    }

    /** Amounts of a window, in order. */
    public static final class Amounts implements Serializable {
        private static final long serialVersionUID = 1L;
        public double[] sorted = new double[4];
        public int count;
    }

    /** The value of rank floor((n - 1) / 2), as ours. */
    @FunctionHint(
            accumulator = @DataTypeHint(value = "RAW", bridgedTo = Amounts.class),
            output = @DataTypeHint("DOUBLE"))
    public static final class Median extends AggregateFunction<Double, Amounts> {
        private static final long serialVersionUID = 1L;

        @Override
        public Amounts createAccumulator() {
            return new Amounts();
        }

        public void accumulate(Amounts held, Double amount) {
            int at = Arrays.binarySearch(held.sorted, 0, held.count, amount);
            at = at < 0 ? -at - 1 : at;
            if (held.count == held.sorted.length) {
                held.sorted = Arrays.copyOf(held.sorted, 2 * held.count);
            }
            System.arraycopy(held.sorted, at, held.sorted, at + 1, held.count - at);
            held.sorted[at] = amount;
            held.count++;
        }

        public void retract(Amounts held, Double amount) {
            int at = Arrays.binarySearch(held.sorted, 0, held.count, amount);
            held.count--;
            System.arraycopy(held.sorted, at + 1, held.sorted, at, held.count - at);
        }

        @Override
        public Double getValue(Amounts held) {
            return held.count == 0 ? null : held.sorted[(held.count - 1) / 2];
        }
    }

    /** Adds each feature up over all answers, as the README says. */
    private static final class TotalsSink implements Sink<RowData> {
        private static final long serialVersionUID = 1L;

        /** Of all writers; tasks of the local cluster run in this process. */
        static long rows;

        static long[] totals = new long[20];
        private final LogicalTypeRoot[] kinds;

        TotalsSink(LogicalTypeRoot[] kinds) {
            this.kinds = kinds;
        }

        private static synchronized void add(long rows, long[] totals) {
            TotalsSink.rows += rows;
            for (int i = 0; i < totals.length; i++) {
                TotalsSink.totals[i] += totals[i];
            }
        }

        @Override
        public SinkWriter<RowData> createWriter(WriterInitContext context) {
            long[] mine = new long[kinds.length];
            return new SinkWriter<>() {
                private long seen;

                @Override
                public void write(RowData answer, Context context) {
                    for (int i = 0; i < mine.length; i++) {
                        if (!answer.isNullAt(i)) {
                            mine[i] += worth(answer, i);
                        }
                    }
                    seen++;
                }

                @Override
                public void flush(boolean endOfInput) {}

                @Override
                public void close() {
                    add(seen, mine);
                }
            };
        }

        private long worth(RowData answer, int i) {
            return switch (kinds[i]) {
                case BIGINT -> answer.getLong(i) * 100;
                // Averages often end in half a cent: what is added keeps them from a tie.
                case DOUBLE -> Math.round(answer.getDouble(i) * 100 + 0.31387);
                default -> {
                    String text = answer.getString(i).toString();
                    boolean isMerchant = text.charAt(0) == 'm';
                    yield isMerchant ? Long.parseLong(text.substring(1)) : text.charAt(0);
                }
            };
        }
    }
}
