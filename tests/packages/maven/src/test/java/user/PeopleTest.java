package user;

import static org.junit.jupiter.api.Assertions.assertEquals;

import com.mongodb.client.MongoDatabase;
import org.bson.Document;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.extension.ExtendWith;
import vellum.junit.VellumExtension;

/** What a user of vellum-junit writes. */
@ExtendWith(VellumExtension.class)
class PeopleTest {
    @Test
    void oneIsThere(MongoDatabase database) {
        database.getCollection("people").insertOne(new Document("name", "Ada"));
        assertEquals(1, database.getCollection("people").countDocuments());
    }
}
