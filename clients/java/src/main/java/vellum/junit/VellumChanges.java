package vellum.junit;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.bson.BsonArray;
import org.bson.BsonDocument;
import org.bson.BsonValue;
import org.bson.Document;
import org.opentest4j.AssertionFailedError;

/**
 * What a test has changed in its own database since it asked for this by a parameter: what {@code @BeforeEach} does
 * before isn't counted.
 */
public final class VellumChanges implements AutoCloseable {
    /** The snapshot that changes are told since, and a collection that has a database be there for it. */
    private static final String BEFORE = "vellum_before";

    private final VellumServer server;
    private final String database;
    private final Path file;

    VellumChanges(VellumServer server, String database, Path file) {
        this.server = server;
        this.database = database;
        this.file = file;
        var home = server.client().getDatabase(database);
        boolean empty = home.listCollectionNames().first() == null;
        if (empty) {
            // A database without a collection isn't there, and nothing is kept of it.
            home.createCollection(BEFORE);
        }
        server.snapshot(database, BEFORE);
        if (empty) {
            home.getCollection(BEFORE).drop();
        }
    }

    /** The changes as events like those of change streams. */
    public List<Document> list() {
        return VellumServer.documents(events());
    }

    /**
     * Fails unless exactly this has changed.
     *
     * @param expected an array of events in extended JSON or the shell's, whose {@code ns} need no {@code db}; types
     *     count, {@code NumberLong(1)} is another value than {@code 1}
     */
    public void assertExactly(String expected) {
        List<BsonDocument> events = BsonArray.parse(expected).stream().map(BsonValue::asDocument).toList();
        same("these aren't the changes that were expected", Approval.exact(events), Approval.exact(events()));
    }

    /**
     * Compares the changes with {@code src/test/resources/PACKAGE/CLASS.METHOD.approved.json}. The file is written where
     * there is none (but not in CI), and where the variable VELLUM_APPROVE is set. The system property
     * {@code vellum.approved} names another folder than {@code src/test/resources}.
     */
    public void approve() {
        approve(file);
    }

    /** Does the same with a file of another place or name: for a test that runs with several parameters. */
    public void approve(Path file) {
        approve(file, System.getenv());
    }

    void approve(Path file, Map<String, String> environment) {
        String changed = Approval.numbered(events());
        try {
            boolean exists = Files.exists(file);
            if (isSet(environment, "VELLUM_APPROVE") || !exists && !isSet(environment, "CI")) {
                Files.createDirectories(file.toAbsolutePath().getParent());
                Files.writeString(file, changed);
                return;
            }
            String approved = exists ? Files.readString(file).replace("\r\n", "\n") : "";
            same("these aren't the changes in " + file + "; VELLUM_APPROVE=1 writes it", approved, changed);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static boolean isSet(Map<String, String> environment, String name) {
        return !environment.getOrDefault(name, "").isEmpty();
    }

    private static void same(String what, String expected, String changed) {
        if (!expected.equals(changed)) {
            throw new AssertionFailedError(what + ":\n" + Difference.of(expected, changed), expected, changed);
        }
    }

    private List<BsonDocument> events() {
        return server.difference(database, BEFORE).stream()
                .filter(event -> !event.getDocument("ns").getString("coll").getValue().equals(BEFORE)).toList();
    }

    /** Forgets the state before the test. */
    @Override
    public void close() {
        server.dropSnapshot(database, BEFORE);
    }
}
