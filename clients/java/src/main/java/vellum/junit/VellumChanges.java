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
 * Changes of a test in its own database since the test requested this parameter. Earlier changes, made by
 * {@code @BeforeEach}, are not included.
 */
public final class VellumChanges implements AutoCloseable {
    /** The snapshot to compare with, and a collection that creates the database for the snapshot. */
    private static final String BEFORE = "vellum_before";

    private final VellumServer server;
    private final String database;
    private final Path file;

    VellumChanges(VellumServer server, String database, Path file) {
        this.server = server;
        this.database = database;
        this.file = file;
        var testDatabase = server.client().getDatabase(database);
        boolean empty = testDatabase.listCollectionNames().first() == null;
        if (empty) {
            // A database without collections does not exist and has no snapshots.
            testDatabase.createCollection(BEFORE);
        }
        server.snapshot(database, BEFORE);
        if (empty) {
            testDatabase.getCollection(BEFORE).drop();
        }
    }

    /** Returns the changes in the form of change events. */
    public List<Document> list() {
        return VellumServer.documents(events());
    }

    /**
     * Fails unless the changes are exactly these.
     *
     * @param expected an array of events in extended JSON or shell syntax. {@code ns} needs no {@code db}.
     *     Types count: {@code NumberLong(1)} is another value than {@code 1}
     */
    public void assertExactly(String expected) {
        List<BsonDocument> events = BsonArray.parse(expected).stream().map(BsonValue::asDocument).toList();
        assertEqual("the changes differ from the expected changes", Approval.exact(events), Approval.exact(events()));
    }

    /**
     * Compares the changes with {@code src/test/resources/PACKAGE/CLASS.METHOD.approved.json}. Writes the
     * file if it is missing (except in CI), or if the variable VELLUM_APPROVE is set. The system property
     * {@code vellum.approved} sets another folder than {@code src/test/resources}.
     */
    public void approve() {
        approve(file);
    }

    /** Like {@code approve()} with another file, for a test that runs with several parameters. */
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
            assertEqual("the changes differ from " + file + "; VELLUM_APPROVE=1 writes the file", approved, changed);
        } catch (IOException error) {
            throw new UncheckedIOException(error);
        }
    }

    private static boolean isSet(Map<String, String> environment, String name) {
        return !environment.getOrDefault(name, "").isEmpty();
    }

    private static void assertEqual(String what, String expected, String changed) {
        if (!expected.equals(changed)) {
            throw new AssertionFailedError(what + ":\n" + Difference.of(expected, changed), expected, changed);
        }
    }

    private List<BsonDocument> events() {
        return server.difference(database, BEFORE).stream()
                .filter(event -> !event.getDocument("ns").getString("coll").getValue().equals(BEFORE)).toList();
    }

    /** Removes the snapshot. */
    @Override
    public void close() {
        server.dropSnapshot(database, BEFORE);
    }
}
