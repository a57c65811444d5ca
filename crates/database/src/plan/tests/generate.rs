//! Random documents, indexes, filters and sorts. Few names and few values, so that they match
//! often.

use base::bson::{Builder, Decimal128, DocumentBuf, FieldName, ObjectId, RegexText, Value};

/// A small random generator. A seed always gives the same case.
pub(super) struct Random(base::random::Random);

const COMMON: [&str; 10] = ["a", "a.x", "a.y", "b", "c", "b.x", "a.0", "a.x.0", "a.0.x", "a.x.y"];

impl Random {
    pub(super) fn new(seed: u64) -> Random {
        Random(base::random::Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)))
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.0.below(limit)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn path(&mut self) -> &'static str {
        // Some names are much more frequent, so that filters, sorts and indexes share them.
        let limit = [2, 2, 4, 5, COMMON.len() as u64][self.below(5) as usize];
        COMMON[self.below(limit) as usize]
    }

    /// Passes a random scalar to `put`.
    fn scalar<R>(&mut self, put: impl FnOnce(Value<'_>) -> R) -> R {
        let small = self.below(4) as i32;
        // Mostly small numbers: an index then has many values of one type.
        let kind = if self.chance(50) { 0 } else { self.below(27) };
        put(match kind {
            0..=8 => Value::Int32(small),
            9 => Value::Int64(i64::from(small)),
            10 => Value::Double(f64::from(small)),
            11 => Value::Double(f64::from(small) + 0.5),
            12 => Value::Decimal128(decimal(small)),
            13 => Value::Double([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -0.0][small as usize]),
            14 => Value::String(["", "x", "xy", "y"][small as usize]),
            15 => Value::String(["X", "Xy", "\u{e9}", "e"][small as usize]),
            16 => Value::Boolean(small > 1),
            17 => Value::DateTime(i64::from(small)),
            18 => Value::Regex {
                pattern: RegexText::literal("^x"),
                options: RegexText::literal(["", "", "i", "im"][small as usize]),
            },
            19 => Value::ObjectId(ObjectId([small as u8; 12])),
            20 => [Value::MinKey, Value::MaxKey, Value::Undefined, Value::Symbol("x")][small as usize],
            21 => Value::Timestamp(small as u64),
            22..=24 => [Value::MinKey, Value::MaxKey][small as usize % 2],
            _ => Value::Null,
        })
    }

    fn field(&mut self, out: &mut Builder, name: &str, depth: u32, arrays: u64) {
        match self.below(100) {
            roll if roll < arrays && depth > 0 => {
                out.begin_array(FieldName::trusted(name));
                for _ in 0..self.below(4) {
                    self.element(out, depth - 1, arrays);
                }
                out.end();
            }
            roll if roll < arrays + 25 && depth > 0 => {
                out.begin_document(FieldName::trusted(name));
                self.fields(out, &["x", "y"], depth - 1, arrays);
                out.end();
            }
            _ => self.scalar(|value| {
                out.append(FieldName::trusted(name), value);
            }),
        }
    }

    fn element(&mut self, out: &mut Builder, depth: u32, arrays: u64) {
        match self.below(10) {
            0..=3 if depth > 0 => {
                out.push_document();
                self.fields(out, &["x", "y"], depth - 1, arrays);
                out.end();
            }
            4 if depth > 0 => {
                out.push_array();
                for _ in 0..self.below(3) {
                    self.element(out, depth - 1, arrays);
                }
                out.end();
            }
            _ => self.scalar(|value| {
                out.push(value);
            }),
        }
    }

    fn fields(&mut self, out: &mut Builder, names: &[&str], depth: u32, arrays: u64) {
        for name in names {
            if self.chance(75) {
                self.field(out, name, depth, arrays);
            }
        }
    }

    /// Returns a document; `arrays` is the percentage of array fields.
    pub(super) fn document(&mut self, id: i32, arrays: u64) -> DocumentBuf {
        let mut out = Builder::new();
        out.append(c"_id", id);
        self.fields(&mut out, &["a", "b", "c"], 3, arrays);
        if self.chance(4) {
            // A field name that no path selects.
            self.field(&mut out, "a.x", 1, arrays);
        }
        if self.chance(50) {
            out.begin_document(c"g");
            self.point(&mut out, "coordinates");
            out.append(c"type", "Point").end();
        }
        out.finish()
    }

    /// Appends one of a few locations.
    fn point(&mut self, out: &mut Builder, name: &str) {
        out.begin_array(FieldName::trusted(name)).push(self.below(3) as f64).push(self.below(3) as f64).end();
    }

    /// Returns an index specification.
    pub(super) fn index(&mut self, number: usize) -> DocumentBuf {
        let mut out = Builder::new();
        out.append(c"name", format!("i{number}").as_str());
        if self.chance(6) {
            out.append(c"hidden", true);
        }
        if self.chance(25) {
            self.wildcard(&mut out);
            return out.finish();
        }
        if self.chance(10) {
            self.of_text_or_places(&mut out);
            return out.finish();
        }
        out.begin_document(c"key");
        let parts = 1 + self.below(3);
        let hashed = if self.chance(15) { self.below(parts) } else { parts };
        let mut used: Vec<&str> = Vec::new();
        for part in 0..parts {
            let path = self.path();
            if used.contains(&path) {
                continue;
            }
            used.push(path);
            match self.chance(60) {
                _ if part == hashed => out.append(FieldName::trusted(path), "hashed"),
                true => out.append(FieldName::trusted(path), 1i32),
                false => out.append(FieldName::trusted(path), -1i32),
            };
        }
        out.end();
        match self.below(8) {
            0 | 3 => {
                out.append(c"sparse", true);
            }
            1 => {
                out.begin_document(c"partialFilterExpression");
                self.simple(&mut out);
                out.end();
            }
            2 if hashed == parts => {
                out.append(c"unique", true);
            }
            4 if used.len() == 1 && hashed == parts => {
                // Nothing expires while the clock is at zero.
                out.append(c"expireAfterSeconds", 60i32);
            }
            _ => {}
        }
        if let Some(collation) = self.collation() {
            out.append(c"collation", &collation);
        }
        out.finish()
    }

    /// Appends the key pattern of a text or geospatial index with other fields.
    fn of_text_or_places(&mut self, out: &mut Builder) {
        let (field, kind) = if self.chance(70) { ("g", "2dsphere") } else { ("c", "text") };
        let (before, after) = (self.chance(40), self.chance(30));
        out.begin_document(c"key");
        if before {
            out.append(FieldName::trusted(["a", "b"][self.below(2) as usize]), 1i32);
        }
        out.append(FieldName::trusted(field), kind);
        if after {
            out.append(c"a.x", 1i32);
        }
        out.end();
    }

    /// Appends the key pattern and the options of a wildcard index.
    fn wildcard(&mut self, out: &mut Builder) {
        let below = ["$**", "$**", "a.$**", "a.x.$**", "b.$**"][self.below(5) as usize];
        let other = ["a", "b", "c", "a.y"][self.below(4) as usize];
        let (before, after) = (self.chance(20), self.chance(20));
        let way = |descending| if descending { -1i32 } else { 1 };
        out.begin_document(c"key");
        if before {
            out.append(FieldName::trusted(other), way(self.chance(30)));
        }
        out.append(FieldName::trusted(below), way(self.chance(30)));
        if after {
            let other = if before { "b.x" } else { other };
            out.append(FieldName::trusted(other), way(self.chance(30)));
        }
        out.end();
        match below == "$**" && (before || after || self.chance(40)) {
            true if self.chance(50) => {
                out.begin_document(c"wildcardProjection").append(FieldName::trusted(self.path()), 1i32).end();
            }
            true => {
                out.begin_document(c"wildcardProjection").append(FieldName::trusted(other), 0i32);
                if before && after {
                    out.append(c"b.x", 0i32);
                }
                out.end();
            }
            false => {}
        }
        if self.chance(15) {
            out.begin_document(c"partialFilterExpression");
            self.simple(out);
            out.end();
        }
        if let Some(collation) = self.collation() {
            out.append(c"collation", &collation);
        }
    }

    /// Returns one of a few collations, so that index and query often have equal collations.
    pub(super) fn collation(&mut self) -> Option<DocumentBuf> {
        let strength = [1i32, 3].get(self.below(5) as usize)?;
        let mut out = Builder::new();
        out.append(c"locale", "en").append(c"strength", *strength);
        Some(out.finish())
    }

    /// Appends a filter that partial indexes allow.
    fn simple(&mut self, out: &mut Builder) {
        let path = self.path();
        out.begin_document(FieldName::trusted(path));
        if self.chance(40) {
            out.append(c"$exists", true);
        } else {
            let op = ["$gt", "$gte", "$lt", "$lte", "$eq"][self.below(5) as usize];
            match self.chance(70) {
                true => out.append(FieldName::trusted(op), self.below(4) as i32),
                false => out.append(FieldName::trusted(op), ["x", "X", "e"][self.below(3) as usize]),
            };
        }
        out.end();
    }

    /// Returns a filter.
    pub(super) fn filter(&mut self) -> DocumentBuf {
        let mut out = Builder::new();
        self.clauses(&mut out, 2, false);
        out.finish()
    }

    fn clauses(&mut self, out: &mut Builder, depth: u32, relative: bool) {
        let count = if depth == 2 { self.below(4) } else { 1 + self.below(2) };
        for _ in 0..count {
            match self.below(12) {
                0 | 1 if depth > 0 => self.group(out, "$or", depth, relative),
                2 if depth > 0 => self.group(out, "$and", depth, relative),
                3 if depth > 0 => self.group(out, "$nor", depth, relative),
                4 if !relative && depth == 2 => self.expr(out),
                5 if !relative && self.chance(20) => self.places(out),
                6 if !relative && self.chance(30) => {
                    let names = ["a", "b", "a.x", "a\0b"];
                    out.begin_document(c"$jsonSchema").begin_array(c"required");
                    out.push(names[self.below(4) as usize]).end().end();
                }
                _ => {
                    let path = if relative { ["x", "y", "0"][self.below(3) as usize] } else { self.path() };
                    self.condition(out, path, depth);
                }
            }
        }
    }

    fn group(&mut self, out: &mut Builder, name: &str, depth: u32, relative: bool) {
        out.begin_array(FieldName::trusted(name));
        for _ in 0..1 + self.below(3) {
            out.push_document();
            self.clauses(out, depth - 1, relative);
            out.end();
        }
        out.end();
    }

    fn places(&mut self, out: &mut Builder) {
        out.begin_document(c"g");
        match self.below(3) {
            0 => {
                out.begin_document(c"$geoIntersects").begin_document(c"$geometry").append(c"type", "Point");
                self.point(out, "coordinates");
                out.end().end();
            }
            1 => {
                out.append(c"$exists", self.chance(50));
            }
            _ => {
                out.begin_document(c"$geoWithin").begin_array(c"$centerSphere");
                out.push_array().push(self.below(3) as f64).push(self.below(3) as f64).end();
                out.push([0.01, 0.02, 0.03][self.below(3) as usize]).end().end();
            }
        }
        out.end();
    }

    fn expr(&mut self, out: &mut Builder) {
        let op = ["$eq", "$gt", "$gte", "$lt", "$lte"][self.below(5) as usize];
        let path = format!("${}", ["a", "b", "c", "a.x"][self.below(4) as usize]);
        out.begin_document(c"$expr").begin_array(FieldName::trusted(op));
        let turned = self.chance(30);
        if !turned {
            out.push(path.as_str());
        }
        out.push_document();
        self.scalar(|value| {
            out.append(c"$literal", value);
        });
        out.end();
        if turned {
            out.push(path.as_str());
        }
        out.end().end();
    }

    fn condition(&mut self, out: &mut Builder, path: &str, depth: u32) {
        if self.chance(25) {
            return self.operand(out, path);
        }
        out.begin_document(FieldName::trusted(path));
        self.operators(out, depth);
        out.end();
    }

    fn operators(&mut self, out: &mut Builder, depth: u32) {
        for _ in 0..1 + self.below(2) {
            match self.below(18) {
                0..=7 => {
                    let op = ["$gt", "$gte", "$lt", "$lte", "$eq"][self.below(5) as usize];
                    self.comparable(out, op);
                }
                8 => self.comparable(out, "$ne"),
                9 | 10 => {
                    out.begin_array(FieldName::trusted(if self.chance(70) { "$in" } else { "$nin" }));
                    for _ in 0..self.below(4) {
                        self.scalar(|value| {
                            out.push(if value.kind() == base::bson::Type::Undefined {
                                Value::Null
                            } else {
                                value
                            });
                        });
                    }
                    out.end();
                }
                11 => {
                    out.append(c"$exists", self.chance(50));
                }
                12 => {
                    out.append(
                        c"$type",
                        ["number", "string", "array", "null", "object"][self.below(5) as usize],
                    );
                }
                13 => {
                    out.append(c"$regex", ["^x", "^xy?", "x", "^x$"][self.below(4) as usize]);
                }
                14 => {
                    out.begin_array(c"$mod").push(2i32).push(self.below(2) as i32).end();
                }
                15 if depth > 0 => {
                    out.begin_document(c"$elemMatch");
                    if self.chance(50) {
                        self.operators(out, depth - 1);
                    } else {
                        self.clauses(out, depth - 1, true);
                    }
                    out.end();
                }
                16 if depth > 0 => {
                    out.begin_document(c"$not");
                    self.operators(out, depth - 1);
                    out.end();
                }
                _ => {
                    out.append(c"$size", self.below(3) as i32);
                }
            }
        }
    }

    fn comparable(&mut self, out: &mut Builder, op: &str) {
        match self.below(10) {
            0 => {
                out.begin_array(FieldName::trusted(op));
                for _ in 0..self.below(3) {
                    self.element(out, 1, 20);
                }
                out.end();
            }
            1 => {
                out.begin_document(FieldName::trusted(op));
                self.fields(out, &["x"], 0, 0);
                out.end();
            }
            _ => self.scalar(|value| {
                let refused = matches!(value, Value::Undefined) || matches!(value, Value::Regex { .. });
                out.append(FieldName::trusted(op), if refused { Value::Int32(1) } else { value });
            }),
        }
    }

    fn operand(&mut self, out: &mut Builder, path: &str) {
        match self.below(8) {
            0 => {
                out.begin_array(FieldName::trusted(path));
                for _ in 0..self.below(3) {
                    self.element(out, 1, 20);
                }
                out.end();
            }
            _ => self.scalar(|value| {
                out.append(
                    FieldName::trusted(path),
                    if matches!(value, Value::Undefined) { Value::Null } else { value },
                );
            }),
        }
    }

    /// Returns a sort pattern, often empty.
    pub(super) fn sort(&mut self) -> DocumentBuf {
        let mut out = Builder::new();
        let mut used: Vec<&str> = Vec::new();
        for _ in 0..self.below(4) {
            let path = self.path();
            if !used.contains(&path) {
                used.push(path);
                out.append(FieldName::trusted(path), if self.chance(60) { 1i32 } else { -1 });
            }
        }
        out.finish()
    }
}

fn decimal(value: i32) -> Decimal128 {
    Decimal128::from_i64(i64::from(value))
}
