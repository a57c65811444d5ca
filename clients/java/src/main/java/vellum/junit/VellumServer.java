package vellum.junit;

import com.mongodb.MongoClientSettings;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.UncheckedIOException;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.Document;
import org.bson.codecs.DecoderContext;
import org.bson.conversions.Bson;

/**
 * A running server and a client of it. The server ends when its standard input closes. The operating system
 * closes it when this process ends, even by SIGKILL.
 */
public final class VellumServer implements AutoCloseable {
    private static final long STOP_SECONDS = 10;
    private static final List<String> PLACES = List.of("--config", "--data", "--engine", "--postgres");

    private final Process process;
    private final Path log;
    private final String uri;
    private final MongoClient client;

    /**
     * Starts the program named by VELLUM_BINARY, or the program of vellum-server on the class path, or vellum
     * on the path, on a free port.
     *
     * @throws IllegalStateException with the server's own message if it does not start
     */
    public VellumServer(String... options) {
        this(null, null, "", List.of(options));
    }

    /**
     * Starts a server with access control. The first user has this name and password, and all privileges.
     * {@link #uri()} contains both.
     * @param user the name, or null without access control
     * @param uriOptions added to the connection string, such as {@code appName=tests}, or empty
     */
    public static VellumServer start(String user, String password, String uriOptions, String... options) {
        return new VellumServer(user, password, uriOptions, List.of(options));
    }

    private VellumServer(String user, String password, String uriOptions, List<String> options) {
        String program = Program.find();
        List<String> command = new ArrayList<>(List.of(program, "serve", "--port", "0", "--parent-pipe"));
        command.addAll(options);
        // Without an option for the place of the data it is memory, also if the environment names another place.
        if (options.stream().noneMatch(option -> PLACES.contains(option.split("=", 2)[0]))) {
            command.addAll(List.of("--engine", "memory"));
        }
        // The clock is for tests. With users, it is off unless it is requested.
        if (user != null && command.stream().noneMatch(option -> option.startsWith("--test-commands"))) {
            command.add("--test-commands");
        }
        String started;
        try {
            log = Files.createTempFile("vellum-", ".log");
            ProcessBuilder builder = new ProcessBuilder(command).redirectError(log.toFile());
            // Variables of MongoDB's images, perhaps for another server, would require a login.
            builder.environment().keySet().removeIf(name -> name.startsWith("MONGO_INITDB_ROOT_"));
            if (user != null) {
                builder.environment().put("MONGO_INITDB_ROOT_USERNAME", user);
                builder.environment().put("MONGO_INITDB_ROOT_PASSWORD", password);
            }
            process = builder.start();
            // Not closed: the server still writes to the other end of the pipe.
            var output = new BufferedReader(new InputStreamReader(process.getInputStream(), StandardCharsets.UTF_8));
            started = output.readLine();
            if (started == null || !started.startsWith("mongodb://")) {
                process.destroyForcibly();
                String message = Files.readString(log).strip();
                Files.deleteIfExists(log);
                throw new IllegalStateException("vellum did not start: " + message);
            }
        } catch (IOException error) {
            throw new UncheckedIOException("vellum did not start: " + error.getMessage(), error);
        }
        uri = connectionString(started, user, password, uriOptions);
        client = MongoClients.create(uri);
    }

    private static String connectionString(String started, String user, String password, String options) {
        String uri = started;
        if (user != null) {
            uri = uri.replaceFirst("://", Matcher.quoteReplacement("://" + escaped(user) + ":" + escaped(password) + "@"));
        }
        return options.isEmpty() ? uri : uri + (uri.contains("?") ? "&" : "?") + options;
    }

    /** Encodes a name or password for a connection string, in which a space is not a plus. */
    private static String escaped(String text) {
        return URLEncoder.encode(text, StandardCharsets.UTF_8).replace("+", "%20");
    }

    /** Returns the connection string. */
    public String uri() {
        return uri;
    }

    /** Returns a client for all tests. */
    public MongoClient client() {
        return client;
    }

    /** Forks a database (copy-on-write): collections, indexes, validators, documents. */
    public void fork(String from, String to) {
        run(new Document("forkDatabase", from).append("to", to));
    }

    /** Empties every collection. Collections, indexes and validators stay. */
    public void reset(String database) {
        run(new Document("resetDatabase", database));
    }

    /** Saves a database's state under a name. Replaces an earlier snapshot of this name. */
    public void snapshot(String database, String name) {
        run(new Document("snapshotDatabase", database).append("name", name).append("replace", true));
    }

    /** Restores a database from a snapshot, which stays. */
    public void restore(String database, String name) {
        run(new Document("restoreDatabase", database).append("name", name));
    }

    /** Removes a snapshot. */
    public void dropSnapshot(String database, String name) {
        run(new Document("dropSnapshot", database).append("name", name));
    }

    /** Returns the changes since a snapshot, in the form of change events. */
    public List<Document> changes(String database, String since) {
        return documents(difference(database, since));
    }

    static List<Document> documents(List<BsonDocument> events) {
        var codec = MongoClientSettings.getDefaultCodecRegistry().get(Document.class);
        var context = DecoderContext.builder().build();
        return events.stream().map(event -> codec.decode(event.asBsonReader(), context)).toList();
    }

    /**
     * Returns the changes with exact types, independent of the connection string. The driver has no command
     * cursors.
     */
    List<BsonDocument> difference(String database, String since) {
        List<BsonDocument> events = new ArrayList<>();
        // A cursor belongs to the session in which it was opened.
        try (ClientSession session = client.startSession()) {
            Bson first = new Document("diffDatabase", database).append("since", since).append("cursor", new Document());
            BsonDocument cursor = cursor(session, "admin", first);
            add(events, cursor.getArray("firstBatch"));
            String[] namespace = cursor.getString("ns").getValue().split("\\.", 2);
            while (cursor.getInt64("id").getValue() != 0) {
                Bson more = new Document("getMore", cursor.getInt64("id")).append("collection", namespace[1]);
                cursor = cursor(session, namespace[0], more);
                add(events, cursor.getArray("nextBatch"));
            }
        }
        return events;
    }

    private BsonDocument cursor(ClientSession session, String database, Bson command) {
        return client.getDatabase(database).runCommand(session, command, BsonDocument.class).getDocument("cursor");
    }

    private static void add(List<BsonDocument> events, BsonArray batch) {
        batch.forEach(event -> events.add(event.asDocument()));
    }

    private void run(Document command) {
        client.getDatabase("admin").runCommand(command);
    }

    /** Stops the server and waits for its end. */
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
