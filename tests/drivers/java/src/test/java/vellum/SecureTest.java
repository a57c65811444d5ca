package vellum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.MongoCommandException;
import com.mongodb.MongoCredential;
import com.mongodb.MongoException;
import com.mongodb.MongoQueryException;
import com.mongodb.MongoSecurityException;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import com.mongodb.client.MongoCursor;
import com.mongodb.client.MongoDatabase;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.KeyFactory;
import java.security.KeyStore;
import java.security.PrivateKey;
import java.security.cert.Certificate;
import java.security.cert.CertificateFactory;
import java.security.spec.PKCS8EncodedKeySpec;
import java.util.Base64;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.function.Function;
import java.util.regex.Pattern;
import javax.net.ssl.KeyManagerFactory;
import javax.net.ssl.SSLContext;
import javax.net.ssl.TrustManagerFactory;
import org.bson.Document;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

/** Logins by each mechanism and the privileges of roles, on a server with users and optional TLS. */
class SecureTest {
    private static final String NAME = "java_secure";
    private static final String SUBJECT = "C=US,ST=New York,L=New York City,O=MDB,OU=Drivers,CN=client";
    private static final char[] PASSWORD = "right".toCharArray();

    private static MongoClient root;
    private static MongoDatabase database;

    @BeforeAll
    static void makeUsers() {
        root = MongoClients.create(System.getenv("VELLUM_URI"));
        database = root.getDatabase(NAME);
        database.drop();
        run("{dropAllUsersFromDatabase: 1}");
        run("{createUser: 'sha1', pwd: 'right', roles: ['readWrite'], mechanisms: ['SCRAM-SHA-1']}");
        run("{createUser: 'sha256', pwd: 'right', roles: ['readWrite'], mechanisms: ['SCRAM-SHA-256']}");
        run("{createUser: 'reader', pwd: 'right', roles: ['read']}");
        database.getCollection("c").insertMany(
                List.of(new Document("_id", 1), new Document("_id", 2), new Document("_id", 3)));
    }

    @AfterAll
    static void dropUsers() {
        run("{dropAllUsersFromDatabase: 1}");
        root.getDatabase("$external").runCommand(Document.parse("{dropAllUsersFromDatabase: 1}"));
        database.drop();
        root.close();
    }

    private static Document run(String command) {
        return database.runCommand(Document.parse(command));
    }

    /** Runs a function as a user on one connection, with TLS if a context is given. */
    private static <T> T as(MongoCredential credential, SSLContext context, Function<MongoDatabase, T> run) {
        ConnectionString address = new ConnectionString(System.getenv("VELLUM_URI").replaceFirst("//[^@/]*@", "//"));
        MongoClientSettings.Builder settings = MongoClientSettings.builder()
                .applyConnectionString(address)
                .applyToClusterSettings(cluster -> cluster.serverSelectionTimeout(5, TimeUnit.SECONDS))
                .applyToConnectionPoolSettings(pool -> pool.maxSize(1));
        if (credential != null) {
            settings.credential(credential);
        }
        if (context != null) {
            settings.applyToSslSettings(ssl -> ssl.enabled(true).context(context));
        }
        try (MongoClient client = MongoClients.create(settings.build())) {
            return run.apply(client.getDatabase(NAME));
        }
    }

    private static MongoCredential known(String user) {
        return MongoCredential.createCredential(user, NAME, PASSWORD);
    }

    private static String whoAmI(MongoDatabase database) {
        Document status = database.runCommand(Document.parse("{connectionStatus: 1}"));
        List<Document> users = status.get("authInfo", Document.class).getList("authenticatedUsers", Document.class);
        assertEquals(1, users.size());
        return users.get(0).getString("user") + "@" + users.get(0).getString("db");
    }

    private static void refused(Runnable run) {
        MongoException error = assertThrows(MongoException.class, run::run);
        assertEquals(13, error.getCode());
    }

    /** Returns a context that trusts the certificate authority, with the client's certificate if requested. */
    private static SSLContext context(boolean shows) throws Exception {
        Path folder = Path.of(System.getenv("VELLUM_CERTIFICATES"));
        KeyStore known = KeyStore.getInstance("PKCS12");
        known.load(null);
        known.setCertificateEntry("authority", certificate(Files.readString(folder.resolve("ca.pem"))));
        TrustManagerFactory trust = TrustManagerFactory.getInstance(TrustManagerFactory.getDefaultAlgorithm());
        trust.init(known);
        KeyManagerFactory keys = KeyManagerFactory.getInstance(KeyManagerFactory.getDefaultAlgorithm());
        KeyStore own = KeyStore.getInstance("PKCS12");
        own.load(null);
        if (shows) {
            String pem = Files.readString(folder.resolve("client.pem"));
            own.setKeyEntry("client", key(part(pem, "RSA PRIVATE KEY")), PASSWORD, new Certificate[] {certificate(pem)});
        }
        keys.init(own, PASSWORD);
        SSLContext context = SSLContext.getInstance("TLS");
        context.init(keys.getKeyManagers(), trust.getTrustManagers(), null);
        return context;
    }

    private static byte[] part(String pem, String name) {
        var found = Pattern.compile("-----BEGIN " + name + "-----(.*?)-----END", Pattern.DOTALL).matcher(pem);
        assertEquals(true, found.find());
        return Base64.getMimeDecoder().decode(found.group(1));
    }

    private static Certificate certificate(String pem) throws Exception {
        return CertificateFactory.getInstance("X.509")
                .generateCertificate(new ByteArrayInputStream(part(pem, "CERTIFICATE")));
    }

    /** Wraps an RSA key in PKCS #8, which Java requires. Lengths have two bytes. */
    private static PrivateKey key(byte[] pkcs1) throws Exception {
        byte[] version = HexFormat.of().parseHex("020100");
        byte[] algorithm = HexFormat.of().parseHex("300d06092a864886f70d0101010500");
        ByteArrayOutputStream envelope = new ByteArrayOutputStream();
        head(envelope, 0x30, version.length + algorithm.length + 4 + pkcs1.length);
        envelope.write(version);
        envelope.write(algorithm);
        head(envelope, 0x04, pkcs1.length);
        envelope.write(pkcs1);
        return KeyFactory.getInstance("RSA").generatePrivate(new PKCS8EncodedKeySpec(envelope.toByteArray()));
    }

    private static void head(ByteArrayOutputStream out, int tag, int length) {
        out.write(tag);
        out.write(0x82);
        out.write(length >> 8);
        out.write(length);
    }

    @Test
    void scramLetsInWithBothHashesInTheClearAndOverTls() throws Exception {
        for (SSLContext context : new SSLContext[] {null, context(false)}) {
            assertEquals("sha1@" + NAME, as(known("sha1"), context, SecureTest::whoAmI));
            assertEquals("sha256@" + NAME, as(known("sha256"), context, SecureTest::whoAmI));
            MongoCredential sha1 = MongoCredential.createScramSha1Credential("sha1", NAME, PASSWORD);
            assertEquals("sha1@" + NAME, as(sha1, context, SecureTest::whoAmI));
            MongoCredential sha256 = MongoCredential.createScramSha256Credential("sha256", NAME, PASSWORD);
            assertEquals("sha256@" + NAME, as(sha256, context, SecureTest::whoAmI));
        }
    }

    @Test
    void wrongPasswordsAndUnknownUsersAreRefusedAlike() {
        for (MongoCredential credential : List.of(
                MongoCredential.createCredential("reader", NAME, "wrong".toCharArray()), known("nobody"),
                MongoCredential.createScramSha256Credential("sha1", NAME, PASSWORD))) {
            MongoSecurityException error =
                    assertThrows(MongoSecurityException.class, () -> as(credential, null, SecureTest::whoAmI));
            MongoCommandException cause = assertInstanceOf(MongoCommandException.class, error.getCause());
            assertEquals(18, cause.getErrorCode());
            assertEquals("AuthenticationFailed", cause.getErrorCodeName());
            assertEquals("Authentication failed.", cause.getErrorMessage());
        }
    }

    @Test
    void nobodyReadsWithoutAUser() {
        MongoQueryException error = assertThrows(
                MongoQueryException.class, () -> as(null, null, db -> db.getCollection("c").find().first()));
        assertEquals(13, error.getErrorCode());
    }

    @Test
    void readersAreRefusedWritesWhichChangeNothing() {
        as(known("reader"), null, db -> {
            assertEquals(3, db.getCollection("c").countDocuments());
            refused(() -> db.getCollection("c").insertOne(new Document("_id", 4)));
            refused(() -> db.getCollection("c").deleteMany(new Document()));
            refused(() -> db.getCollection("c").drop());
            refused(() -> db.createCollection("d"));
            return null;
        });
        assertEquals(3, database.getCollection("c").countDocuments());
    }

    @Test
    void rolesHoldAtOnceUnderOpenCursorsToo() {
        run("{createUser: 'changing', pwd: 'right', roles: ['readWrite']}");
        as(known("changing"), null, db -> {
            db.getCollection("d").insertMany(List.of(new Document("_id", 1), new Document("_id", 2)));
            try (MongoCursor<Document> cursor = db.getCollection("d").find().batchSize(1).cursor()) {
                assertNotNull(cursor.next());
                run("{updateUser: 'changing', roles: []}");
                refused(cursor::next);
            }
            refused(() -> db.getCollection("d").insertOne(new Document("_id", 3)));
            run("{grantRolesToUser: 'changing', roles: ['read']}");
            assertEquals(2, db.getCollection("d").countDocuments());
            return null;
        });
    }

    @Test
    void certificatesLetTheirUsersIn() throws Exception {
        MongoCredential credential = MongoCredential.createMongoX509Credential();
        SSLContext shown = context(true);
        assertThrows(MongoSecurityException.class, () -> as(credential, shown, SecureTest::whoAmI));
        root.getDatabase("$external").runCommand(new Document("createUser", SUBJECT)
                .append("roles", List.of(new Document("role", "read").append("db", NAME))));
        assertEquals(SUBJECT + "@$external", as(credential, shown, SecureTest::whoAmI));
        long count = as(credential, shown, db -> db.getCollection("c").countDocuments());
        assertEquals(3, count);
        SSLContext bare = context(false);
        assertThrows(MongoSecurityException.class, () -> as(credential, bare, SecureTest::whoAmI));
    }
}
