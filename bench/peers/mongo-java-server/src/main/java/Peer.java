import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/**
 * mongo-java-server as a target of the lab: listens on a free loopback port, prints the connection string, and ends
 * with its standard input.
 */
public final class Peer {
    /** Version 5.0 with its wire version. The server reports the wire version of 4.2, which drivers refuse. */
    private static final class Five implements MongoVersion {
        @Override
        public List<Integer> getVersionArray() {
            return List.of(5, 0, 0);
        }

        @Override
        public int getWireVersion() {
            return 13;
        }
    }

    public static void main(String[] arguments) throws Exception {
        MongoServer server = new MongoServer(new MemoryBackend().version(new Five()));
        var address = server.bind();
        System.out.println("mongodb://127.0.0.1:" + address.getPort() + "/");
        while (System.in.read() >= 0) {
            // The input has no content. Its end is the signal to stop.
        }
        server.shutdownNow();
    }
}
