//! `$serializeEJSON` and `$deserializeEJSON`: values as Extended JSON (version 2) in BSON documents, and back.
//!
//! ```text
//! {$serializeEJSON: {input: <expression>, relaxed: <boolean>, onError: <expression>}}
//! {$deserializeEJSON: {input: <expression>, onError: <expression>}}
//! ```
//!
//! A type that JSON does not have becomes a document, for example `{$oid: "…"}`. [`Writer::serialize`] and
//! [`parse_wrapper`] have a case for each.

use super::convert::{binary, number};
use super::evaluate::{Call, Computed, null};
use super::named::{Named, named_arguments};
use super::show;
use crate::Context;
use base::bson::extended_json::parse_millis;
use base::bson::{
    Builder, Document, Element, FieldName, MAX_DEPTH, MAX_DOCUMENT_SIZE, ObjectId, RegexText, Type, Value,
    nests_deeper,
};
use base::encoding;
use base::{Error, ErrorCode, Result, bail, err};

/// Milliseconds of the last date that the relaxed format shows as text, in the year 3000.
const DATE_TEXT_MAX: i64 = 32_535_215_999_000;

pub(super) static SERIALIZE: Named = named_arguments!("$serializeEJSON", ["input"], ["onError", "relaxed"]);
pub(super) static DESERIALIZE: Named = named_arguments!("$deserializeEJSON", ["input"], ["onError"]);

/// Evaluates `$serializeEJSON`. Errors: BadValue for `relaxed`, ConversionFailure without `onError`.
pub(super) fn serialize<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let input = call.get(0)?;
    let relaxed = match call.has_argument(2) {
        false => true,
        true => match call.get(2)? {
            Some(Value::Boolean(relaxed)) => relaxed,
            other => bail!(BadValue, "Unexpected value for relaxed: {}", show::optional(other)),
        },
    };
    converted(call, input, |value, writer| writer.serialize(None, value, relaxed))
}

/// Evaluates `$deserializeEJSON`. Errors: ConversionFailure without `onError`.
pub(super) fn deserialize<'a>(call: &Call<'_, 'a>) -> Computed<'a> {
    let input = call.get(0)?;
    converted(call, input, |value, writer| writer.deserialize(None, value))
}

/// Converts a value, which may be missing, and checks the result's depth and size. `onError` is the second argument.
fn converted<'a>(
    call: &Call<'_, 'a>,
    input: Option<Value<'a>>,
    convert: impl Fn(Value<'a>, &mut Writer<'_>) -> Result<()>,
) -> Computed<'a> {
    let Some(input) = input else { return null() };
    let result = || {
        let mut writer = Writer { out: Builder::new(), context: call.scope.context };
        convert(input, &mut writer)?;
        let result = writer.out.finish();
        // The result is the only element of the document.
        if nests_deeper(result.view(), MAX_DEPTH + 1) {
            bail!(ConversionFailure, "Result exceeds maximum depth limit of {MAX_DEPTH} levels of nesting");
        }
        match result.view().first() {
            Some(result) if result.value_bytes().len() <= MAX_DOCUMENT_SIZE => {
                call.scope.copy_value(result.value()).map(Some)
            }
            _ => {
                Err(err!(ConversionFailure, "Result exceeds maximum BSON size limit of {MAX_DOCUMENT_SIZE}"))
            }
        }
    };
    match result() {
        Err(error) if error.code() == ErrorCode::ConversionFailure && call.has_argument(1) => call.get(1),
        result => result,
    }
}

/// The result under construction. A name is `None` for an element of an array, and for the result itself.
struct Writer<'c> {
    out: Builder,
    context: &'c Context,
}

impl Writer<'_> {
    /// Writes `{wrapper: value}`.
    fn wrap<'v>(&mut self, name: Option<FieldName<'_>>, wrapper: &'static str, value: impl Into<Value<'v>>) {
        self.out.begin_document_at(name);
        self.out.append(FieldName::literal(wrapper), value.into()).end();
    }

    /// Writes `{wrapper: {…}}` with two fields.
    fn wrap_pair(
        &mut self,
        name: Option<FieldName<'_>>,
        wrapper: &'static str,
        [first, second]: [(&'static str, Value<'_>); 2],
    ) {
        self.out.begin_document_at(name);
        self.out.begin_document(FieldName::literal(wrapper));
        self.out.append(FieldName::literal(first.0), first.1);
        self.out.append(FieldName::literal(second.0), second.1);
        self.out.end().end();
    }

    /// Writes a value as Extended JSON.
    fn serialize(&mut self, name: Option<FieldName<'_>>, value: Value<'_>, relaxed: bool) -> Result<()> {
        self.context.steps(1)?;
        match value {
            Value::String(_) | Value::Boolean(_) | Value::Null => self.out.append_at(name, value),
            Value::Int32(_) | Value::Int64(_) if relaxed => self.out.append_at(name, value),
            Value::Double(number) if relaxed && number.is_finite() => self.out.append_at(name, value),
            Value::Document(document) => {
                self.out.begin_document_at(name);
                for element in document {
                    self.serialize(Some(element.field_name()), element.value(), relaxed)?;
                }
                self.out.end();
            }
            Value::Array(array) => {
                self.out.begin_array_at(name);
                for value in array.iter() {
                    self.serialize(None, value, relaxed)?;
                }
                self.out.end();
            }
            Value::Int32(number) => self.wrap(name, "$numberInt", &*number.to_string()),
            Value::Int64(number) => self.wrap(name, "$numberLong", &*number.to_string()),
            Value::Double(number) => self.wrap(name, "$numberDouble", &*double(number)),
            Value::Decimal128(number) => self.wrap(name, "$numberDecimal", &*number.to_string()),
            Value::Binary { subtype: binary::UUID, bytes } if bytes.len() == 16 => {
                self.wrap(name, "$uuid", &*encoding::uuid(bytes));
            }
            Value::Binary { subtype, bytes } => {
                let (text, subtype) = (encoding::base64(bytes), format!("{subtype:x}"));
                let fields = [("base64", Value::String(&text)), ("subType", Value::String(&subtype))];
                self.wrap_pair(name, "$binary", fields);
            }
            Value::ObjectId(id) => self.wrap(name, "$oid", &*id.to_string()),
            Value::DateTime(millis) if relaxed && (0..DATE_TEXT_MAX).contains(&millis) => {
                self.wrap(name, "$date", &*show::date(millis));
            }
            Value::DateTime(millis) => {
                self.out.begin_document_at(name);
                self.wrap(Some(c"$date".into()), "$numberLong", &*millis.to_string());
                self.out.end();
            }
            Value::Regex { pattern, options } => {
                let [pattern, options] = [pattern, options].map(|text| Value::String(text.as_str()));
                self.wrap_pair(name, "$regularExpression", [("pattern", pattern), ("options", options)]);
            }
            Value::DbPointer { namespace, id } => {
                let id = id.to_string();
                let fields = [("$ref", Value::String(namespace)), ("$id", Value::String(&id))];
                self.wrap_pair(name, "$dbPointer", fields);
            }
            Value::JavaScript(code) => self.wrap(name, "$code", code),
            Value::Symbol(text) => self.wrap(name, "$symbol", text),
            Value::JavaScriptWithScope { code, scope } => {
                self.out.begin_document_at(name);
                self.out.append(c"$code", code);
                // The scope is canonical in both formats.
                self.serialize(Some(c"$scope".into()), Value::Document(scope), false)?;
                self.out.end();
            }
            Value::Timestamp(time) => {
                let half = |part: u64| Value::Int64(part as i64);
                let fields = [("t", half(time >> 32)), ("i", half(time & 0xFFFF_FFFF))];
                self.wrap_pair(name, "$timestamp", fields);
            }
            Value::Undefined => self.wrap(name, "$undefined", true),
            Value::MinKey => self.wrap(name, "$minKey", 1i32),
            Value::MaxKey => self.wrap(name, "$maxKey", 1i32),
        }
        Ok(())
    }

    /// Writes the value that Extended JSON describes. Errors: ConversionFailure.
    fn deserialize(&mut self, name: Option<FieldName<'_>>, value: Value<'_>) -> Result<()> {
        self.context.steps(1)?;
        match value {
            Value::String(_)
            | Value::Boolean(_)
            | Value::Null
            | Value::Int32(_)
            | Value::Int64(_)
            | Value::Double(_) => self.out.append_at(name, value),
            Value::Array(array) => {
                self.out.begin_array_at(name);
                for value in array.iter() {
                    self.deserialize(None, value)?;
                }
                self.out.end();
            }
            Value::Document(document) => {
                if self.deserialize_wrapper(name, document)? {
                    return Ok(());
                }
                self.out.begin_document_at(name);
                for element in document {
                    if WRAPPERS.contains(&element.name()) {
                        bail!(ConversionFailure, "{} must be the first field in the object", element.name());
                    }
                    self.deserialize(Some(element.field_name()), element.value())?;
                }
                self.out.end();
            }
            other => bail!(
                ConversionFailure,
                "Extended JSON cannot contain BSON-only types: {} is not available in JSON",
                other.kind().alias()
            ),
        }
        Ok(())
    }

    /// Writes the value of a document that describes a type; returns false for other documents.
    fn deserialize_wrapper(&mut self, name: Option<FieldName<'_>>, document: Document<'_>) -> Result<bool> {
        let mut elements = document.iter();
        let Some(first) = elements.next() else { return Ok(false) };
        let second = elements.next();
        let further = |name: &str| err!(ConversionFailure, "{name} object contains additional fields");
        let names = (first.name(), second.as_ref().map(Element::name));
        if let ("$code", Some("$scope")) | ("$scope", Some("$code")) = names {
            if elements.next().is_some() {
                return Err(further("$code"));
            }
            let Some(Value::String(code)) = document.get("$code") else {
                return Err(wrong_type("$code", "string"));
            };
            let Some(scope @ Value::Document(_)) = document.get("$scope") else {
                return Err(wrong_type("$scope", "object"));
            };
            let mut inner = Writer { out: Builder::new(), context: self.context };
            inner.deserialize(None, scope)?;
            let inner = inner.out.finish();
            let scope = inner.view().first().and_then(|scope| scope.value().as_document());
            let scope = scope.ok_or_else(|| wrong_type("$scope", "object"))?;
            self.out.append_at(name, Value::JavaScriptWithScope { code, scope });
            return Ok(true);
        }
        // `$code` beside another field is an error of its place, as are `$ref` and `$id`.
        if first.name() == "$code" && second.is_some() {
            return Ok(false);
        }
        let found = parse_wrapper(&first, &mut |value| self.out.append_at(name, value))?;
        match second {
            Some(_) if found => Err(further(first.name())),
            _ => Ok(found),
        }
    }
}

/// Names that only the documents of types have.
const WRAPPERS: &[&str] = &[
    "$minKey",
    "$maxKey",
    "$undefined",
    "$numberInt",
    "$numberLong",
    "$numberDouble",
    "$numberDecimal",
    "$binary",
    "$uuid",
    "$oid",
    "$date",
    "$regularExpression",
    "$dbPointer",
    "$ref",
    "$id",
    "$code",
    "$symbol",
    "$scope",
    "$timestamp",
];

/// Prints a double as JSON's canonical form does.
fn double(number: f64) -> String {
    match number {
        number if number.is_nan() => "NaN".to_string(),
        f64::INFINITY => "Infinity".to_string(),
        f64::NEG_INFINITY => "-Infinity".to_string(),
        number => show::shortest(number),
    }
}

fn wrong_type(name: &str, expected: &str) -> Error {
    err!(ConversionFailure, "{name} value must be of type {expected}")
}

/// Returns the text of a wrapper.
fn text<'v>(name: &str, value: Option<Value<'v>>) -> Result<&'v str> {
    match value {
        Some(Value::String(text)) => Ok(text),
        _ => Err(wrong_type(name, "string")),
    }
}

/// Returns the two fields of a wrapper. Errors: ConversionFailure for another type and for further fields.
fn pair<'v>(wrapper: &str, value: Value<'v>, [a, b]: [&str; 2]) -> Result<[Option<Value<'v>>; 2]> {
    let Value::Document(document) = value else { return Err(wrong_type(wrapper, "object")) };
    let found = [document.get(a), document.get(b)];
    if found.iter().all(Option::is_some) && document.iter().count() != 2 {
        bail!(ConversionFailure, "{wrapper} object contains additional fields, expected {a} and {b} only");
    }
    Ok(found)
}

/// Parses the value of a wrapper and passes it to `put`; returns false for other names. Errors: ConversionFailure.
fn parse_wrapper(wrapper: &Element<'_>, put: &mut dyn FnMut(Value<'_>)) -> Result<bool> {
    let (name, value) = (wrapper.name(), wrapper.value());
    let invalid = |problem: &str| err!(ConversionFailure, "{name} {problem}");
    let parse_number = |kind, form| parse_number(wrapper, kind, form);
    let one = |kind: &str| match value {
        Value::Int32(1) => Ok(()),
        Value::Int32(_) => Err(invalid("value must be the integer 1")),
        _ => Err(wrong_type(name, kind)),
    };
    match name {
        "$oid" => put(Value::ObjectId(object_id("$oid", text(name, Some(value))?)?)),
        "$symbol" => put(Value::Symbol(text(name, Some(value))?)),
        "$code" => put(Value::JavaScript(text(name, Some(value))?)),
        "$numberInt" => put(parse_number(Type::Int32, "an integer")?),
        "$numberLong" => put(parse_number(Type::Int64, "an integer")?),
        "$numberDouble" => put(parse_number(Type::Double, ANY_NUMBER)?),
        "$numberDecimal" => put(parse_number(Type::Decimal128, ANY_NUMBER)?),
        "$uuid" => {
            let bytes = binary::uuid_bytes(text(name, Some(value))?)
                .ok_or_else(|| invalid("value must be a valid UUID string"))?;
            put(Value::Binary { subtype: binary::UUID, bytes: &bytes });
        }
        "$binary" => {
            let (subtype, bytes) = parse_binary(value)?;
            put(Value::Binary { subtype, bytes: &bytes });
        }
        "$timestamp" => {
            let part = |name: &str, value: Option<Value<'_>>| match value {
                Some(Value::Int32(_) | Value::Int64(_)) => {
                    let number = value.and_then(|value| value.as_i64()).unwrap_or_default();
                    Ok(u64::from(number as u32))
                }
                _ => Err(wrong_type(name, "int or long")),
            };
            let [seconds, increment] = pair(name, value, ["t", "i"])?;
            let (seconds, increment) = (part("$timestamp.t", seconds)?, part("$timestamp.i", increment)?);
            put(Value::Timestamp(seconds << 32 | increment));
        }
        "$regularExpression" => {
            let [pattern, options] = pair(name, value, ["pattern", "options"])?;
            let pattern = text("$regularExpression.pattern", pattern)?;
            let options = text("$regularExpression.options", options)?;
            let (Ok(pattern), Ok(options)) = (RegexText::new(pattern), RegexText::new(options)) else {
                return Err(invalid("value must contain a valid regEx and options"));
            };
            put(Value::Regex { pattern, options });
        }
        "$dbPointer" => {
            let [namespace, id] = pair(name, value, ["$ref", "$id"])?;
            let (namespace, id) = (text("$dbPointer.$ref", namespace)?, text("$dbPointer.$id", id)?);
            put(Value::DbPointer { namespace, id: object_id("$id", id)? });
        }
        "$date" => put(Value::DateTime(match value {
            Value::String(text) => {
                parse_millis(text).ok_or_else(|| invalid("must be a valid ISO-8601 string"))?
            }
            Value::Document(document) => {
                let invalid_millis = || invalid("must be a 64-bit signed integer as a string");
                let millis = document.get("$numberLong").filter(|_| document.iter().count() == 1);
                let millis = millis.and_then(|millis| millis.as_str()).ok_or_else(invalid_millis)?;
                millis.parse().map_err(|_| invalid_millis())?
            }
            _ => return Err(wrong_type(name, "object or string")),
        })),
        "$minKey" => one("int").map(|()| put(Value::MinKey))?,
        "$maxKey" => one("int").map(|()| put(Value::MaxKey))?,
        "$undefined" => match value {
            Value::Boolean(true) => put(Value::Undefined),
            Value::Boolean(false) => return Err(invalid("value must be true")),
            _ => return Err(wrong_type(name, "bool")),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

const ANY_NUMBER: &str = "a number, NaN, Infinity or -Infinity";

/// Parses the text of a number. `form` describes it in the error.
fn parse_number(wrapper: &Element<'_>, kind: Type, form: &str) -> Result<Value<'static>> {
    let text = text(wrapper.name(), Some(wrapper.value()))?;
    let parsed = number::convert(Value::String(text), kind).ok().flatten();
    // Only these spellings of special numbers are valid.
    let special = ["NaN", "Infinity", "-Infinity"].contains(&text);
    let parsed = parsed.filter(|parsed| {
        let is_finite = match parsed {
            Value::Double(number) => number.is_finite(),
            Value::Decimal128(number) => !number.is_nan() && !number.is_infinite(),
            _ => true,
        };
        is_finite || special
    });
    parsed
        .ok_or_else(|| err!(ConversionFailure, "{} value must be a string specifying {form}", wrapper.name()))
}

/// Parses the document of `$binary`: the subtype and the bytes.
fn parse_binary(value: Value<'_>) -> Result<(u8, Vec<u8>)> {
    let [base64, subtype] = pair("$binary", value, ["base64", "subType"])?;
    let (base64, subtype) = (text("$binary.base64", base64)?, text("$binary.subType", subtype)?);
    let is_byte = (1..=2).contains(&subtype.len()) && subtype.bytes().all(|byte| byte.is_ascii_hexdigit());
    let subtype = u8::from_str_radix(subtype, 16).ok().filter(|_| is_byte).ok_or_else(|| {
        err!(ConversionFailure, "$binary.subType must be a hex representation of a single byte")
    })?;
    let bytes = binary::base64_bytes(base64)
        .ok_or_else(|| err!(ConversionFailure, "$binary.base64 must be a valid base64 encoded string"))?;
    Ok((subtype, bytes))
}

fn object_id(name: &str, text: &str) -> Result<ObjectId> {
    if text.len() != 24 {
        bail!(ConversionFailure, "{name} must be a 24 character hexadecimal string");
    }
    ObjectId::parse(text).ok_or_else(|| err!(ConversionFailure, "{name} value must be a valid objectId"))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_error, check_parse_error};

    /// Checks the canonical document of a value, by its field, and the way back.
    #[track_caller]
    fn check_type(value: &str, name: &str, field: &str) {
        let document = format!("{{a: {value}}}");
        let serialized = "{$serializeEJSON: {input: '$a', relaxed: false}}";
        let expected = format!("[{{k: '{name}', v: {field}}}]");
        check(&format!("{{$objectToArray: {serialized}}}"), &document, &expected);
        check(&format!("{{$deserializeEJSON: {{input: {serialized}}}}}"), &document, value);
    }

    #[test]
    fn types() {
        check_type("1", "$numberInt", "'1'");
        check_type("NumberLong(1)", "$numberLong", "'1'");
        check_type("1.0", "$numberDouble", "'1'");
        check_type("{$numberDouble: '-Infinity'}", "$numberDouble", "'-Infinity'");
        check_type("NumberDecimal('123')", "$numberDecimal", "'123'");
        check_type("ObjectId('507f1f77bcf86cd799439011')", "$oid", "'507f1f77bcf86cd799439011'");
        check_type("{$symbol: 'x'}", "$symbol", "'x'");
        check_type("{$code: 'f()'}", "$code", "'f()'");
        check_type("Timestamp(1, 2)", "$timestamp", "{t: NumberLong(1), i: NumberLong(2)}");
        check_type("/^a/i", "$regularExpression", "{pattern: '^a', options: 'i'}");
        check_type("BinData(128, 'aGV5')", "$binary", "{base64: 'aGV5', subType: '80'}");
        check_type("MinKey", "$minKey", "1");
        check_type("{$undefined: true}", "$undefined", "true");
        let relaxed = "{$objectToArray: {$serializeEJSON: {input: '$a'}}}";
        check(
            relaxed,
            "{a: {$date: {$numberLong: '1079895594000'}}}",
            "[{k: '$date', v: '2004-03-21T18:59:54.000Z'}]",
        );
        check(
            "{$serializeEJSON: {input: {b: [1, NumberLong(2), 1.5, null]}}}",
            "{}",
            "{b: [1, NumberLong(2), 1.5, null]}",
        );
        check("{$serializeEJSON: {input: '$none'}}", "{}", "null");
    }

    #[test]
    fn errors() {
        check_error("{$serializeEJSON: {input: 1, relaxed: 1}}", "{}", 2);
        check_parse_error("{$serializeEJSON: {input: 1, foo: 1}}", 9);
        check_parse_error("{$deserializeEJSON: {}}", 9);
        let wrapper = |field: &str| format!("{{$arrayToObject: {{$literal: [['$numberLong', {field}]]}}}}");
        for bad in ["1", "'bad'", "'--1'", "'Infinity'"] {
            check_error(&format!("{{$deserializeEJSON: {{input: {}}}}}", wrapper(bad)), "{}", 241);
            check(&format!("{{$deserializeEJSON: {{input: {}, onError: 'x'}}}}", wrapper(bad)), "{}", "'x'");
        }
        check_error("{$deserializeEJSON: {input: MinKey}}", "{}", 241);
        check_error(
            "{$deserializeEJSON: {input: {$arrayToObject: {$literal: [['a', 1], ['$ref', 'c']]}}}}",
            "{}",
            241,
        );
    }
}
