package vellum.junit;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.IndexOptions;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.stream.IntStream;
import org.bson.BsonBinary;
import org.bson.Document;
import org.bson.types.ObjectId;
import org.junit.jupiter.api.Nested;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;
import org.opentest4j.AssertionFailedError;

@ExtendWith(VellumExtension.class)
@VellumTemplate(VellumChangesTest.People.class)
class VellumChangesTest {
    private static final Path SHARED_FILE = Path.of("..", "changes.approved.json");

    static final class People implements Consumer<MongoDatabase> {
        @Override
        public void accept(MongoDatabase database) {
            database.getCollection("people").insertMany(List.of(
                    Document.parse("{_id: 1, name: 'Ada', born: 1815, x: 1}"), Document.parse("{_id: 2, name: 'Grace'}")));
        }
    }

    @Test
    void changesInSeveralBatches(MongoDatabase database, VellumChanges changes, VellumServer server) {
        assertEquals(List.of(), changes.list());
        List<Document> inserted = IntStream.range(0, 300).mapToObj(number -> new Document("_id", number)).toList();
        database.getCollection("new").insertMany(inserted);
        List<Document> listed = new ArrayList<>(changes.list());
        assertEquals("create", listed.remove(0).getString("operationType"));
        assertEquals(inserted, listed.stream().map(change -> change.get("fullDocument")).toList());
        server.snapshot(database.getName(), "later");
        database.getCollection("people").deleteOne(new Document("_id", 2));
        Document deleted = server.changes(database.getName(), "later").get(0);
        assertEquals(List.of("delete", new Document("_id", 2)),
                List.of(deleted.get("operationType"), deleted.get("documentKey")));
        server.dropSnapshot(database.getName(), "later");
    }

    @Test
    void assertExactlyComparesTypes(MongoDatabase database, VellumChanges changes) {
        database.getCollection("people").insertOne(new Document("_id", new ObjectId("65a000000000000000000001")).append("n", 7L));
        String expected = """
                [{operationType: "insert", ns: {coll: "people"}, documentKey: {_id: ObjectId("65a000000000000000000001")},
                  fullDocument: {n: NumberLong(7), _id: ObjectId("65a000000000000000000001")}}]""";
        changes.assertExactly(expected);
        for (String other : List.of("[]", expected.replace("Long(7)", "Int(7)"), expected.replace("01\")}}", "02\")}}"))) {
            var error = assertThrows(AssertionFailedError.class, () -> changes.assertExactly(other));
            assertTrue(error.isExpectedDefined() && error.isActualDefined());
            assertTrue(error.getMessage().contains("\n+ "), error.getMessage());
        }
    }

    @Test
    void theFileIsTheSameInAllLanguages(MongoDatabase database, VellumChanges changes) {
        var people = database.getCollection("people");
        var orders = database.getCollection("orders");
        people.updateOne(new Document("_id", 1), Document.parse("{$set: {born: NumberLong(1816)}, $unset: {x: 1, name: 1}}"));
        people.deleteOne(new Document("_id", 2));
        people.createIndex(Document.parse("{name: 1, born: -1}"), new IndexOptions().unique(true));
        ObjectId by = new ObjectId();
        // Their order differs from the order of their random keys.
        for (int number : new int[] {2, 1}) {
            orders.insertOne(new Document("_id", new BsonBinary(UUID.randomUUID()))
                    .append("number", number).append("by", by).append("at", new Date(0)));
        }
        orders.insertOne(new Document("_id", "z").append("b", 1.5)
                .append("a", Arrays.asList(true, null, new Document("d", "é \"<&>\n").append("c", List.of())))
                .append("by", by).append("next", new ObjectId()));
        changes.approve(SHARED_FILE);
    }

    @Test
    void approveWritesAMissingFileAndFailsOnDifferences(MongoDatabase database, VellumChanges changes, @TempDir Path folder)
            throws Exception {
        Path file = folder.resolve("approved").resolve("one.json");
        change(database, 1);
        assertThrows(AssertionFailedError.class, () -> changes.approve(file, Map.of("CI", "true")));
        assertFalse(Files.exists(file));
        changes.approve(file, Map.of());
        assertDoesNotThrow(() -> changes.approve(file, Map.of("CI", "true")));
        change(database, 2);
        var error = assertThrows(AssertionFailedError.class, () -> changes.approve(file, Map.of()));
        for (String part : List.of("one.json; VELLUM_APPROVE=1 writes the file", "\n- ", "\"n\": 1", "\n+ ", "\"n\": 2")) {
            assertTrue(error.getMessage().contains(part), error.getMessage());
        }
        changes.approve(file, Map.of("VELLUM_APPROVE", "1", "CI", "true"));
        changes.approve(file, Map.of());
    }

    private static void change(MongoDatabase database, int n) {
        database.getCollection("people").updateOne(new Document("_id", 1), Document.parse("{$set: {n: " + n + "}}"));
    }

    @Test
    void aTestsFileIsNamedAfterIt(MongoDatabase database, VellumChanges changes) {
        database.getCollection("people").insertOne(new Document("name", "Edith"));
        changes.approve();
    }

    /** Without a template, a database is empty and does not exist before the first insert. */
    @Nested
    class Empty {
        @Test
        void allChangesAreNew(VellumChanges changes, MongoDatabase database) {
            changes.assertExactly("[]");
            database.getCollection("c").insertOne(new Document("_id", 1));
            changes.assertExactly("""
                    [{operationType: "create", ns: {coll: "c"}, operationDescription: {}},
                     {operationType: "insert", ns: {coll: "c"}, documentKey: {_id: 1}, fullDocument: {_id: 1}}]""");
        }
    }

    @Test
    void differencesHaveContext() {
        String same = "a\nb\nc\nd\ne\n";
        assertEquals("  …\n  c\n  d\n  e\n- x\n+ y\n+ z\n  a\n  b\n  c\n  …\n  c\n  d\n  e\n+ end",
                Difference.of(same + "x\n" + same + same, same + "y\nz\n" + same + same + "end\n"));
    }
}
