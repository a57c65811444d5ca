package vellum.junit;

import com.mongodb.client.MongoDatabase;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.function.Consumer;

/** Names what fills the database of which every test of a class gets a fork; it is run once for all classes. */
@Inherited
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
public @interface VellumTemplate {
    /** A class with a constructor that takes nothing. */
    Class<? extends Consumer<MongoDatabase>> value();
}
