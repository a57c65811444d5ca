package vellum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import de.flapdoodle.embed.mongo.commands.ImmutableMongodArguments;
import de.flapdoodle.embed.mongo.commands.MongodArguments;
import de.flapdoodle.embed.mongo.commands.ServerAddress;
import de.flapdoodle.embed.mongo.config.Storage;
import de.flapdoodle.embed.mongo.distribution.Version;
import de.flapdoodle.embed.mongo.transitions.Mongod;
import de.flapdoodle.embed.mongo.transitions.RunningMongodProcess;
import de.flapdoodle.embed.process.archives.ExtractedFileSet;
import de.flapdoodle.reverse.Transition;
import de.flapdoodle.reverse.TransitionWalker;
import de.flapdoodle.reverse.Transitions;
import de.flapdoodle.reverse.transitions.Start;
import java.nio.file.Path;
import java.util.Map;
import org.bson.Document;
import org.junit.jupiter.api.Test;

/** embed.mongo, configured with the path of the program. All else is unchanged. */
class EmbedMongoTest {
    private static final Path PROGRAM = Path.of(System.getenv("VELLUM_AS_MONGOD"));

    /** Returns embed.mongo with these arguments and a local program instead of a download. */
    private static Mongod mongod(ImmutableMongodArguments arguments) {
        return new Mongod() {
            @Override
            public Transition<MongodArguments> mongodArguments() {
                return Start.to(MongodArguments.class).initializedWith(arguments);
            }

            @Override
            public Transitions transitions(de.flapdoodle.embed.process.distribution.Version version) {
                ExtractedFileSet files = ExtractedFileSet.builder(PROGRAM.getParent()).executable(PROGRAM).build();
                return super.transitions(version)
                    .replace(Start.to(ExtractedFileSet.class).initializedWith(files));
            }
        };
    }

    private static long use(String uri) {
        try (MongoClient client = MongoClients.create(uri)) {
            var people = client.getDatabase("test").getCollection("people");
            people.insertOne(new Document("name", "Ada"));
            return people.countDocuments();
        }
    }

    private static String address(RunningMongodProcess running) {
        ServerAddress address = running.getServerAddress();
        return address.getHost() + ":" + address.getPort();
    }

    @Test
    void starts_and_stops_a_server() {
        Mongod mongod = mongod(MongodArguments.defaults());
        try (TransitionWalker.ReachedState<RunningMongodProcess> running = mongod.start(Version.Main.V8_0)) {
            assertEquals(1, use("mongodb://" + address(running.current()) + "/"));
            assertTrue(running.current().isAlive());
        }
    }

    @Test
    void passes_engines_and_parameters_on() {
        Mongod mongod = mongod(MongodArguments.defaults().withStorageEngine("ephemeralForTest").withUseNoJournal(false)
            .withParams(Map.of("ttlMonitorEnabled", "false")));
        try (TransitionWalker.ReachedState<RunningMongodProcess> running = mongod.start(Version.Main.V8_0)) {
            assertEquals(1, use("mongodb://" + address(running.current()) + "/"));
        }
    }

    @Test
    void initiates_a_replica_set() {
        Mongod mongod = mongod(MongodArguments.defaults().withReplication(Storage.of("rs0", 64)).withUseNoJournal(false));
        try (TransitionWalker.ReachedState<RunningMongodProcess> running = mongod.start(Version.Main.V8_0)) {
            String address = address(running.current());
            try (MongoClient client = MongoClients.create("mongodb://" + address + "/?directConnection=true")) {
                client.getDatabase("admin").runCommand(new Document("replSetInitiate", new Document()));
            }
            assertEquals(1, use("mongodb://" + address + "/?replicaSet=rs0"));
        }
    }
}
