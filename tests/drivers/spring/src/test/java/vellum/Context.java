package vellum;

import com.mongodb.ConnectionString;
import com.mongodb.MongoClientSettings;
import com.mongodb.client.MongoClient;
import com.mongodb.client.MongoClients;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Optional;
import java.util.logging.Handler;
import java.util.logging.Level;
import java.util.logging.LogRecord;
import java.util.logging.Logger;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.data.domain.AuditorAware;
import org.springframework.data.mongodb.MongoDatabaseFactory;
import org.springframework.data.mongodb.MongoTransactionManager;
import org.springframework.data.mongodb.config.AbstractMongoClientConfiguration;
import org.springframework.data.mongodb.config.EnableMongoAuditing;
import org.springframework.data.mongodb.core.MongoTemplate;
import org.springframework.data.mongodb.repository.config.EnableMongoRepositories;

/** A Spring context over the server that the runner started; a warning in the driver's log fails the class. */
abstract class Context {
    static final boolean SET = "replset".equals(System.getenv("VELLUM_TOPOLOGY"));
    private static final List<String> WARNINGS = Collections.synchronizedList(new ArrayList<>());
    // Held in a field: java.util.logging drops loggers without references.
    private static final Logger DRIVER_LOG = Logger.getLogger("org.mongodb.driver");
    private static final Handler COLLECTOR = new Collector();

    static AnnotationConfigApplicationContext context;
    static MongoTemplate template;

    @Configuration
    @EnableMongoRepositories
    @EnableMongoAuditing
    static class Config extends AbstractMongoClientConfiguration {
        @Override
        protected String getDatabaseName() {
            return "spring";
        }

        @Override
        public MongoClient mongoClient() {
            return MongoClients.create(MongoClientSettings.builder()
                    .applyConnectionString(new ConnectionString(System.getenv("VELLUM_URI"))).build());
        }

        @Override
        protected boolean autoIndexCreation() {
            return true;
        }

        @Bean
        AuditorAware<String> auditor() {
            return () -> Optional.of("ann");
        }

        @Bean
        MongoTransactionManager transactions(MongoDatabaseFactory factory) {
            return new MongoTransactionManager(factory);
        }
    }

    @BeforeAll
    static void open() {
        DRIVER_LOG.addHandler(COLLECTOR);
        context = new AnnotationConfigApplicationContext(Config.class);
        template = context.getBean(MongoTemplate.class);
        template.getCollectionNames().forEach(template::dropCollection);
        context.close();
        // A new context creates the indexes.
        context = new AnnotationConfigApplicationContext(Config.class);
        template = context.getBean(MongoTemplate.class);
    }

    @BeforeEach
    void empty() {
        template.getCollectionNames().forEach(
                name -> template.getCollection(name).deleteMany(new org.bson.Document()));
    }

    @AfterAll
    static void close() {
        context.close();
        DRIVER_LOG.removeHandler(COLLECTOR);
        org.junit.jupiter.api.Assertions.assertEquals(List.of(), WARNINGS);
    }

    private static class Collector extends Handler {
        @Override
        public void publish(LogRecord entry) {
            if (entry.getLevel().intValue() >= Level.WARNING.intValue()) {
                WARNINGS.add(entry.getMessage());
            }
        }

        @Override
        public void flush() {}

        @Override
        public void close() {}
    }
}
