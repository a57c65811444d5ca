import de.bwaldvogel.mongo.MongoServer;
import de.bwaldvogel.mongo.MongoVersion;
import de.bwaldvogel.mongo.backend.memory.MemoryBackend;
import java.util.List;

/**
 * mongo-java-server as a peer for the lab: listens on a free loopback port, prints the connection
 * string, and ends when standard input does, so that no run leaves it behind.
 */
public final class Peer {
    /** It calls itself 5.0 but announces 4.2's wire version, which today's drivers refuse. */
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
            // Whoever started this says nothing, and closes when it is done.
        }
        server.shutdownNow();
    }
}
