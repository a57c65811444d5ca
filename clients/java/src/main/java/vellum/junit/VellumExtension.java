package vellum.junit;

import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoDatabase;
import java.lang.reflect.Method;
import java.nio.file.Path;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Consumer;
import org.junit.jupiter.api.extension.ExtensionContext;
import org.junit.jupiter.api.extension.ExtensionContext.Namespace;
import org.junit.jupiter.api.extension.ExtensionContext.Store;
import org.junit.jupiter.api.extension.ParameterContext;
import org.junit.jupiter.api.extension.ParameterResolver;

/**
 * Provides parameters of tests: a {@link MongoDatabase} for each test, which is dropped after it, the
 * {@link VellumChanges} made there, the {@link MongoClient}, or the {@link VellumServer} shared by all tests
 * of a run.
 */
public final class VellumExtension implements ParameterResolver {
    private static final Namespace NAMESPACE = Namespace.create(VellumExtension.class);
    private static final AtomicLong NUMBERS = new AtomicLong();
    private static final int NAME_BYTES_MAX = 63;

    private static final Set<Class<?>> TYPES =
            Set.of(MongoDatabase.class, VellumChanges.class, MongoClient.class, VellumServer.class);

    /** The database of a test. JUnit closes stored values when the test ends. */
    private record TestDatabase(MongoDatabase database) implements AutoCloseable {
        @Override
        public void close() {
            database.drop();
        }
    }

    @Override
    public boolean supportsParameter(ParameterContext parameter, ExtensionContext context) {
        Class<?> type = parameter.getParameter().getType();
        return TYPES.contains(type);
    }

    @Override
    public Object resolveParameter(ParameterContext parameter, ExtensionContext context) {
        VellumServer server = server(context);
        Class<?> type = parameter.getParameter().getType();
        if (type == VellumServer.class) {
            return server;
        }
        if (type == MongoClient.class) {
            return server.client();
        }
        Store store = context.getStore(NAMESPACE);
        // Passes the database of this test, never a database of the class's constructor.
        String key = context.getUniqueId();
        MongoDatabase database = store.getOrComputeIfAbsent(key, id -> new TestDatabase(open(server, context)), TestDatabase.class).database();
        return type == MongoDatabase.class ? database : store.getOrComputeIfAbsent(key + "/changes",
                id -> new VellumChanges(server, database.getName(), approvalFile(context)), VellumChanges.class);
    }

    /** Returns the approval file of a test, next to the other resources of the test's package. */
    private static Path approvalFile(ExtensionContext context) {
        String folder = System.getProperty("vellum.approved", "src/test/resources");
        Class<?> test = context.getRequiredTestClass();
        String name = test.getName().substring(test.getPackageName().length()).replaceFirst("^\\.", "").replace('$', '.');
        String method = context.getTestMethod().map(Method::getName).orElse("class");
        return Path.of(folder, test.getPackageName().split("\\.")).resolve(name + "." + method + ".approved.json");
    }

    private static VellumServer server(ExtensionContext context) {
        Store root = context.getRoot().getStore(NAMESPACE);
        return root.getOrComputeIfAbsent(VellumServer.class, type -> server(), VellumServer.class);
    }

    /** Returns the server configured by the system properties. */
    private static VellumServer server() {
        String user = System.getProperty("vellum.user");
        String password = System.getProperty("vellum.password", "");
        return VellumServer.start(user, password, System.getProperty("vellum.uriOptions", ""), options());
    }

    /** Returns the server's options from the system property {@code vellum.options}, separated by spaces. */
    private static String[] options() {
        String options = System.getProperty("vellum.options", "").strip();
        return options.isEmpty() ? new String[0] : options.split("\\s+");
    }

    private static MongoDatabase open(VellumServer server, ExtensionContext context) {
        String name = name(context.getTestMethod().map(method -> method.getName()).orElse("class"));
        Class<?> test = context.getRequiredTestClass();
        VellumTemplate template = test.getAnnotation(VellumTemplate.class);
        if (template != null) {
            server.fork(build(server, context, template.value()), name);
        }
        return server.client().getDatabase(name);
    }

    /** Returns the template's database. The first test builds it while others wait. */
    private static String build(
            VellumServer server, ExtensionContext context, Class<? extends Consumer<MongoDatabase>> builder) {
        Store root = context.getRoot().getStore(NAMESPACE);
        return root.getOrComputeIfAbsent(builder, type -> {
            String name = name("template");
            try {
                var constructor = builder.getDeclaredConstructor();
                constructor.setAccessible(true);
                constructor.newInstance().accept(server.client().getDatabase(name));
            } catch (ReflectiveOperationException error) {
                throw new IllegalStateException(builder + " needs a constructor without parameters", error);
            }
            return name;
        }, String.class);
    }

    private static String name(String test) {
        String suffix = "_" + ProcessHandle.current().pid() + "_" + NUMBERS.incrementAndGet();
        String clean = test.replaceAll("[^A-Za-z0-9_]", "_");
        return clean.substring(0, Math.min(clean.length(), NAME_BYTES_MAX - suffix.length())) + suffix;
    }
}
