package user;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.time.Duration;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.bson.Document;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;
import org.testcontainers.containers.GenericContainer;
import org.testcontainers.containers.MongoDBContainer;
import org.testcontainers.containers.output.WaitingConsumer;
import org.testcontainers.containers.startupcheck.OneShotStartupCheckStrategy;
import org.testcontainers.containers.wait.strategy.Wait;
import org.testcontainers.images.builder.Transferable;
import org.testcontainers.utility.DockerImageName;

/** The image as it is, with Testcontainers' plain container, and one with mongosh, with its container for MongoDB. */
class ContainersTest {
    private static final String SCRIPT = "/docker-entrypoint-initdb.d/1.js";

    private static GenericContainer<?> container(String image) {
        return new GenericContainer<>(DockerImageName.parse(System.getenv(image))).withExposedPorts(27017)
            .waitingFor(Wait.forHealthcheck().withStartupTimeout(Duration.ofMinutes(2)));
    }

    private static MongoClient connect(GenericContainer<?> container) {
        return MongoClients.create("mongodb://" + container.getHost() + ":" + container.getMappedPort(27017) + "/");
    }

    @Test
    void the_image_becomes_healthy_and_serves() {
        try (GenericContainer<?> container = container("VELLUM_IMAGE")) {
            container.start();
            try (MongoClient client = connect(container)) {
                client.getDatabase("test").getCollection("people").insertOne(new Document("name", "Ada"));
                Document status = client.getDatabase("admin").runCommand(new Document("serverStatus", 1));
                assertEquals("disk", status.get("storageEngine", Document.class).getString("name"));
            }
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"VELLUM_SHELL_IMAGE", "VELLUM_MONGOD_IMAGE"})
    void scripts_fill_a_new_volume_where_mongosh_is_at_hand(String image) {
        String script = "db.people.insertMany([{name: 'Ada'}, {name: 'Grace'}]); db.people.createIndex({name: 1});";
        try (GenericContainer<?> container = container(image).withEnv("MONGO_INITDB_DATABASE", "shop")
                .withCopyToContainer(Transferable.of(script), SCRIPT)) {
            container.start();
            try (MongoClient client = connect(container)) {
                assertEquals(2, client.getDatabase("shop").getCollection("people").countDocuments());
            }
        }
    }

    @Test
    void scripts_are_never_passed_over() throws TimeoutException {
        WaitingConsumer log = new WaitingConsumer();
        try (GenericContainer<?> container = container("VELLUM_IMAGE").withCopyToContainer(Transferable.of("1"), SCRIPT)
                .withStartupCheckStrategy(new OneShotStartupCheckStrategy()).withLogConsumer(log)) {
            assertThrows(RuntimeException.class, container::start);
            log.waitUntil(line -> line.getUtf8String().contains("mongosh, which runs the scripts"), 10, TimeUnit.SECONDS);
        }
    }

    @Test
    void the_container_for_mongodb_starts_a_replica_set() {
        DockerImageName image = DockerImageName.parse(System.getenv("VELLUM_MONGOD_IMAGE"));
        try (MongoDBContainer container = new MongoDBContainer(image.asCompatibleSubstituteFor("mongo"))) {
            container.start();
            try (MongoClient client = MongoClients.create(container.getReplicaSetUrl("shop"))) {
                var people = client.getDatabase("shop").getCollection("people");
                try (var session = client.startSession()) {
                    session.withTransaction(() -> people.insertOne(session, new Document("name", "Ada")));
                }
                assertEquals(1, people.countDocuments());
            }
        }
    }
}
