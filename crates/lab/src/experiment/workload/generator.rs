//! Generators of the values in documents and operations.
//!
//! The output of a generator depends only on the seed, its position, and the number of the document or operation. Any
//! field of a document can therefore be generated again. An operation uses this to know the field values of the
//! document that it looks for.
//!
//! A new generator is a variant of [`Generator`] and an arm of [`Generator::generate`].

use crate::load::keys::{Rng, UpTo, Zipf, scramble};
use indexmap::IndexMap;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use std::collections::BTreeMap;
use std::num::NonZeroU64;
use toml::value::{Table, Value};

/// A generator of a value. Types derived here are read by their `gen` name.
#[derive(Clone, Debug, Deserialize)]
#[serde(remote = "Self", rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum Generator {
    /// A constant.
    #[serde(skip)]
    Constant(Bson),
    #[serde(skip)]
    Nested(Vec<(String, Generator)>),
    #[serde(skip)]
    List(Vec<Generator>),
    /// start + step × number. Restarts at 0 after `modulo` numbers.
    Sequence {
        #[serde(default)]
        start: i64,
        step: Option<i64>,
        modulo: Option<NonZeroU64>,
    },
    Int {
        min: i64,
        max: i64,
    },
    Float {
        min: f64,
        max: f64,
    },
    /// A number below a limit, by Zipf's law.
    Zipf {
        below: NonZeroU64,
        #[serde(default)]
        theta: Zipf,
    },
    Words(Length),
    /// One of several, by weight.
    Choice {
        of: Vec<Generator>,
        #[serde(default)]
        weights: Vec<UpTo<1_000_000>>,
    },
    Bool {
        share: Option<UpTo<1>>,
    },
    Date {
        from: Date,
        to: Date,
    },
    ObjectId {},
    Binary(Length),
    Array {
        of: Box<Generator>,
        length: Option<u64>,
        min: Option<u64>,
        max: Option<u64>,
    },
    /// A date: `from` + `seconds` × number.
    Clock {
        from: Date,
        seconds: f64,
    },
    /// A field (default `_id`) of the operation's document; in a document, an earlier field.
    Key {
        field: Option<String>,
    },
    /// A value kept by the operation under a name, or a field of it.
    Saved {
        name: String,
        field: Option<String>,
    },
    /// One of a number of words. No word is part of another.
    Word {
        below: NonZeroU64,
    },
    /// A document with generated field names.
    Object {
        of: Vec<(Generator, Generator)>,
    },
    /// The concatenation of values as a string. Values of arrays are separated by spaces.
    Text {
        of: Vec<Generator>,
    },
    /// Name of the lab's database.
    Database {},
}

/// A number of bytes, or a range.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Length {
    bytes: Option<u64>,
    min: Option<u64>,
    max: Option<u64>,
}

/// Milliseconds since 1970. A date without an offset is UTC.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, PartialOrd)]
#[serde(try_from = "String")]
pub(super) struct Date(i64);

impl TryFrom<String> for Date {
    type Error = String;

    fn try_from(mut date: String) -> Result<Date, String> {
        if date.len() == "2024-01-01".len() {
            date += "T00:00:00";
        }
        if !date.ends_with('Z') && !date[date.len() - 6..].starts_with(['+', '-']) {
            date += "Z";
        }
        let time: Result<jiff::Timestamp, _> = date.parse();
        time.map(|time| Date(time.as_millisecond())).map_err(|_| format!("{date} is not a date"))
    }
}

/// A document without generators.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Generator")]
pub(super) struct Constant(pub(super) Document);

impl TryFrom<Generator> for Constant {
    type Error = &'static str;

    fn try_from(generator: Generator) -> Result<Constant, &'static str> {
        match generator.constant() {
            Some(Bson::Document(document)) => Ok(Constant(document)),
            Some(_) => Err("expected a table"),
            None => Err("generators are not allowed here"),
        }
    }
}

/// The inputs of a value.
pub(super) struct ValueContext<'a> {
    pub(super) rng: Rng,
    /// Number of the document or operation.
    pub(super) number: u64,
    /// The operation's document, or the document under construction.
    pub(super) key: Option<(&'a Template, u64)>,
    /// Values kept by the operation.
    pub(super) saved: BTreeMap<String, Bson>,
    pub(super) database: &'a str,
}

/// Fields of documents, each with its own stream of random numbers.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(try_from = "IndexMap<String, Generator>")]
pub(super) struct Template {
    pub(super) seed: u64,
    fields: Vec<(String, Generator)>,
}

/// A table with `gen` is a generator; any other value is a constant.
impl<'de> Deserialize<'de> for Generator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Generator, D::Error> {
        Generator::of(Value::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

impl Generator {
    /// Converts a TOML value into a generator.
    fn of(value: Value) -> Result<Generator, String> {
        Ok(Generator::Constant(match value {
            Value::String(text) => text.into(),
            // As drivers send it.
            Value::Integer(number) => i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32),
            Value::Float(number) if number.is_finite() => number.into(),
            Value::Float(_) => return Err("must be finite".to_string()),
            Value::Boolean(value) => value.into(),
            Value::Datetime(date) => {
                Bson::DateTime(DateTime::from_millis(Date::try_from(date.to_string())?.0))
            }
            Value::Array(values) => {
                let values = values.into_iter().map(Generator::of).collect::<Result<_, _>>();
                return values.map(Generator::List);
            }
            Value::Table(mut table) => match table.remove("gen") {
                Some(kind) => return Generator::from_table(kind, table),
                None => {
                    let fields = table.into_iter().map(|(name, value)| Ok((name, Generator::of(value)?)));
                    return Ok(Generator::Nested(fields.collect::<Result<_, String>>()?));
                }
            },
        }))
    }

    /// Converts a table with `gen` into a generator.
    fn from_table(kind: Value, mut table: Table) -> Result<Generator, String> {
        let prefix = table.remove("prefix").map(Generator::of).transpose()?;
        let kind = kind.as_str().ok_or("'gen' is a string")?.to_string();
        let named = Value::Table(Table::from_iter([(kind, Value::Table(table))]));
        let generator = Generator::deserialize(named).map_err(|error| error.message().to_string())?;
        generator.check()?;
        Ok(match prefix {
            Some(prefix) => Generator::Text { of: vec![prefix, generator] },
            None => generator,
        })
    }

    /// Refuses limits in the wrong order or too large.
    fn check(&self) -> Result<(), String> {
        let in_order = match self {
            Generator::Int { min, max } => min <= max,
            Generator::Float { min, max } => min <= max,
            Generator::Date { from, to } => from <= to,
            Generator::Words(Length { bytes, min, max }) | Generator::Binary(Length { bytes, min, max }) => {
                within("bytes", (*bytes, *min, *max), BYTES_MAX)?
            }
            Generator::Array { length, min, max, .. } => within("length", (*length, *min, *max), LENGTH_MAX)?,
            Generator::Choice { of, weights } if of.is_empty() || ![0, of.len()].contains(&weights.len()) => {
                return Err("needs at least one value, and one weight for each value".to_string());
            }
            _ => true,
        };
        in_order.then_some(()).ok_or_else(|| "the lower limit is above the upper one".to_string())
    }

    /// Returns the value if it contains no generator.
    fn constant(self) -> Option<Bson> {
        match self {
            Generator::Constant(value) => Some(value),
            Generator::List(values) => {
                let values = values.into_iter().map(Generator::constant).collect::<Option<_>>();
                values.map(Bson::Array)
            }
            Generator::Nested(fields) => {
                let fields = fields.into_iter().map(|(name, generator)| Some((name, generator.constant()?)));
                Some(Bson::Document(fields.collect::<Option<_>>()?))
            }
            _ => None,
        }
    }

    /// Returns the fields of the operation's document that the generator needs.
    pub(super) fn keys(&self) -> Vec<&str> {
        match self {
            Generator::Key { field } => vec![field.as_deref().unwrap_or(ID)],
            Generator::Array { of, .. } => of.keys(),
            Generator::Object { of } => {
                of.iter().flat_map(|(name, value)| [name.keys(), value.keys()].concat()).collect()
            }
            Generator::Text { of } | Generator::Choice { of, .. } | Generator::List(of) => {
                of.iter().flat_map(Generator::keys).collect()
            }
            Generator::Nested(fields) => fields.iter().flat_map(|(_, each)| each.keys()).collect(),
            _ => Vec::new(),
        }
    }

    /// Generates the value.
    pub(super) fn generate(&self, context: &mut ValueContext) -> Bson {
        let rng = &mut context.rng;
        match self {
            Generator::Constant(value) => value.clone(),
            Generator::Sequence { start, step, modulo } => {
                let number = start.wrapping_add(step.unwrap_or(1).wrapping_mul(context.number as i64));
                let modulo =
                    modulo.map_or(i64::MAX, |modulo| i64::try_from(modulo.get()).unwrap_or(i64::MAX));
                Bson::Int64(number.wrapping_rem(modulo))
            }
            Generator::Clock { from, seconds } => {
                // The numbers of a warm-up are large, so only their low bits are used.
                let (number, step) = ((context.number & 0xFFFF_FFFF) as i64, (seconds * 1000.0) as i64);
                Bson::DateTime(DateTime::from_millis(from.0.saturating_add(step.saturating_mul(number))))
            }
            Generator::Int { min, max } => Bson::Int64(min.wrapping_add(rng.below(span(*min, *max)) as i64)),
            Generator::Float { min, max } => Bson::Double(min + (max - min) * rng.share()),
            Generator::Zipf { below, theta } => {
                Bson::Int64(scramble(theta.rank(rng, below.get()), below.get()) as i64)
            }
            Generator::Words(Length { bytes, min, max }) => {
                let length = between((*bytes, *min, *max), rng);
                Bson::String(rng.words(length as usize))
            }
            Generator::Choice { of, weights } => {
                let weight = |at: usize| weights.get(at).map_or(1.0, |weight| weight.0);
                let chosen = weighted_index((0..of.len()).map(weight), rng);
                of.get(chosen).map_or(Bson::Null, |generator| generator.generate(context))
            }
            Generator::Bool { share } => Bson::Boolean(rng.share() < share.map_or(0.5, |share| share.0)),
            Generator::Date { from, to } => {
                Bson::DateTime(DateTime::from_millis(from.0 + rng.below(span(from.0, to.0)) as i64))
            }
            Generator::ObjectId {} => Bson::ObjectId(object_id(context)),
            Generator::Binary(Length { bytes, min, max }) => {
                let length = between((*bytes, *min, *max), rng);
                Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: binary(rng, length) })
            }
            Generator::Array { of, length, min, max } => {
                let length = between((*length, *min, *max), rng);
                Bson::Array((0..length).map(|_| of.generate(context)).collect())
            }
            Generator::List(of) => Bson::Array(of.iter().map(|each| each.generate(context)).collect()),
            Generator::Nested(fields) => Bson::Document(
                fields.iter().map(|(name, each)| (name.clone(), each.generate(context))).collect(),
            ),
            Generator::Key { field } => {
                let field = field.as_deref().unwrap_or(ID);
                context.key.and_then(|(template, number)| template.field(field, number)).unwrap_or(Bson::Null)
            }
            Generator::Saved { name, field } => {
                let saved = context.saved.get(name);
                let value = match field {
                    Some(field) => saved.and_then(Bson::as_document).and_then(|document| document.get(field)),
                    None => saved,
                };
                value.cloned().unwrap_or(Bson::Null)
            }
            // Letters derived from the number.
            Generator::Word { below } => {
                Bson::String(format!("w{}", Rng::of(1, rng.below(below.get())).letters(7)))
            }
            Generator::Object { of } => {
                let field = |(name, value): &(Generator, Generator)| {
                    (as_text(&name.generate(context)), value.generate(context))
                };
                Bson::Document(of.iter().map(field).collect())
            }
            Generator::Text { of } => {
                Bson::String(of.iter().map(|each| as_text(&each.generate(context))).collect())
            }
            Generator::Database {} => Bson::String(context.database.to_string()),
        }
    }
}

/// Maximum size of a text or binary value, and maximum length of an array.
const BYTES_MAX: u64 = 15 << 20;
const LENGTH_MAX: u64 = 100_000;

/// A fixed length, or `min` and `max`.
type Limits = (Option<u64>, Option<u64>, Option<u64>);

/// Returns the minimum and the maximum; `None` if neither form is complete.
fn limits((exact, min, max): Limits) -> Option<(u64, u64)> {
    exact.map(|exact| (exact, exact)).or(min.zip(max))
}

/// Returns true if the limits are in order. A missing or too large limit is an error.
fn within(name: &str, given: Limits, most: u64) -> Result<bool, String> {
    let (min, max) = limits(given).ok_or_else(|| format!("'{name}', or 'min' and 'max', is missing"))?;
    if max > most { Err(format!("the maximum is {most}")) } else { Ok(min <= max) }
}

/// Returns a random number within the limits.
fn between(given: Limits, rng: &mut Rng) -> u64 {
    let (min, max) = limits(given).unwrap_or_default();
    if min == max { min } else { min + rng.below(max - min + 1) }
}

/// Returns an index drawn by these weights.
pub(super) fn weighted_index(weights: impl Iterator<Item = f64> + Clone, rng: &mut Rng) -> usize {
    let mut left = rng.share() * weights.clone().sum::<f64>();
    let below = |weight: f64| {
        left -= weight;
        left < 0.0
    };
    let last = weights.clone().count().saturating_sub(1);
    weights.map(below).position(|found| found).unwrap_or(last)
}

/// The field that every document has.
const ID: &str = "_id";

/// Returns the number of integers in a range, both ends included; u64::MAX for 2^64.
fn span(min: i64, max: i64) -> u64 {
    max.wrapping_sub(min).cast_unsigned().saturating_add(1)
}

/// Returns an ObjectId: four bytes of time that grow with the number, like a real one, and eight random bytes.
fn object_id(context: &mut ValueContext) -> ObjectId {
    const BEGIN: u64 = 1_704_067_200;
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&((BEGIN + context.number / 100) as u32).to_be_bytes());
    bytes[4..].copy_from_slice(&context.rng.draw().to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// Returns random bytes.
fn binary(rng: &mut Rng, bytes: u64) -> Vec<u8> {
    let mut binary: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| rng.draw().to_le_bytes()).collect();
    binary.truncate(bytes as usize);
    binary
}

/// Returns a value as part of a string, without quotes.
fn as_text(value: &Bson) -> String {
    match value {
        Bson::String(text) => text.clone(),
        Bson::Int64(number) => number.to_string(),
        Bson::Int32(number) => number.to_string(),
        Bson::Array(values) => values.iter().map(as_text).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// Creates documents with these fields. Without `_id` they are numbered.
impl TryFrom<IndexMap<String, Generator>> for Template {
    type Error = String;

    fn try_from(mut fields: IndexMap<String, Generator>) -> Result<Template, String> {
        if !fields.contains_key(ID) {
            let numbered = Generator::Sequence { start: 0, step: None, modulo: None };
            fields.shift_insert(0, ID.to_string(), numbered);
        }
        for (at, (name, generator)) in fields.iter().enumerate() {
            let stands_before = |key: &&str| {
                let first = key.split('.').next().unwrap_or(key);
                fields.get_index_of(first).is_some_and(|place| place < at)
            };
            if !generator.keys().iter().all(stands_before) {
                return Err(format!("'{name}' takes a key from a field that is not defined before it"));
            }
        }
        Ok(Template { seed: 0, fields: fields.into_iter().collect() })
    }
}

impl Template {
    /// Returns the document of this number.
    pub(super) fn document(&self, number: u64) -> Document {
        let make = |at: usize| self.fields.get(at).map(|(name, _)| (name.clone(), self.generate(at, number)));
        (0..self.fields.len()).filter_map(make).collect()
    }

    /// Returns a field of the document of this number; dots address nested fields.
    pub(super) fn field(&self, path: &str, number: u64) -> Option<Bson> {
        let mut names = path.split('.');
        let first = names.next()?;
        let at = self.fields.iter().position(|(name, _)| name == first)?;
        let mut value = self.generate(at, number);
        for name in names {
            value = value.as_document()?.get(name)?.clone();
        }
        Some(value)
    }

    /// Returns true if the file has no document.
    pub(super) fn is_empty(&self) -> bool {
        self.fields.is_empty()
    }

    /// Returns true if documents have this field.
    pub(super) fn has(&self, path: &str) -> bool {
        self.field(path, 0).is_some()
    }

    /// Returns the value of the field at an index in the document of a number.
    fn generate(&self, at: usize, number: u64) -> Bson {
        let rng = Rng::of(self.seed.wrapping_add(at as u64 + 1), number);
        let key = Some((self, number));
        let mut context = ValueContext { rng, number, key, saved: BTreeMap::new(), database: "" };
        self.fields.get(at).map_or(Bson::Null, |(_, generator)| generator.generate(&mut context))
    }
}
