package vellum.junit;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoDatabase;
import java.io.BufferedReader;
import java.io.FileInputStream;
import java.io.InputStreamReader;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyStore;
import java.security.cert.CertificateFactory;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Consumer;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.bson.Document;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import org.junit.jupiter.api.io.TempDir;

@ExtendWith(VellumExtension.class)
@VellumTemplate(VellumExtensionTest.People.class)
class VellumExtensionTest {
    private static final AtomicInteger BUILT = new AtomicInteger();
    private static final List<String> SEEN = new ArrayList<>();

    static final class People implements Consumer<MongoDatabase> {
        @Override
        public void accept(MongoDatabase database) {
            BUILT.incrementAndGet();
            database.getCollection("people").insertMany(List.of(new Document("name", "a"), new Document("name", "b")));
        }
    }

    private static long count(MongoDatabase database) {
        return database.getCollection("people").countDocuments();
    }

    @RepeatedTest(5)
    void everyTestForksTheTemplate(MongoDatabase database, MongoClient client) {
        assertEquals(2, count(database));
        database.getCollection("people").insertOne(new Document());
        assertEquals(3, count(database));
        assertEquals(1, BUILT.get());
        for (String earlier : SEEN) {
            assertNotEquals(earlier, database.getName());
            assertFalse(client.listDatabaseNames().into(new ArrayList<>()).contains(earlier));
        }
        SEEN.add(database.getName());
    }

    @Test
    void snapshotsAndResets(MongoDatabase database, VellumServer server) {
        server.snapshot(database.getName(), "ready");
        server.reset(database.getName());
        assertEquals(0, count(database));
        server.restore(database.getName(), "ready");
        assertEquals(2, count(database));
        server.dropSnapshot(database.getName(), "ready");
    }

    @Test
    void aFailedStartThrowsTheServersError() {
        var error = assertThrows(IllegalStateException.class, () -> new VellumServer("--prot", "1"));
        assertTrue(error.getMessage().contains("--prot"), error.getMessage());
    }

    /** A process for the next test: it holds a server until it is killed. */
    public static final class Holder {
        public static void main(String[] arguments) throws InterruptedException {
            System.out.println(new VellumServer().uri());
            TimeUnit.MINUTES.sleep(1);
        }
    }

    @Test
    void theServerEndsWithAKilledParent() throws Exception {
        String java = ProcessHandle.current().info().command().orElse("java");
        Process holder = new ProcessBuilder(
                java, "-cp", System.getProperty("java.class.path"), Holder.class.getName())
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        String uri = new BufferedReader(new InputStreamReader(holder.getInputStream())).readLine();
        assertTrue(responds(uri));
        holder.destroyForcibly().waitFor();
        for (int tries = 0; tries < 100 && responds(uri); tries++) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        assertFalse(responds(uri), "the server outlived its parent");
    }

    @Test
    void settingsOfAnotherServerInTheEnvironmentHaveNoEffect(@TempDir Path folder) throws Exception {
        String java = ProcessHandle.current().info().command().orElse("java");
        var builder = new ProcessBuilder(java, "-cp", System.getProperty("java.class.path"), Holder.class.getName())
                .redirectError(ProcessBuilder.Redirect.DISCARD);
        builder.environment().putAll(Map.of(
                "MONGO_INITDB_ROOT_USERNAME", "root", "MONGO_INITDB_ROOT_PASSWORD_FILE", "/nowhere",
                "VELLUM_DATA", folder.resolve("data").toString(), "VELLUM_POSTGRES", "host=nowhere.invalid"));
        Process holder = builder.start();
        String uri = new BufferedReader(new InputStreamReader(holder.getInputStream())).readLine();
        assertNotNull(uri, "the server has not started");
        try (MongoClient client = MongoClients.create(uri)) {
            client.getDatabase("test").getCollection("c").insertOne(new Document());
        }
        holder.destroyForcibly().waitFor();
        assertFalse(Files.exists(folder.resolve("data")));
    }

    private static boolean responds(String uri) {
        try (MongoClient client = MongoClients.create(uri + "?serverSelectionTimeoutMS=300")) {
            client.getDatabase("admin").runCommand(new Document("ping", 1));
            return true;
        } catch (MongoException error) {
            return false;
        }
    }

    @Test
    void aUserRequiresLogin() throws Exception {
        try (VellumServer server = VellumServer.start("root", "p@ss: /word", "")) {
            server.client().getDatabase("test").getCollection("c").insertOne(new Document("_id", 1));
            server.fork("test", "other");
            String host = server.uri().substring(server.uri().lastIndexOf('@') + 1);
            try (MongoClient withoutLogin = MongoClients.create("mongodb://" + host)) {
                assertThrows(MongoException.class, () -> count(withoutLogin.getDatabase("other")));
            }
        }
    }

    @Test
    void tls() throws Exception {
        String certificate = "../../crates/wire/tests/fixtures/plain.pem";
        KeyStore trusted = KeyStore.getInstance(KeyStore.getDefaultType());
        trusted.load(null);
        try (var file = new FileInputStream(certificate)) {
            trusted.setCertificateEntry("server", CertificateFactory.getInstance("X.509").generateCertificate(file));
        }
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(trusted);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(null, trust.getTrustManagers(), null);
        try (VellumServer server = VellumServer.start(null, null, "appName=tests",
                "--tls-mode", "require", "--tls-certificate-key-file", certificate)) {
            assertTrue(server.uri().endsWith("/?tls=true&appName=tests"), server.uri());
            MongoClientSettings settings = MongoClientSettings.builder()
                    .applyConnectionString(new ConnectionString(server.uri()))
                    .applyToSslSettings(ssl -> ssl.context(context)).build();
            try (MongoClient client = MongoClients.create(settings)) {
                assertEquals(0, count(client.getDatabase("test")));
            }
        }
    }
}
