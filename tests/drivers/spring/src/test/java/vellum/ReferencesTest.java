package vellum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.group;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.lookup;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.match;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.newAggregation;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.project;
import static org.springframework.data.mongodb.core.aggregation.Aggregation.unwind;
import static org.springframework.data.mongodb.core.query.Criteria.where;
import static org.springframework.data.mongodb.core.query.Query.query;

import com.mongodb.DBRef;
import java.util.List;
import org.bson.Document;
import org.bson.types.ObjectId;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import vellum.Shop.Item;
import vellum.Shop.Order;
import vellum.Shop.Person;

/** References between documents: `@DBRef`, `@DocumentReference`, and lookups through both. */
class ReferencesTest extends Context {
    private Person ann;
    private Person ben;
    private Order order;

    @BeforeEach
    void fill() {
        ann = template.save(new Person("Ann", 30, "Bonn"));
        ben = template.save(new Person("Ben", 40, "Ulm"));
        order = new Order();
        order.label = "first";
        order.buyer = ann;
        order.helpers.addAll(List.of(ben, ann));
        order.seller = ben;
        template.save(order);
        template.insertAll(List.of(new Item(order.id, 2), new Item(order.id, 3), new Item(new ObjectId(), 9)));
        template.updateFirst(query(where("_id").is(order.id)),
                org.springframework.data.mongodb.core.query.Update.update("byName", List.of("Ben")), "order");
    }

    @Test
    void referencesAreStoredAsDBRefsAndKeys() {
        Document raw = template.getCollection("order").find().first();
        assertEquals(new DBRef("people", ann.id), raw.get("buyer"));
        assertEquals(List.of(new DBRef("people", ben.id), new DBRef("people", ann.id)), raw.get("helpers"));
        assertEquals(ben.id, raw.get("seller"));
    }

    @Test
    void referencesAreFollowed() {
        Order found = template.findById(order.id, Order.class);
        assertEquals(List.of("Ann", "Ben"), List.of(found.buyer.name, found.seller.name));
        assertEquals(List.of("Ben", "Ann"), found.helpers.stream().map(person -> person.name).toList());
        assertEquals(List.of("Ben"), found.byName.stream().map(person -> person.name).toList());
        assertEquals(List.of(2, 3), found.items.stream().map(item -> item.count).sorted().toList());
    }

    @Test
    void aReferenceToWhatIsGoneIsNull() {
        template.remove(ann);
        assertNull(template.findById(order.id, Order.class).buyer);
    }

    @Test
    void ordersAreFoundByWhatTheyReferTo() {
        assertEquals("first", template.findOne(query(where("buyer").is(ann)), Order.class).label);
        assertEquals("first", template.findOne(query(where("buyer.$id").is(ann.id)), Order.class).label);
        assertEquals("first", template.findOne(query(where("helpers").is(ben)), Order.class).label);
        assertEquals("first", template.findOne(query(where("seller").is(ben)), Order.class).label);
        assertNull(template.findOne(query(where("buyer").is(ben)), Order.class));
    }

    @Test
    void lookupsGoThroughDBRefs() {
        var joined = template.aggregate(newAggregation(lookup("people", "buyer.$id", "_id", "buyers"),
                lookup("people", "helpers.$id", "_id", "helping"), project("label").and("buyers.name").as("names")
                        .and("helping.age").as("ages")), "order", Document.class).getUniqueMappedResult();
        assertEquals(List.of("Ann"), joined.get("names"));
        assertEquals(List.of(30, 40), joined.getList("ages", Integer.class).stream().sorted().toList());
        var back = template.aggregate(newAggregation(match(where("name").is("Ann")),
                lookup("order", "_id", "buyer.$id", "orders")), "people", Document.class).getUniqueMappedResult();
        assertInstanceOf(DBRef.class, back.getList("orders", Document.class).get(0).get("buyer"));
    }

    @Test
    void partsOfDBRefsAreGrouped() {
        var found = template.aggregate(newAggregation(unwind("helpers"), group("helpers.$id").count().as("n")), "order",
                Document.class).getMappedResults();
        assertEquals(2, found.size());
        var parts = template.aggregate(newAggregation(context -> Document.parse(
                "{$project: {_id: 0, ref: '$buyer.$ref', refs: {$map: {input: '$helpers', in: '$$this.$id'}}}}")), "order",
                Document.class).getUniqueMappedResult();
        assertEquals(new Document("ref", "people").append("refs", List.of(ben.id, ann.id)), parts);
    }
}
