//! Documents of the query language, generated from bytes: mostly well-formed, often nonsense.
//!
//! Random bytes are hardly ever BSON, so the parsers of filters, updates and pipelines would not be
//! reached. Here every byte is a decision: a name from a dictionary, a type, a value.

use base::bson::{Builder, Decimal128, DocumentBuf, FieldName, ObjectId, RegexText, Value};

/// Reads decisions from bytes; all zero at their end.
pub(crate) struct Draw<'a> {
    bytes: &'a [u8],
}

/// Maximum nesting of generated documents.
const DEPTH_MAX: usize = 5;

const FIELDS: [&str; 12] = ["a", "b", "a.b", "a.0", "_id", "", "a.$", "a.$[]", "a.$[i]", "$a", "n", "a..b"];

const TEXTS: [&str; 16] = [
    "",
    "a",
    "$a",
    "$$ROOT",
    "$$NOW",
    "$a.b",
    "^a",
    "(",
    "é",
    "%Y-%m",
    "UTC",
    "date",
    "$$x",
    "a\u{10FFFF}",
    "a\0b",
    "\0",
];

impl<'a> Draw<'a> {
    /// Returns a source of decisions over these bytes.
    pub(crate) fn new(bytes: &'a [u8]) -> Draw<'a> {
        Draw { bytes }
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound.max(1)
    }

    fn byte(&mut self) -> u8 {
        match self.bytes.split_first() {
            Some((first, rest)) => {
                self.bytes = rest;
                *first
            }
            None => 0,
        }
    }

    /// Returns a document whose names are fields or words of the dictionary.
    pub(crate) fn document(&mut self, words: &[&'static str]) -> DocumentBuf {
        let mut out = Builder::new();
        self.fields(words, 0, &mut out);
        out.finish()
    }

    /// Returns an array of documents with one word of the dictionary each, as the field `stages`.
    pub(crate) fn stages(&mut self, stages: &[&'static str], words: &[&'static str]) -> DocumentBuf {
        let mut out = Builder::new();
        out.begin_array(c"stages");
        for _ in 0..1 + self.below(4) {
            out.push_document();
            let stage = stages[self.below(stages.len())];
            self.field(stage, words, 1, &mut out);
            out.end();
        }
        out.end();
        out.finish()
    }

    /// Returns an array like [`stages`](Self::stages), with a document of fields after each word,
    /// as required by stages and update operators that create documents.
    pub(crate) fn changes(&mut self, operators: &[&'static str], words: &[&'static str]) -> DocumentBuf {
        let mut out = Builder::new();
        out.begin_array(c"stages");
        for _ in 0..1 + self.below(3) {
            out.push_document();
            self.change(operators, words, &mut out);
            out.end();
        }
        out.end();
        out.finish()
    }

    /// Appends an operator with a document of fields.
    pub(crate) fn change(&mut self, operators: &[&'static str], words: &[&'static str], out: &mut Builder) {
        out.begin_document(FieldName::literal(operators[self.below(operators.len())]));
        for _ in 0..1 + self.below(3) {
            let name = FIELDS[self.below(FIELDS.len())];
            self.field(name, words, 1, out);
        }
        out.end();
    }

    fn fields(&mut self, words: &[&'static str], depth: usize, out: &mut Builder) {
        for _ in 0..self.below(4) {
            let name = match self.below(2) {
                0 => FIELDS[self.below(FIELDS.len())],
                _ => words.get(self.word(words.len())).copied().unwrap_or("a"),
            };
            self.field(name, words, depth, out);
        }
    }

    fn word(&mut self, count: usize) -> usize {
        (usize::from(self.byte()) << 8 | usize::from(self.byte())) % count.max(1)
    }

    fn field(&mut self, name: &'static str, words: &[&'static str], depth: usize, out: &mut Builder) {
        let name = FieldName::literal(name);
        match self.below(8) {
            0..=2 if depth < DEPTH_MAX => {
                out.begin_document(name);
                self.fields(words, depth + 1, out);
                out.end();
            }
            3 | 4 if depth < DEPTH_MAX => {
                out.begin_array(name);
                for _ in 0..self.below(4) {
                    self.element(words, depth + 1, out);
                }
                out.end();
            }
            _ => {
                out.append(name, self.scalar());
            }
        }
    }

    fn element(&mut self, words: &[&'static str], depth: usize, out: &mut Builder) {
        if self.below(3) == 0 && depth < DEPTH_MAX {
            out.push_document();
            self.fields(words, depth + 1, out);
            out.end();
        } else {
            out.push(self.scalar());
        }
    }

    fn scalar(&mut self) -> Value<'static> {
        let text = TEXTS[self.below(TEXTS.len())];
        match self.below(20) {
            0 => Value::Null,
            1 => Value::Boolean(true),
            2 => Value::Int64(i64::MAX),
            3 => Value::Int64(i64::MIN),
            4 => Value::Double(f64::NAN),
            5 => Value::Double(-0.5),
            6 => Value::Double(1e300),
            7 => Value::Decimal128(Decimal128::parse("1E+6000").unwrap_or(Decimal128::from_i64(1))),
            8 => Value::DateTime(i64::from(self.byte()) << 40),
            9 => Value::DateTime(i64::MIN),
            10 => Value::ObjectId(ObjectId([7; 12])),
            11 => Value::Regex {
                pattern: RegexText::new(text).unwrap_or_default(),
                options: RegexText::literal("i"),
            },
            12 => Value::Binary { subtype: 4, bytes: &[1; 16] },
            13 => Value::Timestamp(1 << 33),
            14 => Value::MinKey,
            15 => Value::Undefined,
            16 | 17 => Value::String(text),
            _ => Value::Int32(i32::from(self.byte()) - 3),
        }
    }
}
