package thalweg.bench;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.List;
import java.util.stream.Stream;

/** The temporary folder of one run, which {@code run.sh} made. */
final class Scratch {

    private Scratch() {}

    /** Removes the folder when the JVM ends, by itself or by a signal. */
    static void removeAtExit() {
        Path folder = Path.of(System.getProperty("java.io.tmpdir"));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> remove(folder)));
    }

    private static void remove(Path folder) {
        try (Stream<Path> found = Files.walk(folder)) {
            List<Path> deepestFirst = found.sorted(Comparator.reverseOrder()).toList();
            for (Path path : deepestFirst) {
                Files.deleteIfExists(path);
            }
        } catch (IOException | RuntimeException e) {
            // The stores write at the same time if a signal ends us; what is left is the caller's.
        }
    }
}
