//! Documents of the histories. They have a field for each kind of index, a counter that shows lost
//! updates, and the number of the latest statement that wrote them.

use base::bson::{Builder, Document, DocumentBuf, Value};
use std::collections::BTreeMap;

/// A document in the model.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Doc {
    pub(crate) id: i64,
    /// In a unique index.
    pub(crate) u: i64,
    /// In an index that refuses new duplicates (prepareUnique).
    pub(crate) p: i64,
    /// In an index that is built and dropped, unique or not.
    pub(crate) q: i64,
    /// In a regular index; an array if it has several values.
    pub(crate) k: Vec<i64>,
    /// Toggled between 0 and 1 without any other change.
    pub(crate) t: i64,
    /// Incremented by one.
    pub(crate) n: i64,
    /// Number of the latest statement that wrote the document, except toggles.
    pub(crate) w: i64,
}

/// Documents of a collection by `_id`.
pub(crate) type Docs = BTreeMap<i64, Doc>;

/// Fields for which an index may refuse duplicates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub(crate) enum Field {
    U,
    P,
    Q,
}

impl Field {
    pub(crate) const ALL: [Field; 3] = [Field::U, Field::P, Field::Q];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Field::U => "u",
            Field::P => "p",
            Field::Q => "q",
        }
    }

    pub(crate) fn of(self, doc: &Doc) -> i64 {
        match self {
            Field::U => doc.u,
            Field::P => doc.p,
            Field::Q => doc.q,
        }
    }

    pub(crate) fn set(self, doc: &mut Doc, value: i64) {
        match self {
            Field::U => doc.u = value,
            Field::P => doc.p = value,
            Field::Q => doc.q = value,
        }
    }
}

impl Doc {
    /// Appends the fields except `_id`.
    pub(crate) fn append_fields(&self, out: &mut Builder) {
        out.append(c"u", self.u).append(c"p", self.p).append(c"q", self.q);
        append_k(&self.k, out);
        out.append(c"t", self.t).append(c"n", self.n).append(c"w", self.w);
    }

    pub(crate) fn to_bson(&self) -> DocumentBuf {
        let mut out = Builder::new();
        out.append(c"_id", self.id);
        self.append_fields(&mut out);
        out.finish()
    }

    /// Parses a document; `None` if it is not a document of the model.
    pub(crate) fn from_bson(document: Document<'_>) -> Option<Doc> {
        let int = |name: &str| document.get(name).and_then(|value| value.as_i64());
        let k = match document.get("k")? {
            Value::Array(array) => array.iter().map(|value| value.as_i64()).collect::<Option<Vec<i64>>>()?,
            value => vec![value.as_i64()?],
        };
        Some(Doc {
            id: int("_id")?,
            u: int("u")?,
            p: int("p")?,
            q: int("q")?,
            k,
            t: int("t")?,
            n: int("n")?,
            w: int("w")?,
        })
    }
}

/// Appends `k` as a number, or as an array of several numbers.
pub(crate) fn append_k(k: &[i64], out: &mut Builder) {
    match k {
        [one] => _ = out.append(c"k", *one),
        many => {
            out.begin_array(c"k");
            many.iter().for_each(|value| _ = out.push(*value));
            out.end();
        }
    }
}
