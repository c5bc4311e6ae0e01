package thalweg.bench;

import java.io.BufferedReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Writes a CSV file of payments to a topic: one message for each record, the card as its key and the line as its
 * value. Makes that topic and those for answers, whose names have commas between them, where they are missing.
 *
 * <p>All records of a card are in one partition, in the order of the file, so each partition is in the order of time.
 *
 * <p>With {@code --transaction on} all of them are one transaction: who reads only what is committed sees none before
 * the last one is written, and then all.
 */
public final class Load {

    /** The longest that brokers grant by default. */
    private static final int TRANSACTION_MILLIS = 900_000;

    private Load() {}

    public static void main(String[] args) throws Exception {
        Scratch.removeAtExit();
        Options options =
                Options.parse(
                        "load",
                        Map.of(
                                "--bootstrap", "",
                                "--input", "",
                                "--topic", "payments",
                                "--answers", "answers",
                                "--partitions", "2",
                                "--transaction", "off"),
                        args);
        String bootstrap = options.text("--bootstrap");
        String topic = options.text("--topic");
        List<String> topics = new ArrayList<>(List.of(options.text("--answers").split(",")));
        topics.add(topic);
        makeTopics(bootstrap, topics, (int) options.number("--partitions"));

        // One request at a time: a partition that was made a moment ago may refuse the first batch and take the second,
        // after which the first is out of order for good.
        Map<String, Object> settings =
                new HashMap<>(
                        Map.of(
                                "bootstrap.servers", bootstrap,
                                "linger.ms", 20,
                                "batch.size", 131_072,
                                "max.in.flight.requests.per.connection", 1));
        boolean isTransaction = options.text("--transaction").equals("on");
        if (isTransaction) {
            settings.put("transactional.id", "load-" + topic + "-" + ProcessHandle.current().pid());
            settings.put("transaction.timeout.ms", TRANSACTION_MILLIS);
        }
        long started = System.nanoTime();
        long records = 0;
        AtomicReference<Exception> failure = new AtomicReference<>();
        try (KafkaProducer<String, String> producer =
                        new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
                BufferedReader lines = Files.newBufferedReader(Path.of(options.text("--input")))) {
            if (isTransaction) {
                producer.initTransactions();
                producer.beginTransaction();
            }
            lines.readLine(); // the header
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                int card = line.indexOf(',') + 1;
                String key = line.substring(card, line.indexOf(',', card));
                producer.send(
                        new ProducerRecord<>(topic, key, line),
                        (written, error) -> {
                            if (error != null) {
                                failure.set(error);
                            }
                        });
                records++;
            }
            if (isTransaction) {
                producer.commitTransaction();
            }
        }
        if (failure.get() != null) {
            throw failure.get();
        }
        double seconds = (System.nanoTime() - started) / 1e9;
        System.out.printf(
                Locale.ROOT, "load records=%d seconds=%.3f rate=%.0f%n", records, seconds, records / seconds);
    }

    /** Makes those that are missing. Nothing is deleted of them: answers have the time of their payments, which may be long ago. */
    private static void makeTopics(String bootstrap, List<String> names, int partitions)
            throws ExecutionException, InterruptedException {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            List<NewTopic> topics =
                    names.stream()
                            .map(
                                    name ->
                                            new NewTopic(name, Optional.of(partitions), Optional.empty())
                                                    .configs(Map.of("retention.ms", "-1")))
                            .toList();
            for (KafkaFuture<Void> made : admin.createTopics(topics).values().values()) {
                try {
                    made.get();
                } catch (ExecutionException error) {
                    if (!(error.getCause() instanceof TopicExistsException)) {
                        throw error;
                    }
                }
            }
        }
    }
}
