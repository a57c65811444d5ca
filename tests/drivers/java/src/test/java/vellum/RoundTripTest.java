package vellum;

import static com.mongodb.client.model.Accumulators.sum;
import static com.mongodb.client.model.Aggregates.group;
import static com.mongodb.client.model.Aggregates.match;
import static com.mongodb.client.model.Aggregates.sort;
import static com.mongodb.client.model.Aggregates.unwind;
import static com.mongodb.client.model.Filters.eq;
import static com.mongodb.client.model.Filters.gt;
import static com.mongodb.client.model.Projections.excludeId;
import static com.mongodb.client.model.Projections.fields;
import static com.mongodb.client.model.Projections.include;
import static com.mongodb.client.model.Sorts.ascending;
import static com.mongodb.client.model.Sorts.descending;
import static com.mongodb.client.model.Updates.combine;
import static com.mongodb.client.model.Updates.inc;
import static com.mongodb.client.model.Updates.push;
import static com.mongodb.client.model.Updates.set;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import com.mongodb.ClientSessionOptions;
import com.mongodb.ConnectionString;
import com.mongodb.CursorType;
import com.mongodb.MongoBulkWriteException;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoNamespace;
import com.mongodb.MongoWriteException;
import com.mongodb.client.ClientSession;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCollection;
import com.mongodb.client.MongoDatabase;
import com.mongodb.client.model.BulkWriteOptions;
import com.mongodb.client.model.CreateCollectionOptions;
import com.mongodb.client.model.DeleteOneModel;
import com.mongodb.client.model.FindOneAndUpdateOptions;
import com.mongodb.client.model.IndexOptions;
import com.mongodb.client.model.InsertOneModel;
import com.mongodb.client.model.ReplaceOptions;
import com.mongodb.client.model.ReturnDocument;
import com.mongodb.client.model.UpdateManyModel;
import com.mongodb.client.model.bulk.ClientNamespacedWriteModel;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.bson.Document;
import org.bson.types.Decimal128;
import org.bson.types.ObjectId;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** A round trip through MongoDB's synchronous Java driver; a warning in its log is a failure. */
class RoundTripTest {
    private static final List<Document> COMPOSERS = List.of(
            new Document("_id", 1).append("name", "Clara").append("born", 1819).append("works", List.of("Trio", "Konzert")),
            new Document("_id", 2).append("name", "Fanny").append("born", 1805).append("works", List.of("Das Jahr")),
            new Document("_id", 3).append("name", "Amy").append("born", 1867).append("works", List.of()));

    private static final boolean REPLICA_SET = "replset".equals(System.getenv("VELLUM_TOPOLOGY"));
    private static final List<String> WARNINGS = Collections.synchronizedList(new ArrayList<>());
    // Held in a field: java.util.logging drops loggers without references.
    private static final Logger DRIVER_LOG = Logger.getLogger("org.mongodb.driver");

    private static MongoClient client;
    private static MongoDatabase database;
    private MongoCollection<Document> people;

    @BeforeAll
    static void connect() {
        DRIVER_LOG.addHandler(new WarningCollector());
        client = MongoClients.create(MongoClientSettings.builder()
                .applyConnectionString(new ConnectionString(System.getenv("VELLUM_URI")))
                .applyToClusterSettings(settings -> settings.serverSelectionTimeout(5, TimeUnit.SECONDS))
                .build());
        database = client.getDatabase("java_roundtrip");
        database.drop();
    }

    @AfterAll
    static void disconnect() {
        database.drop();
        client.close();
        assertEquals(List.of(), WARNINGS);
    }

    @BeforeEach
    void seed() {
        people = database.getCollection("people");
        people.drop();
        people.insertMany(COMPOSERS);
    }

    @Test
    void helloDescribesTheTopology() {
        Document hello = client.getDatabase("admin").runCommand(new Document("hello", 1));
        assertEquals(true, hello.get("isWritablePrimary"));
        assertEquals(REPLICA_SET, hello.containsKey("setName"));
        assertTrue(hello.getInteger("maxWireVersion") >= 21);
    }

    @Test
    void documentsComeBackAsTheyWereSent() {
        Document sent = new Document("_id", new ObjectId("64b7f0c2a1b2c3d4e5f60718"))
                .append("long", 9007199254740993L).append("decimal", Decimal128.parse("0.10"))
                .append("nothing", null).append("nested", new Document("list", List.of(1, 2.5, "x")));
        database.getCollection("types").insertOne(sent);
        assertEquals(sent, database.getCollection("types").find().first());
    }

    @Test
    void findFiltersSortsAndProjectsInBatches() {
        List<Document> found = people.find(gt("born", 1800)).sort(descending("born"))
                .projection(fields(include("name"), excludeId())).batchSize(1).into(new ArrayList<>());
        assertEquals(List.of("Amy", "Clara", "Fanny"), found.stream().map(d -> d.getString("name")).toList());
        assertNull(people.find(eq("_id", 99)).first());
    }

    @Test
    void updatesReplacementsAndDeletes() {
        var updated = people.updateMany(gt("born", 1810), combine(inc("born", 1), push("works", "Lied")));
        assertEquals(List.of(2L, 2L), List.of(updated.getMatchedCount(), updated.getModifiedCount()));
        Document after = people.findOneAndUpdate(eq("_id", 1), set("name", "Clara S."),
                new FindOneAndUpdateOptions().returnDocument(ReturnDocument.AFTER));
        assertEquals(new Document("_id", 1).append("name", "Clara S.").append("born", 1820)
                .append("works", List.of("Trio", "Konzert", "Lied")), after);
        var replaced = people.replaceOne(eq("_id", 7), new Document("name", "Lili"), new ReplaceOptions().upsert(true));
        assertEquals(7, replaced.getUpsertedId().asInt32().getValue());
        assertEquals(1, people.deleteOne(eq("_id", 7)).getDeletedCount());
        assertEquals(3, people.countDocuments());
    }

    @Test
    void aUniqueIndexRefusesDuplicates() {
        assertEquals("name_1", people.createIndex(ascending("name"), new IndexOptions().unique(true)));
        var error = assertThrows(MongoWriteException.class, () -> people.insertOne(new Document("name", "Amy")));
        assertEquals(11000, error.getCode());
        List<String> names = people.listIndexes().map(d -> d.getString("name")).into(new ArrayList<>());
        assertEquals(List.of("_id_", "name_1"), names);
        people.dropIndex("name_1");
    }

    @Test
    void aggregationCountsPerGroup() {
        List<Document> rows = people.aggregate(List.of(match(gt("born", 0)), unwind("$works"),
                group("$name", sum("n", 1)), sort(ascending("_id")))).into(new ArrayList<>());
        assertEquals(List.of(new Document("_id", "Clara").append("n", 2), new Document("_id", "Fanny").append("n", 1)), rows);
    }

    @Test
    void bulkWritesReportWhatHappened() {
        var result = people.bulkWrite(List.of(
                new InsertOneModel<>(new Document("_id", 4)),
                new UpdateManyModel<>(new Document(), set("seen", true)),
                new DeleteOneModel<>(eq("_id", 3))));
        assertEquals(List.of(1, 4, 1),
                List.of(result.getInsertedCount(), result.getModifiedCount(), result.getDeletedCount()));
        var error = assertThrows(MongoBulkWriteException.class, () -> people.bulkWrite(
                List.of(new InsertOneModel<>(new Document("_id", 4)), new InsertOneModel<>(new Document("_id", 5))),
                new BulkWriteOptions().ordered(false)));
        assertEquals(List.of(0, 11000, 1), List.of(error.getWriteErrors().get(0).getIndex(),
                error.getWriteErrors().get(0).getCode(), error.getWriteResult().getInsertedCount()));
    }

    @Test
    void aClientBulkWriteReachesSeveralCollections() {
        MongoNamespace here = people.getNamespace();
        MongoNamespace there = new MongoNamespace(database.getName(), "other");
        var result = client.bulkWrite(List.of(
                ClientNamespacedWriteModel.insertOne(here, new Document("_id", 8)),
                ClientNamespacedWriteModel.insertOne(there, new Document("_id", new ObjectId())),
                ClientNamespacedWriteModel.deleteOne(here, eq("_id", 1))));
        assertEquals(List.of(2L, 1L), List.of(result.getInsertedCount(), result.getDeletedCount()));
    }

    @Test
    void aSessionReadsItsWrites() {
        try (ClientSession session = client.startSession(ClientSessionOptions.builder().causallyConsistent(true).build())) {
            people.insertOne(session, new Document("_id", 6));
            assertEquals(1, people.find(session, eq("_id", 6)).into(new ArrayList<>()).size());
            assertEquals(REPLICA_SET, session.getOperationTime() != null);
        }
    }

    @Test
    void aStatementSentTwiceIsAppliedOnce() {
        assumeTrue(REPLICA_SET, "a standalone server has no retryable writes");
        Document command = new Document("insert", "people")
                .append("documents", List.of(new Document("_id", 30))).append("txnNumber", 1L);
        // A separate client has a new session, whose numbers begin at 1.
        try (MongoClient other = MongoClients.create(System.getenv("VELLUM_URI"));
                ClientSession session = other.startSession()) {
            MongoDatabase same = other.getDatabase(database.getName());
            assertEquals(1, same.runCommand(session, command).getInteger("n"));
            assertEquals(1, same.runCommand(session, command).getInteger("n"));
        }
        assertEquals(1, people.countDocuments(eq("_id", 30)));
    }

    @Test
    void aTailableCursorSeesLaterInserts() {
        database.createCollection("log", new CreateCollectionOptions().capped(true).sizeInBytes(65536));
        MongoCollection<Document> log = database.getCollection("log");
        log.insertOne(new Document("_id", 1));
        try (var cursor = log.find().cursorType(CursorType.TailableAwait).maxAwaitTime(2, TimeUnit.SECONDS).iterator()) {
            assertEquals(1, cursor.next().getInteger("_id"));
            log.insertOne(new Document("_id", 2));
            assertEquals(2, cursor.next().getInteger("_id"));
        }
    }

    @Test
    void anUnknownCommandIsRefused() {
        var error = assertThrows(MongoCommandException.class,
                () -> database.runCommand(new Document("noSuchCommandAtAll", 1)));
        assertEquals(List.of(59, "CommandNotFound"), List.of(error.getErrorCode(), error.getErrorCodeName()));
    }

    /** Keeps every log record from warning level upwards. */
    private static final class WarningCollector extends Handler {
        @Override
        public void publish(LogRecord entry) {
            if (entry.getLevel().intValue() >= Level.WARNING.intValue()) {
                WARNINGS.add(entry.getLevel() + " " + entry.getLoggerName() + ": " + entry.getMessage());
            }
        }

        @Override
        public void flush() {
        }

        @Override
        public void close() {
        }
    }
}
