//! A small reader of documents in the shell's notation, for the tests of this folder.

use base::bson::{Builder, DocumentBuf, ObjectId, Value};

/// Reads `{a: 1, 'b.c': [2.5, "x", null], r: /ab/i, k: MinKey}`: whole numbers are int32 (`5L`
/// int64), others doubles.
pub(super) fn document(text: &str) -> DocumentBuf {
    let mut reader = Reader { rest: text.trim() };
    let mut builder = Builder::new();
    reader.expect('{');
    reader.fields(&mut builder);
    assert!(reader.rest.trim().is_empty(), "left over in {text}: {}", reader.rest);
    builder.finish()
}

struct Reader<'t> {
    rest: &'t str,
}

impl<'t> Reader<'t> {
    fn skip(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn expect(&mut self, c: char) {
        self.skip();
        self.rest = self.rest.strip_prefix(c).unwrap_or_else(|| panic!("{c} expected at {}", self.rest));
    }

    fn take_if(&mut self, c: char) -> bool {
        let found = self.skip() == Some(c);
        if found {
            self.expect(c);
        }
        found
    }

    fn until(&mut self, end: impl Fn(char) -> bool) -> &'t str {
        let at = self.rest.find(end).unwrap_or(self.rest.len());
        let (taken, rest) = self.rest.split_at(at);
        self.rest = rest;
        taken
    }

    fn quoted(&mut self, quote: char) -> &'t str {
        self.expect(quote);
        let text = self.until(|c| c == quote);
        self.rest = &self.rest[1..];
        text
    }

    fn fields(&mut self, builder: &mut Builder) {
        while !self.take_if('}') {
            let name = match self.skip() {
                Some(quote @ ('\'' | '"')) => self.quoted(quote),
                _ => self.until(|c| c == ':' || c.is_whitespace()),
            };
            self.expect(':');
            self.value(Some(name), builder);
            self.take_if(',');
        }
    }

    fn value(&mut self, name: Option<&str>, builder: &mut Builder) {
        let first = self.skip();
        match (first, name) {
            (Some('{'), Some(name)) => drop(builder.begin_document(name)),
            (Some('{'), None) => drop(builder.push_document()),
            (Some('['), Some(name)) => drop(builder.begin_array(name)),
            (Some('['), None) => drop(builder.push_array()),
            (_, Some(name)) => drop(builder.append(name, self.scalar())),
            (_, None) => drop(builder.push(self.scalar())),
        }
        if first == Some('{') {
            self.expect('{');
            self.fields(builder);
            builder.end();
        } else if first == Some('[') {
            self.expect('[');
            while !self.take_if(']') {
                self.value(None, builder);
                self.take_if(',');
            }
            builder.end();
        }
    }

    fn scalar(&mut self) -> Value<'t> {
        match self.skip() {
            Some(quote @ ('\'' | '"')) => Value::String(self.quoted(quote)),
            Some('/') => {
                let pattern = self.quoted('/');
                Value::Regex { pattern, options: self.until(|c| !c.is_ascii_lowercase()) }
            }
            _ => word(self.until(|c| matches!(c, ',' | '}' | ']') || c.is_whitespace())),
        }
    }
}

fn word(word: &str) -> Value<'_> {
    match word {
        "null" => Value::Null,
        "undefined" => Value::Undefined,
        "true" => Value::Boolean(true),
        "false" => Value::Boolean(false),
        "MinKey" => Value::MinKey,
        "MaxKey" => Value::MaxKey,
        "NaN" => Value::Double(f64::NAN),
        "Infinity" => Value::Double(f64::INFINITY),
        "Date" => Value::DateTime(0),
        "Bytes" => Value::Binary { subtype: 0, bytes: &[0b101, 0x80] },
        id if id.len() == 24 => Value::ObjectId(ObjectId::parse(id).unwrap()),
        long if long.ends_with('L') => Value::Int64(long[..long.len() - 1].parse().unwrap()),
        decimal if decimal.ends_with('m') => {
            Value::Decimal128(base::bson::Decimal128::parse(&decimal[..decimal.len() - 1]).unwrap())
        }
        double if double.contains('.') => Value::Double(double.parse().unwrap()),
        number => Value::Int32(number.parse().unwrap_or_else(|_| panic!("value {number:?}"))),
    }
}
