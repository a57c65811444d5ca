package vellum.junit;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.bson.Document;

/**
 * A running server and a client of it. The server ends when its standard input closes, which the operating system
 * sees to when this process ends, also by SIGKILL.
 */
public final class VellumServer implements AutoCloseable {
    private static final long STOP_SECONDS = 10;

    private final Process process;
    private final Path log;
    private final String uri;
    private final MongoClient client;

    /**
     * Starts the program that VELLUM_BINARY names, or that of vellum-server on the class path, or else the vellum on
     * the path, on a free port.
     *
     * @throws IllegalStateException with the server's own message if it doesn't start
     */
    public VellumServer(String... options) {
        String program = Program.find();
        List<String> command = new ArrayList<>(List.of(program, "serve", "--port", "0", "--parent-pipe"));
        command.addAll(List.of(options));
        try {
            log = Files.createTempFile("vellum-", ".log");
            process = new ProcessBuilder(command).redirectError(log.toFile()).start();
            // Not closed: the pipe's other end is the server's to write to.
            var output = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            uri = output.readLine();
            if (uri == null || !uri.startsWith("mongodb://")) {
                process.destroyForcibly();
                String said = Files.readString(log).strip();
                Files.deleteIfExists(log);
                throw new IllegalStateException("vellum did not start: " + said);
            }
        } catch (IOException error) {
            throw new UncheckedIOException("vellum did not start: " + error.getMessage(), error);
        }
        client = MongoClients.create(uri);
    }

    /** The connection string. */
    public String uri() {
        return uri;
    }

    /** A client for all tests. */
    public MongoClient client() {
        return client;
    }

    /** Makes a copy-on-write twin of a database: collections, indexes, validators, documents. */
    public void fork(String from, String to) {
        run(new Document("forkDatabase", from).append("to", to));
    }

    /** Empties every collection; collections, indexes and validators stay. */
    public void reset(String database) {
        run(new Document("resetDatabase", database));
    }

    /** Keeps a database's state under a name, replacing an earlier one. */
    public void snapshot(String database, String name) {
        run(new Document("snapshotDatabase", database).append("name", name).append("replace", true));
    }

    /** Puts a database back into the state of a snapshot, which stays. */
    public void restore(String database, String name) {
        run(new Document("restoreDatabase", database).append("name", name));
    }

    /** Forgets a snapshot. */
    public void dropSnapshot(String database, String name) {
        run(new Document("dropSnapshot", database).append("name", name));
    }

    private void run(Document command) {
        client.getDatabase("admin").runCommand(command);
    }

    /** Ends the server and waits until it is gone. */
    @Override
    public void close() throws IOException, InterruptedException {
        client.close();
        process.getOutputStream().close();
        if (!process.waitFor(STOP_SECONDS, TimeUnit.SECONDS)) {
            process.destroyForcibly().waitFor();
        }
        Files.deleteIfExists(log);
    }
}
