//! Clustered collections: what create's `clusteredIndex` says, checked.

use crate::option_field;
use base::bson::{Builder, Document, Value, equal};
use base::{Result, err};

/// Reads `clusteredIndex`: the name of the index, or `None` for `false`.
///
/// Errors: 40414, 40415, TypeMismatch, InvalidIndexSpecificationOption for another key than
/// `{_id: 1}`, 5979700 unless unique, 5979703 for `true`, 5979704 for another version.
pub(crate) fn parse(value: Value<'_>) -> Result<Option<String>> {
    match value {
        Value::Document(spec) => Fields::read(spec)?.check(spec).map(Some),
        _ => match option_field::flag("clusteredIndex", value)? {
            false => Ok(None),
            true => Err(err!(
                5979703,
                "The 'clusteredIndex' legacy format {{clusteredIndex: <bool>}} is only supported for specific \
                 internal collections and vice versa"
            )),
        },
    }
}

/// Appends the option as listCollections shows it and the catalog keeps it.
pub(crate) fn append_to(name: &str, out: &mut Builder) {
    out.begin_document(c"clusteredIndex").append(c"v", 2i32);
    out.begin_document(c"key").append(c"_id", 1i32).end();
    out.append(c"name", name).append(c"unique", true).end();
}

/// An age at which documents expire.
///
/// Errors: InvalidOptions below zero and beyond what an int32 holds.
pub(crate) fn expiry(seconds: i64) -> Result<i64> {
    if seconds < 0 {
        return Err(err!(InvalidOptions, "TTL index 'expireAfterSeconds' option cannot be less than 0"));
    }
    if seconds > i64::from(i32::MAX) {
        return Err(err!(
            InvalidOptions,
            "TTL index 'expireAfterSeconds' option must be within an acceptable range, try a lower number"
        ));
    }
    Ok(seconds)
}

/// The fields as they were given.
#[derive(Default)]
struct Fields<'a> {
    key: Option<Document<'a>>,
    unique: Option<bool>,
    name: Option<&'a str>,
    version: Option<i64>,
}

impl<'a> Fields<'a> {
    fn read(spec: Document<'a>) -> Result<Fields<'a>> {
        let mut fields = Fields::default();
        for element in spec {
            let value = element.value();
            let path = format!("clusteredIndex.{}", element.name());
            match element.name() {
                "key" => fields.key = Some(option_field::object(&path, value)?),
                "unique" => fields.unique = Some(option_field::flag(&path, value)?),
                "name" => fields.name = Some(option_field::text(&path, value)?),
                "v" => fields.version = Some(option_field::count(&path, value)?),
                _ => return Err(err!(40415, "BSON field 'create.{path}' is an unknown field.")),
            }
        }
        Ok(fields)
    }

    fn check(self, spec: Document<'_>) -> Result<String> {
        let missing = |name: &str| {
            err!(40414, "BSON field 'create.clusteredIndex.{name}' is missing but a required field")
        };
        let key = self.key.ok_or_else(|| missing("key"))?;
        if !self.unique.ok_or_else(|| missing("unique"))? {
            return Err(err!(5979700, "The clusteredIndex option requires unique: true to be specified"));
        }
        let mut parts = key.iter();
        let on_id =
            parts.next().is_some_and(|part| part.name() == "_id" && equal(part.value(), Value::Int32(1)));
        if !on_id || parts.next().is_some() {
            return Err(err!(
                InvalidIndexSpecificationOption,
                "The clusteredIndex option is only supported for key: {{_id: 1}}"
            ));
        }
        match self.version {
            None | Some(2) => {}
            Some(version) => {
                return Err(err!(
                    5979704,
                    "Invalid clusteredIndex specification {spec}; cannot create a clusteredIndex with v={version}"
                ));
            }
        }
        match self.name {
            Some("") => Err(err!(CannotCreateIndex, "index name cannot be empty")),
            name => Ok(name.unwrap_or("_id_").to_string()),
        }
    }
}
