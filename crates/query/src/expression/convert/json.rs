//! Conversions between JSON text and documents or arrays.

use super::super::convert::binary;
use super::super::evaluate::{Computed, Scope};
use super::super::show;
use super::to_text;
use crate::Context;
use base::bson::{Builder, FieldName, MAX_DEPTH, MAX_DOCUMENT_SIZE, Type, Value};
use base::{Error, Result, bail, err};
use foldhash::{HashMap, HashMapExt};
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::cell::Cell;
use std::fmt;

/// Returns the text of a value of any type.
pub(super) fn any_text(value: Value<'_>) -> String {
    match value {
        Value::Binary { subtype, bytes } => binary::auto_text(subtype, bytes),
        Value::JavaScript(code) => code.to_string(),
        other => to_text(other).unwrap_or_else(|| show::value(other)),
    }
}

/// Returns a document or an array as JSON. Types that JSON does not have become strings.
///
/// Errors: ConversionFailure for a text above the size of a document, interruption.
pub(super) fn write(value: Value<'_>, context: &Context) -> Result<String> {
    let mut out = String::new();
    append(value, context, &mut out)?;
    Ok(out)
}

fn append(value: Value<'_>, context: &Context, out: &mut String) -> Result<()> {
    context.steps(1)?;
    match value {
        Value::Null | Value::Undefined => out.push_str("null"),
        Value::Boolean(value) => out.push_str(if value { "true" } else { "false" }),
        Value::Document(document) => {
            out.push('{');
            for (index, element) in document.iter().enumerate() {
                // MongoDB does not escape names.
                let comma = if index == 0 { "" } else { "," };
                out.push_str(&format!("{comma}\"{}\":", element.name()));
                append(element.value(), context, out)?;
            }
            out.push('}');
        }
        Value::Array(array) => {
            out.push('[');
            for (index, value) in array.iter().enumerate() {
                out.push_str(if index == 0 { "" } else { "," });
                append(value, context, out)?;
            }
            out.push(']');
        }
        other => {
            let text = any_text(other);
            let is_number = other.as_number().is_some() && text.ends_with(|last: char| last.is_ascii_digit());
            match is_number {
                true => out.push_str(&text),
                false => out.push_str(&serde_json::Value::from(text).to_string()),
            }
        }
    }
    if out.len() > MAX_DOCUMENT_SIZE {
        bail!(ConversionFailure, "Resulting string exceeds maximum size ({MAX_DOCUMENT_SIZE} bytes)");
    }
    Ok(())
}

/// Parses JSON text to a document or an array.
///
/// Errors: ConversionFailure for invalid JSON, a value of another type, and a result that is too deep or too large.
pub(super) fn read<'a>(text: &str, kind: Type, scope: &Scope<'_, 'a>) -> Computed<'a> {
    let mut parser = serde_json::Deserializer::from_str(text);
    parser.disable_recursion_limit();
    let mut out = Builder::new();
    let parse = Parse { scope, failure: Cell::new(None) };
    let parsed = Node { name: None, out: &mut out, depth: 0, parse: &parse }.deserialize(&mut parser);
    parsed.and_then(|()| parser.end()).map_err(|_| parse.failure.take().unwrap_or_else(|| invalid("")))?;
    let out = out.finish();
    let Some(result) = out.view().first() else { return Err(invalid("")) };
    if !matches!(result.kind(), Type::Document | Type::Array) {
        return Err(invalid(": Unexpected standalone value"));
    }
    if result.value_bytes().len() > MAX_DOCUMENT_SIZE {
        return Err(invalid(": the result is too large"));
    }
    if result.kind() != kind {
        bail!(ConversionFailure, "Input doesn't match expected type '{}'", kind.alias());
    }
    scope.copy_value(result.value()).map(Some)
}

fn invalid(reason: &str) -> Error {
    err!(ConversionFailure, "Input doesn't represent valid JSON{reason}")
}

/// State that all values of a text share.
struct Parse<'e, 'a> {
    scope: &'e Scope<'e, 'a>,
    /// The error that has ended the parser. The parser's own errors have no code.
    failure: Cell<Option<Error>>,
}

impl Parse<'_, '_> {
    /// Ends the parser with our error.
    fn check<E: serde::de::Error>(&self, result: Result<()>) -> std::result::Result<(), E> {
        result.map_err(|error| {
            self.failure.set(Some(error));
            E::custom("")
        })
    }
}

/// One JSON value, which is appended to `out` while it is parsed.
struct Node<'p, 'e, 'a> {
    /// Name of the field; `None` for an element and for the whole value.
    name: Option<FieldName<'p>>,
    out: &'p mut Builder,
    /// Number of documents and arrays around it.
    depth: usize,
    parse: &'p Parse<'e, 'a>,
}

impl Node<'_, '_, '_> {
    fn put<'v, E>(self, value: impl Into<Value<'v>>) -> std::result::Result<(), E> {
        self.out.append_at(self.name, value);
        Ok(())
    }

    /// Checks the depth before a nested value.
    fn enter<E: serde::de::Error>(&self) -> std::result::Result<(), E> {
        let too_deep =
            || invalid(&format!(": Result exceeds maximum depth limit of {MAX_DEPTH} levels of nesting"));
        self.parse.check((self.depth < MAX_DEPTH).then_some(()).ok_or_else(too_deep))
    }
}

impl<'de> DeserializeSeed<'de> for Node<'_, '_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        let scope = self.parse.scope;
        self.parse.check(scope.context.steps(1).and_then(|()| scope.check_memory(self.out.len())))?;
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Node<'_, '_, '_> {
    type Value = ();

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_unit<E>(self) -> std::result::Result<(), E> {
        self.put(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> std::result::Result<(), E> {
        self.put(value)
    }

    fn visit_i64<E>(self, value: i64) -> std::result::Result<(), E> {
        match i32::try_from(value) {
            Ok(small) => self.put(small),
            Err(_) => self.put(value),
        }
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> std::result::Result<(), E> {
        match i64::try_from(value) {
            Ok(value) => self.visit_i64(value),
            Err(_) => self.put(value as f64),
        }
    }

    fn visit_f64<E>(self, value: f64) -> std::result::Result<(), E> {
        self.put(value)
    }

    fn visit_str<E>(self, value: &str) -> std::result::Result<(), E> {
        self.put(value)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> std::result::Result<(), A::Error> {
        self.enter()?;
        self.out.begin_array_at(self.name);
        let (depth, parse) = (self.depth + 1, self.parse);
        while elements.next_element_seed(Node { name: None, out: &mut *self.out, depth, parse })?.is_some() {}
        self.out.end();
        Ok(())
    }

    /// Appends a document. The last value of a repeated name wins, at the place of the first.
    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> std::result::Result<(), A::Error> {
        self.enter()?;
        let (depth, parse) = (self.depth + 1, self.parse);
        let mut positions: HashMap<String, usize> = HashMap::new();
        let mut values: Vec<(String, Builder)> = Vec::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name.contains('\0') {
                parse.check(Err(invalid(": Illegal embedded null byte")))?;
            }
            let mut value = Builder::new();
            fields.next_value_seed(Node { name: None, out: &mut value, depth, parse })?;
            match positions.get(&name).and_then(|position| values.get_mut(*position)) {
                Some((_, known)) => *known = value,
                None => {
                    positions.insert(name.clone(), values.len());
                    values.push((name, value));
                }
            }
        }
        self.out.begin_document_at(self.name);
        for (name, value) in values {
            let (value, Ok(name)) = (value.finish(), FieldName::new(&name)) else { continue };
            if let Some(element) = value.view().first() {
                self.out.append_renamed(name, &element);
            }
        }
        self.out.end();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use crate::expression::Expression;
    use crate::{Arena, Context, Interrupt};
    use base::bson::extended_json::parse;
    use base::{CompatibleWith, ErrorCode, Result, err};
    use std::sync::Arc;

    struct Killed;

    impl Interrupt for Killed {
        fn check(&self) -> Result<()> {
            Err(err!(Interrupted, "operation was interrupted"))
        }
    }

    #[test]
    fn an_interruption_of_the_parser_is_not_a_failed_conversion() {
        let context = Context::new(0, 1, Arc::new(Killed)).with_version(CompatibleWith::V9_0);
        let text = format!("[{}0]", "0,".repeat(100_000));
        let root = parse(&format!("{{a: '{text}'}}")).unwrap();
        let expression = parse("{e: {$convert: {input: '$a', to: 'array', onError: 1}}}").unwrap();
        let expression = Expression::parse(expression.view().get("e").unwrap(), &context).unwrap();
        let error = expression.evaluate(root.view(), &context, &Arena::new()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::Interrupted);
    }
}
