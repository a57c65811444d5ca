package vellum;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;
import static org.springframework.data.mongodb.core.query.Criteria.where;
import static org.springframework.data.mongodb.core.query.Query.query;

import java.io.ByteArrayInputStream;
import java.util.List;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import org.bson.Document;
import org.junit.jupiter.api.Test;
import org.springframework.dao.DataIntegrityViolationException;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.dao.OptimisticLockingFailureException;
import org.springframework.data.mongodb.MongoTransactionManager;
import org.springframework.data.mongodb.core.CollectionOptions;
import org.springframework.data.mongodb.core.aggregation.Aggregation;
import org.springframework.data.mongodb.core.messaging.ChangeStreamRequest;
import org.springframework.data.mongodb.core.messaging.DefaultMessageListenerContainer;
import org.springframework.data.mongodb.core.messaging.Message;
import org.springframework.data.mongodb.core.messaging.MessageListener;
import org.springframework.data.mongodb.core.messaging.TailableCursorRequest;
import org.springframework.data.mongodb.core.query.Query;
import org.springframework.data.mongodb.core.query.Update;
import org.springframework.data.mongodb.core.schema.JsonSchemaProperty;
import org.springframework.data.mongodb.core.schema.MongoJsonSchema;
import org.springframework.data.mongodb.gridfs.GridFsTemplate;
import org.springframework.transaction.support.TransactionTemplate;
import vellum.Shop.Account;
import vellum.Shop.Person;

/** Versions, auditing, transactions, streams, collections with options, files. */
class LifecycleTest extends Context {
    @Test
    void auditingFillsIn() {
        Account made = template.save(new Account("a", 1));
        assertEquals(List.of("ann", 0L), List.of(made.owner, made.version));
        assertNotNull(made.created);
        made.amount = 2;
        Account changed = template.save(made);
        assertEquals(1L, changed.version);
        assertTrue(!changed.changed.isBefore(changed.created));
    }

    @Test
    void anOldVersionIsRefused() {
        Account made = template.insert(new Account("a", 1));
        Account mine = template.findById("a", Account.class);
        made.amount = 2;
        template.save(made);
        mine.amount = 3;
        assertEquals(0, template.remove(mine).getDeletedCount());
        assertThrows(OptimisticLockingFailureException.class, () -> template.save(mine));
        template.updateFirst(query(where("id").is("a")), new Update().inc("amount", 5), Account.class);
        Account last = template.findById("a", Account.class);
        assertEquals(List.of(7, 2L), List.of(last.amount, last.version));
        assertThrows(DuplicateKeyException.class, () -> template.insert(new Account("a", 1)));
    }

    @Test
    void transactionsCommitWholeOrNotAtAll() {
        assumeTrue(SET, "a standalone server has no transactions");
        template.insertAll(List.of(new Account("a", 5), new Account("b", 0)));
        var transaction = new TransactionTemplate(context.getBean(MongoTransactionManager.class));
        transaction.executeWithoutResult(status -> {
            template.updateFirst(query(where("id").is("a")), new Update().inc("amount", -5), Account.class);
            template.updateFirst(query(where("id").is("b")), new Update().inc("amount", 5), Account.class);
            template.save(new Account("c", 1));
            assertEquals(3, template.count(new Query(), Account.class));
        });
        assertThrows(DuplicateKeyException.class, () -> transaction.executeWithoutResult(status -> {
            template.insert(new Account("d", 1));
            template.insert(new Account("a", 1));
        }));
        transaction.executeWithoutResult(status -> {
            template.insert(new Account("e", 1));
            status.setRollbackOnly();
        });
        assertNull(template.findById("e", Account.class));
        var amounts = template.findAll(Account.class).stream().map(account -> account.amount).sorted().toList();
        assertEquals(List.of(0, 1, 5), amounts);
    }

    @Test
    void changesAreStreamed() throws Exception {
        assumeTrue(SET, "a standalone server has no change streams");
        template.save(new Account("before", 1));
        var container = new DefaultMessageListenerContainer(template);
        container.start();
        try {
            var seen = new LinkedBlockingQueue<Message<?, Account>>();
            MessageListener<com.mongodb.client.model.changestream.ChangeStreamDocument<Document>, Account> listener = seen::add;
            var request = ChangeStreamRequest.builder(listener).collection("account")
                    .filter(Aggregation.newAggregation(Aggregation.match(where("operationType").in("insert", "update"))))
                    .fullDocumentLookup(com.mongodb.client.model.changestream.FullDocument.UPDATE_LOOKUP).build();
            assertTrue(container.register(request, Account.class).await(java.time.Duration.ofSeconds(10)));
            template.save(new Account("x", 1));
            template.updateFirst(query(where("id").is("x")), new Update().set("amount", 7), Account.class);
            assertEquals(1, seen.poll(10, TimeUnit.SECONDS).getBody().amount);
            assertEquals(7, seen.poll(10, TimeUnit.SECONDS).getBody().amount);
        } finally {
            container.stop();
        }
    }

    @Test
    void aCappedCollectionIsTailed() throws Exception {
        template.dropCollection("log");
        template.createCollection("log", CollectionOptions.empty().capped().size(10_000).maxDocuments(3));
        for (int line = 0; line < 5; line++) {
            template.getCollection("log").insertOne(new Document("line", line));
        }
        var container = new DefaultMessageListenerContainer(template);
        container.start();
        try {
            var seen = new LinkedBlockingQueue<Message<Document, Document>>();
            MessageListener<Document, Document> listener = seen::add;
            var request = TailableCursorRequest.builder(listener).collection("log")
                    .filter(query(where("line").gt(2))).build();
            assertTrue(container.register(request, Document.class).await(java.time.Duration.ofSeconds(10)));
            assertEquals(3, seen.poll(10, TimeUnit.SECONDS).getBody().get("line"));
            assertEquals(4, seen.poll(10, TimeUnit.SECONDS).getBody().get("line"));
            template.getCollection("log").insertOne(new Document("line", 9));
            assertEquals(9, seen.poll(10, TimeUnit.SECONDS).getBody().get("line"));
        } finally {
            container.stop();
            template.dropCollection("log");
        }
    }

    @Test
    void collectionsCheckTheirDocuments() {
        template.dropCollection("checked");
        template.createCollection("checked", CollectionOptions.empty().schema(MongoJsonSchema.builder().required("name")
                .properties(JsonSchemaProperty.int32("age").gte(0)).build()).failOnValidationError());
        template.getCollection("checked").insertOne(new Document("name", "a").append("age", 3));
        var error = assertThrows(DataIntegrityViolationException.class, () -> template.save(new Document("age", 3), "checked"));
        assertTrue(error.getMessage().contains("Document failed validation"), error.getMessage());
        template.dropCollection("checked");
        template.createCollection("imaged", CollectionOptions.empty().changeStream(
                CollectionOptions.CollectionChangeStreamOptions.preAndPostImages(true)));
        assertTrue(template.collectionExists("imaged"));
        template.dropCollection("imaged");
    }

    @Test
    void viewsShowWhatIsThere() {
        template.dropCollection("adults");
        template.createView("adults", Person.class, Aggregation.match(where("age").gte(18)), Aggregation.project("name"));
        template.insertAll(List.of(new Person("Ann", 30, null), new Person("Kid", 3, null)));
        assertEquals("Ann", template.findAll(Document.class, "adults").get(0).get("name"));
        assertEquals(1, template.getCollection("adults").countDocuments());
        template.dropCollection("adults");
    }

    @Test
    void filesAreStored() throws Exception {
        var files = new GridFsTemplate(context.getBean(org.springframework.data.mongodb.MongoDatabaseFactory.class),
                context.getBean(org.springframework.data.mongodb.core.convert.MongoConverter.class));
        byte[] content = new byte[600_000];
        content[599_999] = 7;
        files.store(new ByteArrayInputStream(content), "big", "application/zip", new Document("kind", "test"));
        var found = files.findOne(query(where("metadata.kind").is("test")));
        assertArrayEquals(content, files.getResource(found).getInputStream().readAllBytes());
        assertEquals(3, template.getCollection("fs.chunks").countDocuments());
        files.delete(query(where("filename").is("big")));
        assertEquals(0, template.getCollection("fs.chunks").countDocuments());
    }
}
