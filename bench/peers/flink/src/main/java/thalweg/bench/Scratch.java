package thalweg.bench;

import java.io.IOException;
import java.nio.file.FileVisitResult;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SimpleFileVisitor;
import java.nio.file.attribute.BasicFileAttributes;

/** The temporary folder of one run, which {@code run.sh} made. */
final class Scratch {

    private Scratch() {}

    /** Removes the folder when the JVM ends, by itself or by a signal; does nothing for null. */
    static void removeAtExit(String folder) {
        if (folder != null) {
            Runtime.getRuntime().addShutdownHook(new Thread(() -> remove(Path.of(folder))));
        }
    }

    private static void remove(Path folder) {
        // Flink's own hooks remove some of the files at the same time, so what is gone is fine,
        // and a folder that was filled behind our back gets another try.
        for (int attempt = 0; attempt < 5 && Files.exists(folder); attempt++) {
            try {
                Files.walkFileTree(folder, new Remover());
            } catch (IOException e) {
                // Tried again.
            }
        }
    }

    private static final class Remover extends SimpleFileVisitor<Path> {
        @Override
        public FileVisitResult visitFile(Path file, BasicFileAttributes attributes)
                throws IOException {
            Files.deleteIfExists(file);
            return FileVisitResult.CONTINUE;
        }

        @Override
        public FileVisitResult visitFileFailed(Path file, IOException e) {
            return FileVisitResult.CONTINUE;
        }

        @Override
        public FileVisitResult postVisitDirectory(Path folder, IOException e) throws IOException {
            Files.deleteIfExists(folder);
            return FileVisitResult.CONTINUE;
        }
    }
}
