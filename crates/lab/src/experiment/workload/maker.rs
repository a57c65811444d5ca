//! Makers: what a workload says of a value, and the value that a document or an operation gets.
//!
//! A maker depends on the seed, on where it stands and on the number of the document (or of the
//! operation) alone. So any document's field can be made again, which is how an operation knows the
//! value of a field of the document that it looks for.

use super::fields::{Fields, Item};
use crate::error::Result;
use crate::load::keys::{Keys, Zipf};
use crate::load::random::Dice;
use mongodb::bson::oid::ObjectId;
use mongodb::bson::spec::BinarySubtype;
use mongodb::bson::{Binary, Bson, DateTime, Document};
use std::collections::BTreeMap;
use toml::de::DeValue;

/// How a value comes about.
#[derive(Clone, Debug)]
pub(super) enum Maker {
    /// The same each time.
    Constant(Bson),
    /// start + step × number.
    Sequence {
        start: i64,
        step: i64,
        /// Begins again at 0 from here on.
        modulo: i64,
    },
    Integer {
        min: i64,
        max: i64,
    },
    Float {
        min: f64,
        max: f64,
    },
    /// Below a number, by Zipf's law.
    Zipf {
        keys: Keys,
        below: u64,
    },
    Words {
        min: u64,
        max: u64,
    },
    /// One of these, by weight.
    Choice {
        of: Vec<(f64, Maker)>,
        sum: f64,
    },
    Boolean {
        share: f64,
    },
    /// Milliseconds since 1970.
    Date {
        from: i64,
        to: i64,
    },
    ObjectId,
    Binary {
        bytes: u64,
    },
    Array {
        of: Box<Maker>,
        min: u64,
        max: u64,
    },
    Nested(Vec<(String, Maker)>),
    /// A date: `from` + `step` × number, milliseconds.
    Clock {
        from: i64,
        step: i64,
    },
    /// The field of the document that the operation is about; in a document, a field before this one.
    Key {
        field: String,
    },
    /// What an operation has kept under a name, or a field of it.
    Saved {
        name: String,
        field: Option<String>,
    },
    /// One of so many words, none of which is part of another.
    Word {
        below: u64,
    },
    /// A document whose field names are made, too.
    Object(Vec<(Maker, Maker)>),
    /// A string of all these, the values of arrays with spaces between them.
    Text(Vec<Maker>),
    /// The name of the lab's database.
    Database,
}

/// What a value may depend on.
pub(super) struct Scene<'a> {
    pub(super) dice: Dice,
    /// The number of the document, or of the operation.
    pub(super) number: u64,
    /// The document that an operation is about, or whose fields are made.
    pub(super) key: Option<(&'a Template, u64)>,
    /// What the operation has kept.
    pub(super) saved: BTreeMap<String, Bson>,
    pub(super) database: &'a str,
}

/// Fields of documents, each with a stream of random numbers of its own.
#[derive(Clone, Debug)]
pub(super) struct Template {
    seed: u64,
    fields: Vec<(String, Maker)>,
}

/// Deeper nesting than this is refused.
const DEPTH: usize = 20;

impl Maker {
    /// Reads a value: tables with `gen` make something, all others stand for themselves.
    ///
    /// # Errors
    /// Wrong or unknown fields.
    pub(super) fn read(item: &Item) -> Result<Maker> {
        Maker::read_below(item, DEPTH)
    }

    fn read_below(item: &Item, depth: usize) -> Result<Maker> {
        let Some(depth) = depth.checked_sub(1) else { return Err(item.wrong("is nested too deeply")) };
        Ok(match item.value() {
            DeValue::String(_) => Maker::Constant(Bson::String(item.string()?)),
            DeValue::Integer(_) => Maker::Constant(small(item.integer()?)),
            DeValue::Float(_) => Maker::Constant(Bson::Double(item.number()?)),
            DeValue::Boolean(boolean) => Maker::Constant(Bson::Boolean(*boolean)),
            DeValue::Datetime(_) => Maker::Constant(Bson::DateTime(DateTime::from_millis(item.date()?))),
            DeValue::Array(_) => {
                let makers: Result<Vec<Maker>> =
                    item.items()?.iter().map(|each| Maker::read_below(each, depth)).collect();
                array_of(makers?)
            }
            DeValue::Table(_) => {
                let fields = item.fields()?;
                if fields.has("gen") {
                    return generator(fields, depth);
                }
                let fields = fields.all().map(|(name, each)| Ok((name, Maker::read_below(&each, depth)?)));
                Maker::Nested(fields.collect::<Result<_>>()?)
            }
        })
    }

    /// The fields of an operation's document that are asked for.
    pub(super) fn keys(&self) -> Vec<&str> {
        match self {
            Maker::Key { field } => vec![field],
            Maker::Array { of, .. } => of.keys(),
            Maker::Text(of) => of.iter().flat_map(Maker::keys).collect(),
            Maker::Object(of) => {
                of.iter().flat_map(|(name, value)| [name.keys(), value.keys()].concat()).collect()
            }
            Maker::Choice { of, .. } => of.iter().flat_map(|(_, each)| each.keys()).collect(),
            Maker::Nested(fields) => fields.iter().flat_map(|(_, each)| each.keys()).collect(),
            _ => Vec::new(),
        }
    }

    /// The value.
    pub(super) fn make(&self, scene: &mut Scene) -> Bson {
        let dice = &mut scene.dice;
        match self {
            Maker::Constant(value) => value.clone(),
            Maker::Sequence { start, step, modulo } => {
                Bson::Int64(start.wrapping_add(step.wrapping_mul(scene.number as i64)).wrapping_rem(*modulo))
            }
            Maker::Clock { from, step } => {
                // The numbers of a warm-up are far away.
                let number = (scene.number & 0xFFFF_FFFF) as i64;
                Bson::DateTime(DateTime::from_millis(from.saturating_add(step.saturating_mul(number))))
            }
            Maker::Integer { min, max } => Bson::Int64(min.wrapping_add(dice.below(span(*min, *max)) as i64)),
            Maker::Float { min, max } => Bson::Double(min + (max - min) * dice.share()),
            Maker::Zipf { keys, below } => Bson::Int64(keys.pick(dice, *below) as i64),
            Maker::Words { min, max } => {
                let length = min + dice.below(max - min + 1);
                Bson::String(dice.words(length as usize))
            }
            Maker::Choice { of, sum } => {
                let drawn = dice.share() * sum;
                chosen(of, drawn).map_or(Bson::Null, |maker| maker.make(scene))
            }
            Maker::Boolean { share } => Bson::Boolean(dice.share() < *share),
            Maker::Date { from, to } => {
                Bson::DateTime(DateTime::from_millis(from + dice.below(span(*from, *to)) as i64))
            }
            Maker::ObjectId => Bson::ObjectId(object_id(scene)),
            Maker::Binary { bytes } => {
                Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes: binary(dice, *bytes) })
            }
            Maker::Array { of, min, max } => {
                let length = min + dice.below(max - min + 1);
                Bson::Array((0..length).map(|_| of.make(scene)).collect())
            }
            Maker::Nested(fields) if is_array(fields) => {
                Bson::Array(fields.iter().map(|(_, each)| each.make(scene)).collect())
            }
            Maker::Nested(fields) => {
                Bson::Document(fields.iter().map(|(name, each)| (name.clone(), each.make(scene))).collect())
            }
            Maker::Key { field } => {
                scene.key.and_then(|(template, number)| template.field(field, number)).unwrap_or(Bson::Null)
            }
            Maker::Saved { name, field } => {
                let saved = scene.saved.get(name);
                let value = match field {
                    Some(field) => saved.and_then(Bson::as_document).and_then(|document| document.get(field)),
                    None => saved,
                };
                value.cloned().unwrap_or(Bson::Null)
            }
            // Letters that the number decides.
            Maker::Word { below } => Bson::String(format!("w{}", Dice::of(1, dice.below(*below)).letters(7))),
            Maker::Object(fields) => {
                let field = |(name, value): &(Maker, Maker)| (plain(&name.make(scene)), value.make(scene));
                Bson::Document(fields.iter().map(field).collect())
            }
            Maker::Text(of) => Bson::String(of.iter().map(|each| plain(&each.make(scene))).collect()),
            Maker::Database => Bson::String(scene.database.to_string()),
        }
    }
}

/// A number as drivers send it: the small ones in 32 bits.
fn small(number: i64) -> Bson {
    i32::try_from(number).map_or(Bson::Int64(number), Bson::Int32)
}

/// Arrays whose elements are makers are kept as fields without names, which no table has.
fn array_of(makers: Vec<Maker>) -> Maker {
    if makers.is_empty() {
        return Maker::Constant(Bson::Array(Vec::new()));
    }
    Maker::Nested(makers.into_iter().map(|maker| (ELEMENT.to_string(), maker)).collect())
}

const ELEMENT: &str = "\0";

fn is_array(fields: &[(String, Maker)]) -> bool {
    fields.first().is_some_and(|(name, _)| name == ELEMENT)
}

/// How many integers there are from one to another, both included; 2^64 as the largest number.
fn span(min: i64, max: i64) -> u64 {
    max.wrapping_sub(min).cast_unsigned().saturating_add(1)
}

fn chosen(of: &[(f64, Maker)], mut drawn: f64) -> Option<&Maker> {
    for (weight, maker) in of {
        drawn -= weight;
        if drawn < 0.0 {
            return Some(maker);
        }
    }
    of.last().map(|(_, maker)| maker)
}

/// Four bytes of time that grow with the number, as real ones do, and eight drawn.
fn object_id(scene: &mut Scene) -> ObjectId {
    const BEGIN: u64 = 1_704_067_200;
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&((BEGIN + scene.number / 100) as u32).to_be_bytes());
    bytes[4..].copy_from_slice(&scene.dice.draw().to_be_bytes());
    ObjectId::from_bytes(bytes)
}

fn binary(dice: &mut Dice, bytes: u64) -> Vec<u8> {
    let mut binary: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| dice.draw().to_le_bytes()).collect();
    binary.truncate(bytes as usize);
    binary
}

/// A value within a string: without quotes.
fn plain(value: &Bson) -> String {
    match value {
        Bson::String(text) => text.clone(),
        Bson::Int64(number) => number.to_string(),
        Bson::Int32(number) => number.to_string(),
        Bson::Array(values) => values.iter().map(plain).collect::<Vec<_>>().join(" "),
        other => other.to_string(),
    }
}

/// The largest text or binary of a workload, and the longest array.
const BYTES_MAX: u64 = 15 << 20;
const LENGTH_MAX: u64 = 100_000;

/// A table with `gen`.
fn generator(mut fields: Fields, depth: usize) -> Result<Maker> {
    let kind = fields.need("gen")?;
    let prefix = fields.take("prefix").map(|prefix| prefix.string()).transpose()?;
    let maker = match kind.string()?.as_str() {
        "sequence" => Maker::Sequence {
            start: fields.take("start").map_or(Ok(0), |start| start.integer())?,
            step: fields.take("step").map_or(Ok(1), |step| step.integer())?,
            modulo: fields.take("modulo").map_or(Ok(i64::MAX), |modulo| Ok(modulo.at_least(1)? as i64))?,
        },
        "int" => {
            let (min, max) = (fields.need("min")?.integer()?, fields.need("max")?.integer()?);
            in_order(&fields, min, max)?;
            Maker::Integer { min, max }
        }
        "float" => {
            let (min, max) = (fields.need("min")?.number()?, fields.need("max")?.number()?);
            in_order(&fields, min, max)?;
            Maker::Float { min, max }
        }
        "zipf" => {
            let below = fields.need("below")?.at_least(1)?;
            Maker::Zipf { keys: Keys::Zipfian(Zipf::new(below, theta(&mut fields)?)), below }
        }
        "words" => {
            let (min, max) = lengths(&mut fields, "bytes", BYTES_MAX)?;
            Maker::Words { min, max }
        }
        "choice" => choice(&mut fields, depth)?,
        "bool" => Maker::Boolean { share: fields.take("share").map_or(Ok(0.5), |share| share.share(1.0))? },
        "date" => {
            let (from, to) = (fields.need("from")?.date()?, fields.need("to")?.date()?);
            in_order(&fields, from, to)?;
            Maker::Date { from, to }
        }
        "clock" => Maker::Clock {
            from: fields.need("from")?.date()?,
            step: (fields.need("seconds")?.number()? * 1000.0) as i64,
        },
        "saved" => Maker::Saved {
            name: fields.need("name")?.string()?,
            field: fields.take("field").map(|field| field.string()).transpose()?,
        },
        "word" => Maker::Word { below: fields.need("below")?.at_least(1)? },
        "text" => Maker::Text(several(&fields.need("of")?, depth)?),
        "object" => {
            let pair = |pair: &Item| match several(pair, depth)?.as_slice() {
                [name, value] => Ok((name.clone(), value.clone())),
                _ => Err(pair.wrong("must be a name and a value")),
            };
            Maker::Object(fields.need("of")?.items()?.iter().map(pair).collect::<Result<_>>()?)
        }
        "database" => Maker::Database,
        "objectid" => Maker::ObjectId,
        "binary" => Maker::Binary { bytes: lengths(&mut fields, "bytes", BYTES_MAX)?.0 },
        "array" => {
            let of = Box::new(Maker::read_below(&fields.need("of")?, depth)?);
            let (min, max) = lengths(&mut fields, "length", LENGTH_MAX)?;
            Maker::Array { of, min, max }
        }
        "key" => {
            Maker::Key { field: fields.take("field").map_or(Ok("_id".to_string()), |field| field.string())? }
        }
        other => {
            let known = "sequence, int, float, zipf, words, word, text, choice, bool, date, clock, objectid, binary, \
                         array, object, key, saved, database";
            return Err(kind.wrong(format!("'{other}' is no generator; there are {known}")));
        }
    };
    fields.end()?;
    Ok(match prefix {
        Some(prefix) => Maker::Text(vec![Maker::Constant(Bson::String(prefix)), maker]),
        None => maker,
    })
}

fn several(item: &Item, depth: usize) -> Result<Vec<Maker>> {
    item.items()?.iter().map(|each| Maker::read_below(each, depth)).collect()
}

fn in_order<T: PartialOrd>(fields: &Fields, low: T, high: T) -> Result<()> {
    if low <= high { Ok(()) } else { Err(fields.wrong("the lower limit is above the upper one")) }
}

/// Either one length, or `min` and `max`.
fn lengths(fields: &mut Fields, name: &'static str, most: u64) -> Result<(u64, u64)> {
    let (min, max) = match fields.take(name) {
        Some(length) => (length.at_least(0)?, length.at_least(0)?),
        None if fields.has("min") => (fields.need("min")?.at_least(0)?, fields.need("max")?.at_least(0)?),
        None => return Err(fields.wrong(format!("'{name}', or 'min' and 'max', is missing"))),
    };
    in_order(fields, min, max)?;
    if max > most { Err(fields.wrong(format!("at most {most} is possible"))) } else { Ok((min, max)) }
}

/// The skew of Zipf's law.
pub(super) fn theta(fields: &mut Fields) -> Result<f64> {
    fields.take("theta").map_or(Ok(Zipf::THETA), |theta| theta.share(0.999))
}

fn choice(fields: &mut Fields, depth: usize) -> Result<Maker> {
    let of = fields.need("of")?;
    let makers = several(&of, depth)?;
    let weights = match fields.take("weights") {
        Some(weights) => {
            weights.items()?.iter().map(|each| each.share(f64::MAX)).collect::<Result<Vec<f64>>>()?
        }
        None => vec![1.0; makers.len()],
    };
    if makers.is_empty() || weights.len() != makers.len() {
        return Err(of.wrong("needs one value at least, and as many weights as values"));
    }
    Ok(Maker::Choice { sum: weights.iter().sum(), of: weights.into_iter().zip(makers).collect() })
}

impl Template {
    /// Documents of these fields; without `_id` among them, they are numbered.
    pub(super) fn new(seed: u64, mut fields: Vec<(String, Maker)>) -> Template {
        if !fields.iter().any(|(name, _)| name == "_id") {
            fields.insert(0, ("_id".to_string(), Maker::Sequence { start: 0, step: 1, modulo: i64::MAX }));
        }
        Template { seed, fields }
    }

    /// The document of this number.
    pub(super) fn document(&self, number: u64) -> Document {
        let make = |at: usize| self.fields.get(at).map(|(name, _)| (name.clone(), self.make(at, number)));
        (0..self.fields.len()).filter_map(make).collect()
    }

    /// A field of the document of this number; dots lead into nested ones.
    pub(super) fn field(&self, path: &str, number: u64) -> Option<Bson> {
        let mut names = path.split('.');
        let first = names.next()?;
        let at = self.fields.iter().position(|(name, _)| name == first)?;
        let mut value = self.make(at, number);
        for name in names {
            value = value.as_document()?.get(name)?.clone();
        }
        Some(value)
    }

    /// A field that takes a key from one that doesn't stand before it.
    pub(super) fn misplaced(&self) -> Option<&str> {
        let known = |at: usize, key: &str| {
            let name = key.split('.').next().unwrap_or(key);
            self.fields.iter().take(at).any(|(field, _)| field == name)
        };
        let mut fields = self.fields.iter().enumerate();
        let found = fields.find(|(at, (_, maker))| maker.keys().iter().any(|key| !known(*at, key)));
        found.map(|(_, (name, _))| name.as_str())
    }

    /// Whether documents have this field.
    pub(super) fn has(&self, path: &str) -> bool {
        self.field(path, 0).is_some()
    }

    fn make(&self, at: usize, number: u64) -> Bson {
        let dice = Dice::of(self.seed.wrapping_add(at as u64 + 1), number);
        let key = Some((self, number));
        let mut scene = Scene { dice, number, key, saved: BTreeMap::new(), database: "" };
        self.fields.get(at).map_or(Bson::Null, |(_, maker)| maker.make(&mut scene))
    }
}
