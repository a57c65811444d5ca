package vellum;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Collection;
import java.util.List;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.springframework.dao.DuplicateKeyException;
import org.springframework.data.domain.Example;
import org.springframework.data.domain.ExampleMatcher;
import org.springframework.data.domain.PageRequest;
import org.springframework.data.domain.ScrollPosition;
import org.springframework.data.domain.Sort;
import vellum.Shop.NameAndAge;
import vellum.Shop.NameOnly;
import vellum.Shop.Person;

/** Repositories: CRUD, derived queries, paging, projections, declared queries, queries by example. */
class RepositoryTest extends Context {
    private People people;

    @BeforeEach
    void fill() {
        people = context.getBean(People.class);
        Person carl = new Person("Carl", 30, "Bonn", "a", "c");
        carl.active = false;
        people.saveAll(List.of(new Person("Dora", 41, "Bonn", "a", "b"), new Person("Anna", 17, "Berlin", "b"), carl,
                new Person("Bert", 30, null)));
    }

    /** First letters, sorted. */
    private static String names(Collection<Person> found) {
        return String.join("", found.stream().map(person -> person.name.substring(0, 1)).sorted().toList());
    }

    @Test
    void documentsAreSavedFoundAndDeleted() {
        Person eve = people.save(new Person("Eve", 5, "Ulm"));
        eve.age = 6;
        eve.tags.add("new");
        people.save(eve);
        Person found = people.findById(eve.id).orElseThrow();
        assertEquals(List.of(6, "Ulm", List.of("new"), eve.born),
                List.of(found.age, found.address.city(), found.tags, found.born));
        assertEquals("vellum.Shop$Person", template.getCollection("people").find().first().getString("_class"));
        assertTrue(people.existsById(eve.id));
        people.delete(eve);
        people.deleteAllById(List.of(people.findByName("Anna").orElseThrow().id));
        assertEquals(3, people.count());
        people.insert(List.of(new Person("x", 1, null), new Person("y", 1, null)));
        assertEquals("BCDxy", names(people.findAll()));
        people.deleteAll();
        assertEquals(0, people.count());
    }

    @Test
    void aNameThatIsTakenIsRefused() {
        var error = assertThrows(DuplicateKeyException.class, () -> people.insert(new Person("Anna", 1, null)));
        assertTrue(error.getMessage().contains("E11000"), error.getMessage());
    }

    @Test
    void conditionsComeFromNames() {
        assertEquals(41, people.findByName("Dora").orElseThrow().age);
        assertEquals("ABC", names(people.findByAgeBetweenOrderByAge(16, 41)));
        assertEquals("BD", names(people.findByAgeGreaterThanEqualAndActiveTrue(30, Sort.by("name"))));
        assertEquals("AC", names(people.findByNameStartingWithOrNameEndingWith("An", "rl")));
        assertEquals("BCD", names(people.findByNameContainingIgnoreCase("R")));
        assertEquals("AC", names(people.findByNameRegex("^[AC]")));
        assertEquals("B", names(people.findByNameNotInAndAgeLessThan(List.of("Anna", "Carl"), 40)));
        assertEquals("CD", names(people.findByTagsContaining("a")));
        assertEquals("B", names(people.findByTagsIsEmpty()));
        assertEquals("C", names(people.findByAddressCityAndAgeNot("Bonn", 41)));
        assertEquals("B", names(people.findByAddressIsNull()));
        assertEquals("ACD", names(people.findByAddressExists(true)));
        assertEquals("D", names(List.of(people.findFirstByOrderByAgeDesc())));
        assertEquals("AB", names(people.findTop2ByOrderByName()));
    }

    @Test
    void countsAndDeletionsComeFromNames() {
        assertEquals(3, people.countByAgeGreaterThan(20));
        assertTrue(people.existsByName("Bert"));
        assertFalse(people.existsByName("Nobody"));
        assertEquals(1, people.deleteByAgeLessThan(18));
        assertEquals("D", names(people.removeByName("Dora")));
        assertEquals("BC", names(people.findAll()));
    }

    @Test
    void resultsComeInPages() {
        var page = people.findByActive(true, PageRequest.of(0, 2, Sort.by("age")));
        assertEquals(List.of(3L, 2L, true), List.of(page.getTotalElements(), (long) page.getTotalPages(), page.hasNext()));
        assertEquals("AB", names(page.getContent()));
        assertEquals("D", names(people.findByActive(true, page.nextPageable()).getContent()));
        var slice = people.findByAgeLessThan(40, PageRequest.of(0, 2, Sort.by("name")));
        assertTrue(slice.hasNext());
        assertEquals("C", names(people.findByAgeLessThan(40, slice.nextPageable()).getContent()));
        var window = people.findTop2ByActiveTrueOrderByAge(ScrollPosition.keyset());
        assertEquals("AB", names(window.getContent()));
        assertEquals("D", names(people.findTop2ByActiveTrueOrderByAge(window.positionAt(1)).getContent()));
        var sort = Sort.by(Sort.Order.desc("age"), Sort.Order.desc("name"));
        assertEquals(List.of("Dora", "Carl"), people.findAll(PageRequest.of(0, 2, sort)).map(person -> person.name).toList());
        try (var stream = people.streamByActiveTrue()) {
            assertEquals(3, stream.count());
        }
    }

    @Test
    void partsOfDocumentsAreProjected() {
        assertEquals(List.of("Dora"), people.findByAge(41).stream().map(NameOnly::getName).toList());
        assertEquals(List.of(new NameAndAge("Anna", 17)), people.findByNameIn(List.of("Anna"), NameAndAge.class));
    }

    @Test
    void queriesAreDeclared() {
        List<Person> found = people.inCity("Bonn", 20);
        assertEquals(List.of("Dora", "Carl"), found.stream().map(person -> person.name).toList());
        assertNull(found.get(0).address);
        assertEquals(2, people.withAgeModulo(1));
        assertEquals(1, people.grow("Anna", 3));
        Person anna = people.findByName("Anna").orElseThrow();
        assertEquals(List.of(20, List.of("b", "older")), List.of(anna.age, anna.tags));
        var sums = people.agesByCity();
        assertEquals(List.of(30, 20, 71), sums.stream().map(NameAndAge::age).toList());
    }

    @Test
    void anExampleIsFound() {
        Person like = new Person();
        like.name = "o";
        like.tags = null;
        like.scores = null;
        var matcher = ExampleMatcher.matching().withIgnorePaths("age", "active")
                .withStringMatcher(ExampleMatcher.StringMatcher.CONTAINING).withIgnoreCase();
        assertEquals("D", names(people.findAll(Example.of(like, matcher))));
        assertEquals(1, people.count(Example.of(like, matcher)));
    }
}
