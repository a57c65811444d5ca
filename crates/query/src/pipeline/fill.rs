//! `$fill`: values for null and missing fields. The stage expands to a `$setWindowFields` for fields filled from
//! neighbours, and an `$addFields` for fields with a given value.
//!
//! ```text
//! {$fill: {
//!     partitionBy: <expression>,              optional, instead of partitionByFields
//!     partitionByFields: [<path>, …],         optional
//!     sortBy: <sort pattern>,                 required with a method
//!     output: {<field>: {value: <expression>} | {method: "linear" | "locf"}, …},
//! }}
//! ```

use super::fields::{check_options, required_option};
use super::parse::{Parsed, Scope};
use crate::field_path::checked_path;
use base::bson::{Builder, Document, Element, FieldName, FieldNameBuf, Value};
use base::{Error, Result, bail, err};

/// Parses `$fill`. Errors: FailedToParse, 40414, 40415 for invalid, missing and unknown options, 6050200 to 6050204 as
/// in MongoDB.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    let Value::Document(options) = spec.value() else {
        bail!(FailedToParse, "The $fill stage specification must be an object, found {}", spec.kind());
    };
    check_options("$fill", options, &["partitionBy", "partitionByFields", "sortBy", "output"])?;
    let output = required_option("$fill", options, "output")?;
    let Value::Document(output) = output else {
        return Err(Error::wrong_type("$fill.output", output.kind(), "object"));
    };
    if output.is_empty() {
        bail!(6050203, "The output field in '$fill' must contain an object with at least one element");
    }
    let mut stages = Builder::new();
    stages.begin_array(c"stages");
    append_windows(&mut stages, options, output)?;
    append_values(&mut stages, output)?;
    Parsed::stages(stages, scope)
}

/// The method of filling one field.
enum FillMethod<'a> {
    Value(Value<'a>),
    Window(&'static str),
    /// A specification without a method, which MongoDB ignores.
    Nothing,
}

/// Parses the method of a field. Errors: 6050200 to 6050202 for a specification that is no document, has two methods or
/// an unknown method, 40415 for another field.
fn filling<'a>(field: &Element<'a>) -> Result<FillMethod<'a>> {
    let Value::Document(spec) = field.value() else {
        bail!(6050200, "Each fill output specification must be an object with exactly one field");
    };
    check_options("$fill", spec, &["value", "method"])?;
    match (spec.get("method"), spec.get("value")) {
        (Some(Value::String(_)), Some(_)) => Err(err!(
            6050201,
            "Each fill output specification must have exactly one of 'method' or 'value' fields, not both"
        )),
        (Some(Value::String("linear")), None) => Ok(FillMethod::Window("$linearFill")),
        (Some(Value::String("locf")), None) => Ok(FillMethod::Window("$locf")),
        (Some(Value::String(_)), None) => Err(err!(6050202, "Method must be either locf or linear")),
        (Some(other), _) => Err(Error::wrong_type("$fill.method", other.kind(), "string")),
        (None, Some(value)) => Ok(FillMethod::Value(value)),
        (None, None) => Ok(FillMethod::Nothing),
    }
}

/// Appends a `$setWindowFields` for the fields that are filled from neighbours. Errors: as [`partition`].
fn append_windows(stages: &mut Builder, options: Document<'_>, output: Document<'_>) -> Result<()> {
    let mut windows = Builder::new();
    for field in output {
        if let FillMethod::Window(function) = filling(&field)? {
            let path = format!("${}", field.name());
            windows
                .begin_document(field.field_name())
                .append(FieldName::literal(function), path.as_str())
                .end();
        }
    }
    let partition = partition(options)?;
    if let Some(sort_by) =
        options.get("sortBy").filter(|value| !value.is_nullish() && value.as_document().is_none())
    {
        return Err(Error::wrong_type("$fill.sortBy", sort_by.kind(), "object"));
    }
    if windows.is_empty() {
        return Ok(());
    }
    stages.push_document().begin_document(c"$setWindowFields");
    stages.append_all(partition.finish().view());
    stages.append_optional(c"sortBy", options.get("sortBy"));
    stages.append(c"output", &windows.finish()).end().end();
    Ok(())
}

/// Returns `partitionBy` for `$setWindowFields`.
///
/// Errors: 6050204 if both forms are given, TypeMismatch for fields that are not strings, errors of their paths.
fn partition(options: Document<'_>) -> Result<Builder> {
    let mut partition = Builder::new();
    match (options.get("partitionBy"), options.get("partitionByFields")) {
        (Some(_), Some(_)) => {
            bail!(6050204, "Maximum one of 'partitionBy' and 'partitionByFields can be specified in '$fill'");
        }
        (Some(expression @ (Value::String(_) | Value::Document(_) | Value::Null)), None) => {
            partition.append(c"partitionBy", expression);
        }
        (Some(other), None) => {
            return Err(Error::wrong_type("$fill.partitionBy", other.kind(), "[string, object"));
        }
        (None, Some(Value::Array(fields))) => {
            partition.begin_document(c"partitionBy");
            for (at, field) in fields.iter().enumerate() {
                let Value::String(path) = field else {
                    return Err(Error::wrong_type(
                        format_args!("$fill.partitionByFields.{at}"),
                        field.kind(),
                        "string",
                    ));
                };
                checked_path(path)?;
                partition.append(
                    &FieldName::literal("p").joined(FieldNameBuf::of_number(at).view()),
                    format!("${path}").as_str(),
                );
            }
            partition.end();
        }
        (None, Some(other)) => {
            return Err(Error::wrong_type("$fill.partitionByFields", other.kind(), "array"));
        }
        (None, None) => {}
    }
    Ok(partition)
}

/// Appends an `$addFields` with an `$ifNull` for each field that has a given value.
fn append_values(stages: &mut Builder, output: Document<'_>) -> Result<()> {
    let mut values = Builder::new();
    for field in output {
        if let FillMethod::Value(value) = filling(&field)? {
            let path = format!("${}", field.name());
            values.begin_document(field.field_name()).begin_array(c"$ifNull");
            values.push(path.as_str()).push(value).end().end();
        }
    }
    if !values.is_empty() {
        stages.push_document().append(c"$addFields", &values.finish()).end();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::pipeline::testing::{fails, gives};

    #[test]
    fn fills_from_values_and_neighbours() {
        gives(
            "[{_id: 1, a: 1, b: null}, {_id: 2}, {_id: 3, a: 3, b: 7}]",
            "[{$fill: {sortBy: {_id: 1}, output: {a: {method: 'linear'}, b: {value: {$add: [1, 1]}}}}}]",
            "[{_id: 1, a: 1, b: 2}, {_id: 2, a: 2.0, b: 2}, {_id: 3, a: 3, b: 7}]",
        );
        gives(
            "[{_id: 1, p: 1, a: 1}, {_id: 2, p: 2}, {_id: 3, p: 1}]",
            "[{$fill: {partitionByFields: ['p'], sortBy: {_id: 1}, output: {a: {method: 'locf'}}}}]",
            "[{_id: 1, p: 1, a: 1}, {_id: 3, p: 1, a: 1}, {_id: 2, p: 2, a: null}]",
        );
    }

    #[test]
    fn refuses_bad_specifications() {
        fails("[{$fill: 1}]", 9, "must be an object, found int");
        fails("[{$fill: {}}]", 40414, "'$fill.output' is missing");
        fails("[{$fill: {output: {a: {value: 1}}, x: 1}}]", 40415, "'$fill.x' is an unknown field");
        fails("[{$fill: {output: {a: {method: 'x'}}}}]", 6050202, "either locf or linear");
        fails("[{$fill: {output: {a: {method: 'locf', value: 1}}}}]", 6050201, "not both");
        fails("[{$fill: {output: {a: {method: 'linear'}}}}]", 605001, "sortBy");
        fails(
            "[{$fill: {output: {a: {value: 1}}, partitionBy: '$a', partitionByFields: ['a']}}]",
            6050204,
            "Maximum one",
        );
    }
}
