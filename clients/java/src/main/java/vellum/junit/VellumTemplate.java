package vellum.junit;

import com.mongodb.client.MongoDatabase;
import java.lang.annotation.ElementType;
import java.lang.annotation.Inherited;
import java.lang.annotation.Retention;
import java.lang.annotation.RetentionPolicy;
import java.lang.annotation.Target;
import java.util.function.Consumer;

/**
 * Names the class that fills the template database. Every test of the annotated class gets a fork. It runs
 * once per run.
 */
@Inherited
@Retention(RetentionPolicy.RUNTIME)
@Target(ElementType.TYPE)
public @interface VellumTemplate {
    /** A class with a constructor without parameters. */
    Class<? extends Consumer<MongoDatabase>> value();
}
