//! Declared fields of a command. Each field is named once with its type, and unknown fields are
//! refused.
//!
//! A handler takes its fields one by one and then calls [`Fields::finish`], which reports remaining
//! fields as unknown. Each field is required, optional with a default, or refused by name. A field
//! cannot be accepted and ignored by mistake. `Arguments` takes generic
//! arguments (`$db`, `lsid`, …) earlier.
//!
//! ```ignore
//! let mut fields = call.fields();
//! let namespace = fields.namespace()?;                       // the command's own field
//! let filter = fields.document("filter")?.unwrap_or(Document::EMPTY);
//! let limit = fields.natural("limit")?.unwrap_or(0);
//! let key = fields.required("key", Fields::string)?;
//! fields.refuse_unless_default("oplogReplay")?;
//! fields.finish()?;
//! ```
//!
//! As in MongoDB's parser, null and undefined stand for a missing field, and numbers for an integer
//! are truncated.

use base::bson::{Array, Document, Element, Type, Value};
use base::{Error, Namespace, Result, bail, check_bounds, err};
use database::check_writable;
use smallvec::SmallVec;
use std::borrow::Cow;
use std::ops::RangeInclusive;
use wire::request::{Documents, Request};

/// Fields of a command or nested document that no call has taken yet.
pub(crate) struct Fields<'a> {
    /// Path in error messages: `find`, `update.updates`.
    path: Cow<'a, str>,
    database: &'a str,
    elements: SmallVec<[Element<'a>; 8]>,
    sequences: SmallVec<[(&'a str, Documents<'a>); 1]>,
}

const BOOLEAN_LIKE: &str = "[bool, long, int, decimal, double']";
const NUMBERS: &str = "[long, int, decimal, double']";

impl<'a> Fields<'a> {
    /// Returns the fields of a command without its generic arguments.
    pub(crate) fn of_command(request: &Request<'a>, generic: impl Fn(&str) -> bool) -> Fields<'a> {
        let own = |element: &Element<'a>| !generic(element.name());
        let (path, database) = (request.name.into(), request.database);
        let mut fields = Fields { path, database, elements: SmallVec::new(), sequences: SmallVec::new() };
        fields.elements.extend(request.body.iter().filter(own));
        fields.sequences.extend(request.sequences.iter().map(|sequence| (sequence.name, sequence.documents)));
        fields
    }

    /// Returns the fields of a nested document. `path` is its path, such as `update.updates`.
    pub(crate) fn of_document(path: impl Into<Cow<'a, str>>, document: Document<'a>) -> Fields<'a> {
        let path = path.into();
        let mut fields = Fields { path, database: "", elements: SmallVec::new(), sequences: SmallVec::new() };
        fields.elements.extend(document.iter());
        fields
    }

    /// Refuses all remaining fields.
    ///
    /// Errors: IDLUnknownField with the first name.
    pub(crate) fn finish(&self) -> Result<()> {
        let unknown = self.elements.first().map(|element| element.name());
        match unknown.or(self.sequences.first().map(|sequence| sequence.0)) {
            Some(name) => Err(Error::unknown_field(format_args!("{}.{name}", self.path))),
            None => Ok(()),
        }
    }

    /// Drops the remaining fields, for commands whose unknown fields MongoDB ignores.
    pub(crate) fn ignore_rest(self) {}

    /// Takes the remaining fields, for commands with open names (`setParameter`).
    pub(crate) fn rest(self) -> Vec<Element<'a>> {
        self.elements.into_vec()
    }

    /// Returns a field without taking it.
    pub(crate) fn peek(&self, name: &str) -> Option<Value<'a>> {
        self.elements.iter().find(|element| element.name() == name).map(|element| element.value())
    }

    /// Takes a field of any type. Null counts as a value here.
    ///
    /// Errors: IDLDuplicateField.
    #[inline]
    pub(crate) fn any(&mut self, name: &str) -> Result<Option<Value<'a>>> {
        // Most commands have fewer fields than their handlers ask for.
        if self.elements.is_empty() {
            return Ok(None);
        }
        Ok(self.take(name)?.map(|element| element.value()))
    }

    /// Takes a boolean.
    ///
    /// Errors: TypeMismatch, IDLDuplicateField.
    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>> {
        self.typed(name, "bool", |value| value.as_bool())
    }

    /// Takes a boolean that may not be null.
    ///
    /// Errors: TypeMismatch.
    pub(crate) fn strict_boolean(&mut self, name: &str) -> Result<Option<bool>> {
        match self.any(name)? {
            None => Ok(None),
            Some(Value::Boolean(value)) => Ok(Some(value)),
            Some(other) => Err(err!(
                TypeMismatch,
                "Field '{name}' should be a boolean value, but found: {}",
                other.kind().alias()
            )),
        }
    }

    /// Takes a boolean or a number, where 0 is false.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        self.typed(name, BOOLEAN_LIKE, |value| match value {
            Value::Boolean(flag) => Some(*flag),
            _ => value.as_number().map(|number| !number.is_zero()),
        })
    }

    /// Takes a field of any type and returns its truth.
    ///
    /// Errors: IDLDuplicateField.
    pub(crate) fn truthy(&mut self, name: &str) -> Result<bool> {
        Ok(self.any(name)?.is_some_and(|value| value.is_truthy()))
    }

    /// Checks the types of flags that are refused later. A wrong type is another error.
    ///
    /// Errors: TypeMismatch.
    pub(crate) fn check_flags(&self, names: &[&str]) -> Result<()> {
        for name in names {
            let Some(value) = self.peek(name).filter(|value| !value.is_nullish()) else { continue };
            if value.as_bool().is_none() && value.as_number().is_none() {
                bail!(
                    TypeMismatch,
                    "BSON field '{}.{name}' is the wrong type '{}', expected types '{BOOLEAN_LIKE}",
                    self.path,
                    value.kind().alias()
                );
            }
        }
        Ok(())
    }

    /// Takes an integer from any number type. A double loses its fraction, a decimal is rounded.
    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>> {
        self.typed(name, NUMBERS, |value| value.as_number().map(|number| number.to_i64_coerced()))
    }

    /// Takes an integer within bounds.
    ///
    /// Errors: BadValue for another number.
    pub(crate) fn bounded(&mut self, name: &str, bounds: RangeInclusive<i64>) -> Result<Option<i64>> {
        self.integer(name)?.map(|value| check_bounds(name, value, bounds)).transpose()
    }

    /// Takes an integer that is not negative.
    ///
    /// Errors: BadValue for a negative number.
    pub(crate) fn natural(&mut self, name: &str) -> Result<Option<u64>> {
        Ok(self.bounded(name, 0..=i64::MAX)?.map(|value| value as u64))
    }

    /// Takes a number of any type as a double.
    ///
    /// Errors: TypeMismatch, IDLDuplicateField.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>> {
        self.typed(name, NUMBERS, |value| value.as_number().map(|number| number.to_f64()))
    }

    /// Takes a string.
    ///
    /// Errors: TypeMismatch, IDLDuplicateField.
    pub(crate) fn string(&mut self, name: &str) -> Result<Option<&'a str>> {
        self.typed(name, "string", Value::as_str)
    }

    /// Takes a document.
    ///
    /// Errors: TypeMismatch, IDLDuplicateField.
    pub(crate) fn document(&mut self, name: &str) -> Result<Option<Document<'a>>> {
        self.typed(name, "object", Value::as_document)
    }

    /// Takes an array.
    ///
    /// Errors: TypeMismatch, IDLDuplicateField.
    pub(crate) fn array(&mut self, name: &str) -> Result<Option<Array<'a>>> {
        self.typed(name, "array", Value::as_array)
    }

    /// Takes a UUID.
    ///
    /// Errors: TypeMismatch; InvalidUUID for a wrong length.
    pub(crate) fn uuid(&mut self, name: &str) -> Result<Option<[u8; 16]>> {
        let Some(value) = self.any(name)?.filter(|value| !value.is_nullish()) else { return Ok(None) };
        let Value::Binary { subtype: 4, bytes } = value else {
            return Err(self.wrong_type(name, value.kind(), "UUID"));
        };
        uuid(bytes).map(Some)
    }

    /// Takes a list of documents: a document sequence or an array in the command. If the command's privileges
    /// depend on the list, their check reads both: `Authorizer::documents`.
    ///
    /// Errors: those of [`documents`](Self::documents).
    pub(crate) fn sequence(&mut self, name: &str) -> Result<Option<Documents<'a>>> {
        match self.sequences.iter().position(|sequence| sequence.0 == name) {
            Some(at) => Ok(Some(self.sequences.remove(at).1)),
            None => self.documents(name),
        }
    }

    /// Takes an array of documents.
    ///
    /// Errors: TypeMismatch with the element that is not a document.
    pub(crate) fn documents(&mut self, name: &str) -> Result<Option<Documents<'a>>> {
        let Some(array) = self.array(name)? else { return Ok(None) };
        Documents::from_array(array)
            .map(Some)
            .map_err(|(at, kind)| self.wrong_type(&format!("{name}.{at}"), kind, "object"))
    }

    /// Takes a list of strings.
    ///
    /// Errors: TypeMismatch with the element that is not a string.
    pub(crate) fn strings(&mut self, name: &str) -> Result<Option<Vec<&'a str>>> {
        let Some(array) = self.array(name)? else { return Ok(None) };
        let text = |(at, value): (usize, Value<'a>)| {
            value.as_str().ok_or_else(|| self.wrong_type(&format!("{name}.{at}"), value.kind(), "string"))
        };
        array.iter().enumerate().map(text).collect::<Result<_>>().map(Some)
    }

    /// Takes a required field: `fields.required("key", Fields::string)?`.
    ///
    /// Errors: IDLFailedToParse with the field's name; errors of `take`.
    pub(crate) fn required<T>(
        &mut self,
        name: &str,
        take: impl FnOnce(&mut Self, &str) -> Result<Option<T>>,
    ) -> Result<T> {
        take(self, name)?.ok_or_else(|| Error::missing_field(format_args!("{}.{name}", self.path)))
    }

    /// Takes a field that may not be null.
    ///
    /// Errors: TypeMismatch for null; errors of `take`.
    pub(crate) fn not_null<T>(
        &mut self,
        name: &str,
        take: impl FnOnce(&mut Self, &str) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        match self.peek(name) {
            Some(value) if value.is_nullish() => Err(err!(
                TypeMismatch,
                "BSON field '{}.{name}' is the wrong type '{}'",
                self.path,
                value.kind().alias()
            )),
            _ => take(self, name),
        }
    }

    /// Skips the command's own field, whose value has no meaning for many commands.
    pub(crate) fn after_name(mut self) -> Fields<'a> {
        self.command_value();
        self
    }

    /// Takes the value of the command's own field, which is always present.
    pub(crate) fn command_value(&mut self) -> Value<'a> {
        match self.elements.is_empty() {
            true => Value::Null,
            false => self.elements.remove(0).value(),
        }
    }

    /// Takes the collection in the command's own field.
    ///
    /// Errors: InvalidNamespace if the value is not a string or not a valid name.
    pub(crate) fn namespace(&mut self) -> Result<Namespace> {
        match self.command_value() {
            Value::String(name) => Namespace::new(self.database, name),
            other => Err(err!(InvalidNamespace, "collection name has invalid type {}", other.kind().alias())),
        }
    }

    /// Takes the collection in the command's own field. A name with a dollar is no collection.
    ///
    /// Errors: NamespaceNotFound for a dollar, else as [`namespace`](Self::namespace).
    pub(crate) fn existing_namespace(&mut self) -> Result<Namespace> {
        let database = self.database;
        match self.elements.first().and_then(|element| element.value().as_str()) {
            Some(name) if name.contains('$') => {
                Err(err!(NamespaceNotFound, "Collection '{database}.{name}' does not exist"))
            }
            _ => self.namespace(),
        }
    }

    /// Takes the collection in the command's own field, with the errors of MongoDB's IDL parser.
    ///
    /// Errors: BadValue if the value is not a string, InvalidNamespace if it is a document or not a valid name.
    pub(crate) fn named_collection(&mut self) -> Result<Namespace> {
        match self.command_value() {
            Value::String(name) => Namespace::new(self.database, name),
            Value::Document(_) => Err(err!(InvalidNamespace, "collection name has invalid type object")),
            other => Err(err!(BadValue, "collection name has invalid type {}", other.kind().alias())),
        }
    }

    /// Takes the collection of a command that writes documents.
    ///
    /// Errors: InvalidNamespace, also for collections that only the server writes.
    pub(crate) fn writable_namespace(&mut self) -> Result<Namespace> {
        let namespace = self.namespace()?;
        check_writable(&namespace).map(|()| namespace)
    }

    /// Refuses a field that is not implemented, unless its value has no effect (missing, null,
    /// false, zero or an empty document).
    ///
    /// Errors: NotImplemented with the field's name.
    pub(crate) fn refuse_unless_default(&mut self, name: &str) -> Result<()> {
        let Some(value) = self.any(name)? else { return Ok(()) };
        let harmless = match value {
            Value::Document(document) => document.is_empty(),
            Value::Array(array) => array.is_empty(),
            value => !value.is_truthy(),
        };
        if harmless {
            return Ok(());
        }
        Err(err!(NotImplemented, "BSON field '{}.{name}' is not implemented", self.path))
    }

    /// Returns the error for a wrong type. `expected` is a type name, or a list of names in
    /// MongoDB's form.
    pub(crate) fn wrong_type(&self, name: &str, found: Type, expected: &str) -> Error {
        let types = if expected.starts_with('[') {
            // The quotation mark inside the bracket is MongoDB's.
            format!("expected types '{expected}")
        } else {
            format!("expected type '{expected}'")
        };
        err!(TypeMismatch, "BSON field '{}.{name}' is the wrong type '{}', {types}", self.path, found.alias())
    }

    fn take(&mut self, name: &str) -> Result<Option<Element<'a>>> {
        let is_named = |element: &Element<'a>| element.name_bytes() == name.as_bytes();
        let Some(at) = self.elements.iter().position(is_named) else { return Ok(None) };
        let element = self.elements.remove(at);
        if self.elements.iter().any(is_named) {
            bail!(IDLDuplicateField, "BSON field '{}.{name}' is a duplicate field", self.path);
        }
        Ok(Some(element))
    }

    fn typed<T>(
        &mut self,
        name: &str,
        expected: &str,
        read: impl FnOnce(&Value<'a>) -> Option<T>,
    ) -> Result<Option<T>> {
        let Some(value) = self.any(name)? else { return Ok(None) };
        match read(&value) {
            None if value.is_nullish() => Ok(None),
            None => Err(self.wrong_type(name, value.kind(), expected)),
            some => Ok(some),
        }
    }
}

/// Converts bytes to a UUID.
///
/// Errors: InvalidUUID.
pub(crate) fn uuid(bytes: &[u8]) -> Result<[u8; 16]> {
    bytes
        .try_into()
        .map_err(|_| err!(InvalidUUID, "uuid must be a 16-byte binary field with UUID (4) subtype"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::{Builder, DocumentBuf};
    use wire::request::{Sequence, Sequences};

    fn command(build: impl FnOnce(&mut Builder)) -> DocumentBuf {
        let mut builder = Builder::new();
        builder.append(c"find", "c");
        build(&mut builder);
        builder.append(c"$db", "d");
        builder.finish()
    }

    fn with_fields<T>(document: &DocumentBuf, test: impl FnOnce(&mut Fields<'_>) -> T) -> T {
        let request = Request::new(document.view(), Sequences::default()).unwrap();
        let mut fields = Fields::of_command(&request, |name| name == "$db");
        assert_eq!(fields.namespace().unwrap().as_str(), "d.c");
        test(&mut fields)
    }

    fn message<T>(result: Result<T>) -> (i32, String) {
        let error = result.err().unwrap();
        (error.code().number(), error.message().to_string())
    }

    #[test]
    fn unread_fields_are_unknown() {
        let document = command(|b| _ = b.append(c"limit", 3.7).append(c"x", 1));
        let request = Request::new(document.view(), Sequences::default()).unwrap();
        let mut fields = Fields::of_command(&request, |name| name == "$db");
        fields.command_value();
        assert_eq!(fields.natural("limit").unwrap(), Some(3));
        assert_eq!(message(fields.finish()), (40415, "BSON field 'find.x' is an unknown field.".to_string()));
    }

    #[test]
    fn null_counts_as_missing_and_other_types_are_refused() {
        let document = command(|b| _ = b.append(c"a", Value::Null).append(c"b", "text").append(c"c", -1));
        with_fields(&document, |fields| {
            assert_eq!(fields.boolean("a").unwrap(), None);
            let expected = "BSON field 'find.b' is the wrong type 'string', \
                            expected types '[bool, long, int, decimal, double']";
            assert_eq!(message(fields.flag("b")), (14, expected.to_string()));
            assert_eq!(message(fields.natural("c")).0, 2);
            let missing = "BSON field 'find.q' is missing but a required field";
            assert_eq!(message(fields.required("q", Fields::document)), (40414, missing.to_string()));
        });
    }

    #[test]
    fn a_repeated_field_is_refused() {
        let document = command(|b| _ = b.append(c"a", 1).append(c"a", 2));
        with_fields(&document, |fields| assert_eq!(message(fields.any("a")).0, 40413));
    }

    #[test]
    fn document_lists_are_in_body_or_section() {
        let document = command(|b| {
            b.begin_array(c"docs").push_document().append(c"a", 1).end().push(5).end();
        });
        with_fields(&document, |fields| {
            let text = "BSON field 'find.docs.1' is the wrong type 'int', expected type 'object'";
            assert_eq!(message(fields.documents("docs")), (14, text.to_string()));
        });
        let empty = [5, 0, 0, 0, 0, 5, 0, 0, 0, 0];
        let sequence = Sequence { name: "docs", documents: Documents::from_sequence(&empty, 2) };
        let document = command(|_| {});
        let request = Request::new(document.view(), Sequences::from_iter([sequence])).unwrap();
        let mut fields = Fields::of_command(&request, |name| name == "$db");
        assert!(fields.documents("docs").unwrap().is_none());
        assert_eq!(fields.sequence("docs").unwrap().unwrap().iter().count(), 2);
    }

    #[test]
    fn fields_without_an_implementation_may_only_be_given_without_effect() {
        let document = command(|b| _ = b.append(c"a", false).append(c"b", true));
        with_fields(&document, |fields| {
            assert!(fields.refuse_unless_default("a").is_ok());
            assert_eq!(message(fields.refuse_unless_default("b")).0, 238);
        });
    }
}
