package vellum;

import java.util.Collection;
import java.util.List;
import java.util.Optional;
import java.util.stream.Stream;
import org.bson.types.ObjectId;
import org.springframework.data.domain.Page;
import org.springframework.data.domain.Pageable;
import org.springframework.data.domain.ScrollPosition;
import org.springframework.data.domain.Slice;
import org.springframework.data.domain.Sort;
import org.springframework.data.domain.Window;
import org.springframework.data.mongodb.repository.Aggregation;
import org.springframework.data.mongodb.repository.MongoRepository;
import org.springframework.data.mongodb.repository.Query;
import org.springframework.data.mongodb.repository.Update;
import vellum.Shop.NameAndAge;
import vellum.Shop.NameOnly;
import vellum.Shop.Person;

/** Queries derived from names, declared as JSON, and as pipelines. */
interface People extends MongoRepository<Person, ObjectId> {
    Optional<Person> findByName(String name);

    List<Person> findByAgeBetweenOrderByAge(int low, int high);

    List<Person> findByAgeGreaterThanEqualAndActiveTrue(int age, Sort sort);

    List<Person> findByNameStartingWithOrNameEndingWith(String start, String end);

    List<Person> findByNameContainingIgnoreCase(String part);

    List<Person> findByNameRegex(String pattern);

    List<Person> findByNameNotInAndAgeLessThan(Collection<String> names, int age);

    List<Person> findByTagsContaining(String tag);

    List<Person> findByTagsIsEmpty();

    List<Person> findByAddressCityAndAgeNot(String city, int age);

    List<Person> findByAddressIsNull();

    List<Person> findByAddressExists(boolean there);

    Person findFirstByOrderByAgeDesc();

    List<Person> findTop2ByOrderByName();

    Page<Person> findByActive(boolean active, Pageable page);

    Slice<Person> findByAgeLessThan(int age, Pageable page);

    Window<Person> findTop2ByActiveTrueOrderByAge(ScrollPosition position);

    Stream<Person> streamByActiveTrue();

    long countByAgeGreaterThan(int age);

    boolean existsByName(String name);

    long deleteByAgeLessThan(int age);

    List<Person> removeByName(String name);

    List<NameOnly> findByAge(int age);

    <T> List<T> findByNameIn(Collection<String> names, Class<T> type);

    @Query(value = "{'address.city': ?0, age: {$gt: :#{[1]}}}", sort = "{age: -1}", fields = "{name: 1}")
    List<Person> inCity(String city, int age);

    @Query(value = "{age: {$mod: [2, ?0]}}", count = true)
    long withAgeModulo(int rest);

    @Query("{name: ?0}")
    @Update("{$inc: {age: ?1}, $push: {favourites: 'older'}}")
    long grow(String name, int years);

    @Aggregation({"{$group: {_id: '$address.city', age: {$sum: '$age'}}}", "{$sort: {_id: 1}}",
        "{$project: {_id: 0, name: '$_id', age: 1}}"})
    List<NameAndAge> agesByCity();
}
