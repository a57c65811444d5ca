package vellum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.springframework.data.mongodb.core.query.Criteria.where;
import static org.springframework.data.mongodb.core.query.Query.query;

import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.bson.Document;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.data.domain.Sort;
import org.springframework.data.geo.Box;
import org.springframework.data.geo.Circle;
import org.springframework.data.geo.Distance;
import org.springframework.data.geo.Metrics;
import org.springframework.data.geo.Point;
import org.springframework.data.geo.Polygon;
import org.springframework.data.mongodb.core.aggregation.Aggregation;
import org.springframework.data.mongodb.core.geo.GeoJsonPoint;
import org.springframework.data.mongodb.core.geo.GeoJsonPolygon;
import org.springframework.data.mongodb.core.index.CompoundIndexDefinition;
import org.springframework.data.mongodb.core.index.Index;
import org.springframework.data.mongodb.core.index.IndexInfo;
import org.springframework.data.mongodb.core.query.Collation;
import org.springframework.data.mongodb.core.query.Criteria;
import org.springframework.data.mongodb.core.query.NearQuery;
import org.springframework.data.mongodb.core.query.Query;
import org.springframework.data.mongodb.core.query.TextCriteria;
import org.springframework.data.mongodb.core.query.TextQuery;
import vellum.Shop.Place;
import vellum.Shop.Spot;

/** Places, text and indexes. */
class PlacesTest extends Context {
    @BeforeEach
    void fill() {
        template.insertAll(List.of(new Place("Bonn", "a city at the river", 7.1, 50.7), new Place("Köln", "cathedral, river", 6.96, 50.94),
                new Place("Ulm", "the highest church tower", 9.99, 48.4)));
        template.insertAll(List.of(new Spot("Bonn", 7.1, 50.7), new Spot("Köln", 6.96, 50.94), new Spot("Ulm", 9.99, 48.4)));
    }

    private static String names(Query query) {
        return String.join("", template.find(query, Place.class).stream().map(place -> place.name.substring(0, 1)).toList());
    }

    private static String spots(Query query) {
        return String.join("", template.find(query, Spot.class).stream().map(spot -> spot.id.substring(0, 1)).toList());
    }

    private static String sorted(Criteria criteria) {
        return names(query(criteria).with(Sort.by("name")));
    }

    private static String sortedSpots(Criteria criteria) {
        return spots(query(criteria).with(Sort.by("id")));
    }

    @Test
    void shapesContainPlaces() {
        assertEquals("BK", sortedSpots(where("at").within(new Box(new Point(6, 50), new Point(8, 52)))));
        assertEquals("BK", sortedSpots(where("at").within(new Circle(7, 50.8, 0.5))));
        assertEquals("U", sortedSpots(where("at").within(new Polygon(new Point(9, 48), new Point(11, 48), new Point(10, 49)))));
        assertEquals("BK", sorted(where("spot").withinSphere(new Circle(new Point(7, 50.8), new Distance(50, Metrics.KILOMETERS)))));
        assertEquals("BK", sorted(where("spot").within(new GeoJsonPolygon(new Point(6, 50), new Point(8, 50), new Point(8, 52),
                new Point(6, 52), new Point(6, 50)))));
        assertEquals("BK", sorted(where("spot").intersects(new GeoJsonPolygon(new Point(6, 50), new Point(8, 50), new Point(8, 52),
                new Point(6, 52), new Point(6, 50)))));
    }

    @Test
    void nearPlacesComeFirst() {
        assertEquals("KB", names(query(where("spot").nearSphere(new GeoJsonPoint(6.9, 51)).maxDistance(100_000))));
        assertEquals("BK", spots(query(where("at").near(new Point(7.2, 50.6)).maxDistance(1))));
        var near = template.geoNear(NearQuery.near(new GeoJsonPoint(6.9, 51)).spherical(true).inKilometers()
                .maxDistance(new Distance(100, Metrics.KILOMETERS)).query(query(where("kind").is("city"))), Place.class);
        assertEquals(2, near.getContent().size());
        assertEquals("Köln", near.getContent().get(0).getContent().name);
        assertTrue(Math.abs(near.getContent().get(0).getDistance().getValue() - 7.9) < 0.5, near.toString());
        var steps = Aggregation.newAggregation(Aggregation.geoNear(NearQuery.near(new GeoJsonPoint(10, 48)).spherical(true), "far")
                .useIndex("spot"), Aggregation.limit(1));
        assertEquals("Ulm", template.aggregate(steps, Place.class, Document.class).getUniqueMappedResult().get("name"));
    }

    @Test
    void textIsFoundAndScored() {
        Query river = TextQuery.queryText(TextCriteria.forDefaultLanguage().matchingAny("river", "bonn")).sortByScore();
        List<Place> found = template.find(river, Place.class);
        assertEquals(List.of("Bonn", "Köln"), found.stream().map(place -> place.name).toList());
        assertTrue(found.get(0).score > found.get(1).score);
        assertEquals("K", names(TextQuery.queryText(TextCriteria.forDefaultLanguage().matching("river").notMatching("city"))));
        assertEquals("U", names(TextQuery.queryText(TextCriteria.forLanguage("english").matchingPhrase("church tower"))));
    }

    @Test
    void annotationsMakeIndexes() {
        Map<String, IndexInfo> found = template.indexOps(Place.class).getIndexInfo().stream()
                .collect(Collectors.toMap(IndexInfo::getName, info -> info));
        assertTrue(found.keySet().containsAll(List.of("both", "spot", "kind_hashed", "until")), found.toString());
        assertTrue(found.keySet().stream().anyMatch(name -> name.startsWith("free")), found.toString());
        assertTrue(template.indexOps(Spot.class).getIndexInfo().stream().anyMatch(info -> info.getName().equals("at")));
        assertEquals(864_000, found.get("until").getExpireAfter().orElseThrow().toSeconds());
        assertTrue(found.get("until").isSparse() && found.get("kind_hashed").isHashed());
        assertEquals("{\"size\": {\"$gt\": 5}}", found.get("both").getPartialFilterExpression());
    }

    @Test
    void indexesComeAndGo() {
        var indexes = template.indexOps(Place.class);
        assertEquals("named", indexes.createIndex(new Index("name", Sort.Direction.DESC).named("named")
                .collation(Collation.of("de").strength(1))));
        indexes.createIndex(new CompoundIndexDefinition(new Document("size", 1).append("kind", 1)).named("pair").unique()
                .partial(org.springframework.data.mongodb.core.index.PartialIndexFilter.of(where("size").gt(9))));
        assertTrue(indexes.getIndexInfo().stream().anyMatch(info -> info.getName().equals("pair") && info.isUnique()));
        Query folded = query(where("name").is("koln")).collation(Collation.of("de").strength(1)).withHint("named");
        assertEquals("K", names(folded));
        indexes.dropIndex("named");
        indexes.dropIndex("pair");
        assertTrue(indexes.getIndexInfo().stream().noneMatch(info -> info.getName().equals("named")));
    }
}
