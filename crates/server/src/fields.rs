//! The declared fields of a command: each is named once, with its type, and any other is refused.
//!
//! A handler takes its fields out one after the other and then calls [`Fields::finish`], which
//! reports whatever nobody took as unknown. So a field is required, optional with a default, or
//! refused by name; "accepted but ignored" can't be written. The arguments that every command
//! takes (`$db`, `lsid`, …) have been taken out before, by [`Arguments`](crate::arguments).
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
//! Null and undefined stand for a missing field, as in MongoDB's own parser; numbers given for
//! an integer are truncated as there.

use base::bson::{Array, Document, Element, Type, Value};
use base::{Namespace, Result, err};
use database::check_writable;
use smallvec::SmallVec;
use std::borrow::Cow;
use wire::request::{Documents, Request};

/// The fields of a command, or of a document inside one, not yet taken.
pub(crate) struct Fields<'a> {
    /// What messages call the place: `find`, `update.updates`.
    place: Cow<'a, str>,
    database: &'a str,
    elements: SmallVec<[Element<'a>; 8]>,
    sequences: SmallVec<[(&'a str, Documents<'a>); 1]>,
}

const BOOLEAN_LIKE: &str = "[bool, long, int, decimal, double']";
const NUMBERS: &str = "[long, int, decimal, double']";

impl<'a> Fields<'a> {
    /// The fields of a command without those for which `generic` holds.
    pub(crate) fn of_command(request: &Request<'a>, generic: impl Fn(&str) -> bool) -> Fields<'a> {
        let own = |element: &Element<'a>| !generic(element.name());
        Fields {
            place: request.name().into(),
            database: request.database,
            elements: request.body.iter().filter(own).collect(),
            sequences: request.sequences.iter().map(|sequence| (sequence.name, sequence.documents)).collect(),
        }
    }

    /// The fields of a document inside a command; `place` is its path, such as `update.updates`.
    pub(crate) fn of_document(place: impl Into<Cow<'a, str>>, document: Document<'a>) -> Fields<'a> {
        Fields {
            place: place.into(),
            database: "",
            elements: document.iter().collect(),
            sequences: SmallVec::new(),
        }
    }

    /// Refuses every field that hasn't been taken.
    ///
    /// Errors: IDLUnknownField naming the first one.
    pub(crate) fn finish(&self) -> Result<()> {
        let unknown = self.elements.first().map(|element| element.name());
        match unknown.or(self.sequences.first().map(|sequence| sequence.0)) {
            Some(name) => {
                Err(err!(IDLUnknownField, "BSON field '{}.{name}' is an unknown field.", self.place))
            }
            None => Ok(()),
        }
    }

    /// Leaves out what hasn't been taken, for commands of which MongoDB ignores further fields.
    pub(crate) fn ignore_rest(self) {}

    /// Takes what is left as it is: for commands whose further fields are names of their own
    /// (`setParameter`).
    pub(crate) fn rest(self) -> Vec<Element<'a>> {
        self.elements.into_vec()
    }

    /// Looks at a field that is to be taken.
    pub(crate) fn peek(&self, name: &str) -> Option<Value<'a>> {
        self.elements.iter().find(|element| element.name() == name).map(|element| element.value())
    }

    /// Takes a field of any type; null counts as a value here.
    ///
    /// Errors: IDLDuplicateField.
    pub(crate) fn any(&mut self, name: &str) -> Result<Option<Value<'a>>> {
        Ok(self.take(name)?.map(|element| element.value()))
    }

    /// Takes a boolean.
    pub(crate) fn boolean(&mut self, name: &str) -> Result<Option<bool>> {
        self.typed(name, "bool", |value| value.as_bool())
    }

    /// Takes a boolean for which null doesn't stand for none.
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

    /// Takes a boolean that may be given as a number, 0 being false.
    pub(crate) fn flag(&mut self, name: &str) -> Result<Option<bool>> {
        self.typed(name, BOOLEAN_LIKE, |value| match value {
            Value::Boolean(flag) => Some(*flag),
            _ => value.as_number().map(|number| !number.is_zero()),
        })
    }

    /// Takes a field of any type of which only matters whether it is true.
    ///
    /// Errors: IDLDuplicateField.
    pub(crate) fn truthy(&mut self, name: &str) -> Result<bool> {
        Ok(self.any(name)?.is_some_and(|value| value.is_truthy()))
    }

    /// Checks flags that are to be refused: what is no flag is another mistake.
    ///
    /// Errors: TypeMismatch.
    pub(crate) fn check_flags(&self, names: &[&str]) -> Result<()> {
        for name in names {
            let Some(value) = self.peek(name).filter(|value| !value.is_nullish()) else { continue };
            if value.as_bool().is_none() && value.as_number().is_none() {
                return Err(err!(
                    TypeMismatch,
                    "BSON field '{}.{name}' is the wrong type '{}', expected types '{BOOLEAN_LIKE}",
                    self.place,
                    value.kind().alias()
                ));
            }
        }
        Ok(())
    }

    /// Takes an integer, given as any number: a double loses its fraction, a decimal is rounded.
    pub(crate) fn integer(&mut self, name: &str) -> Result<Option<i64>> {
        self.typed(name, NUMBERS, |value| value.as_number().map(|number| number.to_i64_coerced()))
    }

    /// Takes an integer that isn't negative.
    ///
    /// Errors: BadValue for a negative one.
    pub(crate) fn natural(&mut self, name: &str) -> Result<Option<u64>> {
        self.integer(name)?
            .map(|value| {
                u64::try_from(value).map_err(|_| {
                    err!(BadValue, "BSON field '{name}' value must be >= 0, actual value '{value}'")
                })
            })
            .transpose()
    }

    /// Takes a number as it is.
    pub(crate) fn number(&mut self, name: &str) -> Result<Option<f64>> {
        self.typed(name, NUMBERS, |value| value.as_number().map(|number| number.to_f64()))
    }

    /// Takes a string.
    pub(crate) fn string(&mut self, name: &str) -> Result<Option<&'a str>> {
        self.typed(name, "string", Value::as_str)
    }

    /// Takes a document.
    pub(crate) fn document(&mut self, name: &str) -> Result<Option<Document<'a>>> {
        self.typed(name, "object", Value::as_document)
    }

    /// Takes an array.
    pub(crate) fn array(&mut self, name: &str) -> Result<Option<Array<'a>>> {
        self.typed(name, "array", Value::as_array)
    }

    /// Takes a UUID.
    ///
    /// Errors: TypeMismatch; InvalidUUID for one of another length.
    pub(crate) fn uuid(&mut self, name: &str) -> Result<Option<[u8; 16]>> {
        let Some(value) = self.any(name)?.filter(|value| !value.is_nullish()) else { return Ok(None) };
        let Value::Binary { subtype: 4, bytes } = value else {
            return Err(self.wrong_type(name, value.kind(), "UUID"));
        };
        uuid(bytes).map(Some)
    }

    /// Takes a list of documents, be it an array in the command or a sequence beside it.
    ///
    /// Errors: TypeMismatch naming the element that is no document.
    pub(crate) fn documents(&mut self, name: &str) -> Result<Option<Documents<'a>>> {
        if let Some(at) = self.sequences.iter().position(|sequence| sequence.0 == name) {
            return Ok(Some(self.sequences.remove(at).1));
        }
        let Some(array) = self.array(name)? else { return Ok(None) };
        match array.elements().enumerate().find(|(_, element)| element.kind() != Type::Document) {
            Some((at, element)) => Err(self.wrong_type(&format!("{name}.{at}"), element.kind(), "object")),
            None => Ok(Some(Documents::from_array(array))),
        }
    }

    /// Takes a list of strings.
    pub(crate) fn strings(&mut self, name: &str) -> Result<Option<Vec<&'a str>>> {
        let Some(array) = self.array(name)? else { return Ok(None) };
        let text = |(at, value): (usize, Value<'a>)| {
            value.as_str().ok_or_else(|| self.wrong_type(&format!("{name}.{at}"), value.kind(), "string"))
        };
        array.iter().enumerate().map(text).collect::<Result<_>>().map(Some)
    }

    /// Takes a field that must be there: `fields.required("key", Fields::string)?`.
    ///
    /// Errors: IDLFailedToParse naming the field, and what `take` itself refuses.
    pub(crate) fn required<T>(
        &mut self,
        name: &str,
        take: impl FnOnce(&mut Self, &str) -> Result<Option<T>>,
    ) -> Result<T> {
        take(self, name)?.ok_or_else(|| {
            err!(IDLFailedToParse, "BSON field '{}.{name}' is missing but a required field", self.place)
        })
    }

    /// Takes a field for which null doesn't stand for none.
    ///
    /// Errors: TypeMismatch for null, and what `take` itself refuses.
    pub(crate) fn not_null<T>(
        &mut self,
        name: &str,
        take: impl FnOnce(&mut Self, &str) -> Result<Option<T>>,
    ) -> Result<Option<T>> {
        match self.peek(name) {
            Some(value) if value.is_nullish() => Err(err!(
                TypeMismatch,
                "BSON field '{}.{name}' is the wrong type '{}'",
                self.place,
                value.kind().alias()
            )),
            _ => take(self, name),
        }
    }

    /// Takes the value of the command's own field, which every command has.
    pub(crate) fn command_value(&mut self) -> Value<'a> {
        match self.elements.is_empty() {
            true => Value::Null,
            false => self.elements.remove(0).value(),
        }
    }

    /// Takes the collection that the command's own field names.
    ///
    /// Errors: InvalidNamespace for no string or no valid name.
    pub(crate) fn namespace(&mut self) -> Result<Namespace> {
        match self.command_value() {
            Value::String(name) => Namespace::new(self.database, name),
            other => Err(err!(InvalidNamespace, "collection name has invalid type {}", other.kind().alias())),
        }
    }

    /// The same where MongoDB's parser of the whole command is who finds no string.
    ///
    /// Errors: BadValue for no string, InvalidNamespace for no valid name.
    pub(crate) fn named_collection(&mut self) -> Result<Namespace> {
        match self.command_value() {
            Value::String(name) => Namespace::new(self.database, name),
            other => Err(err!(BadValue, "collection name has invalid type {}", other.kind().alias())),
        }
    }

    /// The same for a command that writes documents.
    ///
    /// Errors: InvalidNamespace, also for what only the server itself writes.
    pub(crate) fn writable_namespace(&mut self) -> Result<Namespace> {
        let namespace = self.namespace()?;
        check_writable(&namespace).map(|()| namespace)
    }

    /// Takes a field that this server doesn't implement: refused by name unless it has no effect
    /// (missing, null, false, zero or an empty document).
    ///
    /// Errors: NotImplemented naming the field.
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
        Err(err!(NotImplemented, "BSON field '{}.{name}' is not implemented", self.place))
    }

    /// The error for a field of the wrong type; `expected` is a type's name, or a list of names
    /// as MongoDB's message has it.
    pub(crate) fn wrong_type(&self, name: &str, found: Type, expected: &str) -> base::Error {
        let types = if expected.starts_with('[') {
            // The quotation mark within the bracket is MongoDB's.
            format!("expected types '{expected}")
        } else {
            format!("expected type '{expected}'")
        };
        err!(
            TypeMismatch,
            "BSON field '{}.{name}' is the wrong type '{}', {types}",
            self.place,
            found.alias()
        )
    }

    fn take(&mut self, name: &str) -> Result<Option<Element<'a>>> {
        let is_named = |element: &Element<'a>| element.name_bytes() == name.as_bytes();
        let Some(at) = self.elements.iter().position(is_named) else { return Ok(None) };
        let element = self.elements.remove(at);
        if self.elements.iter().any(is_named) {
            return Err(err!(IDLDuplicateField, "BSON field '{}.{name}' is a duplicate field", self.place));
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

/// The bytes of a UUID.
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
    fn what_nobody_takes_is_unknown() {
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
    fn a_field_given_twice_is_refused() {
        let document = command(|b| _ = b.append(c"a", 1).append(c"a", 2));
        with_fields(&document, |fields| assert_eq!(message(fields.any("a")).0, 40413));
    }

    #[test]
    fn lists_of_documents_come_from_both_places() {
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
        assert_eq!(fields.documents("docs").unwrap().unwrap().iter().count(), 2);
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
