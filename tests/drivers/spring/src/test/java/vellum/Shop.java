package vellum;

import java.time.Instant;
import java.time.LocalDate;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.bson.types.ObjectId;
import org.springframework.data.annotation.CreatedBy;
import org.springframework.data.annotation.CreatedDate;
import org.springframework.data.annotation.Id;
import org.springframework.data.annotation.LastModifiedDate;
import org.springframework.data.annotation.Version;
import org.springframework.data.mongodb.core.geo.GeoJsonPoint;
import org.springframework.data.mongodb.core.index.CompoundIndex;
import org.springframework.data.mongodb.core.index.GeoSpatialIndexType;
import org.springframework.data.mongodb.core.index.GeoSpatialIndexed;
import org.springframework.data.mongodb.core.index.HashIndexed;
import org.springframework.data.mongodb.core.index.Indexed;
import org.springframework.data.mongodb.core.index.TextIndexed;
import org.springframework.data.mongodb.core.index.WildcardIndexed;
import org.springframework.data.mongodb.core.mapping.DBRef;
import org.springframework.data.mongodb.core.mapping.Document;
import org.springframework.data.mongodb.core.mapping.DocumentReference;
import org.springframework.data.mongodb.core.mapping.Field;
import org.springframework.data.mongodb.core.mapping.TextScore;

/** The documents of all tests. */
final class Shop {
    private Shop() {}

    record Address(String city, String zip) {}

    /** For derived queries and templates. */
    @Document("people")
    static class Person {
        @Id ObjectId id;
        @Indexed(unique = true) String name;
        int age;
        @Field("favourites") List<String> tags = new ArrayList<>();
        Address address;
        LocalDate born;
        boolean active = true;
        Map<String, Integer> scores = Map.of();

        Person() {}

        Person(String name, int age, String city, String... tags) {
            this.name = name;
            this.age = age;
            this.address = city == null ? null : new Address(city, city.length() + "0000");
            this.tags = new ArrayList<>(List.of(tags));
            this.born = LocalDate.of(2024 - age, 2, 28);
        }
    }

    interface NameOnly {
        String getName();
    }

    record NameAndAge(String name, int age) {}

    /** For `@Version` and the auditing annotations. */
    @Document
    static class Account {
        @Id String id;
        int amount;
        @Version Long version;
        @CreatedBy String owner;
        @CreatedDate Instant created;
        @LastModifiedDate Instant changed;

        Account() {}

        Account(String id, int amount) {
            this.id = id;
            this.amount = amount;
        }
    }

    /** With an index of each kind of annotation. */
    @Document
    @CompoundIndex(name = "both", def = "{'kind': 1, 'size': -1}", partialFilter = "{'size': {$gt: 5}}")
    static class Place {
        @Id ObjectId id;
        @TextIndexed(weight = 3) String name;
        @TextIndexed String about;
        @GeoSpatialIndexed(type = GeoSpatialIndexType.GEO_2DSPHERE) GeoJsonPoint spot;
        @HashIndexed String kind;
        @Indexed(expireAfter = "10d", sparse = true) Instant until;
        @WildcardIndexed Map<String, Object> free;
        int size;
        @TextScore Float score;

        Place() {}

        Place(String name, String about, double x, double y) {
            this.name = name;
            this.about = about;
            this.spot = new GeoJsonPoint(x, y);
            this.kind = "city";
        }
    }

    /** A point on the plane. In a separate collection, because a search by distance needs a single geospatial index. */
    @Document
    static class Spot {
        @Id String id;
        @GeoSpatialIndexed(type = GeoSpatialIndexType.GEO_2D) double[] at;

        Spot() {}

        Spot(String id, double... at) {
            this.id = id;
            this.at = at;
        }
    }

    /** References by DBRef, eager and lazy, and by `@DocumentReference`. */
    @Document
    static class Order {
        @Id ObjectId id;
        String label;
        @DBRef Person buyer;
        @DBRef(lazy = true) List<Person> helpers = new ArrayList<>();
        @DocumentReference Person seller;
        @DocumentReference(lookup = "{'name': ?#{#target}}", lazy = true) List<Person> byName;
        @DocumentReference(lookup = "{'order': ?#{#self._id}}") List<Item> items;
    }

    @Document
    static class Item {
        @Id ObjectId id;
        ObjectId order;
        int count;

        Item() {}

        Item(ObjectId order, int count) {
            this.order = order;
            this.count = count;
        }
    }
}
