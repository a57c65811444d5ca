//! The documents of the histories: few of them, with a field for each kind of index, a counter that shows lost
//! updates, and the number of the statement that wrote them last.

use base::bson::{Builder, Document, DocumentBuf, Value};
use std::collections::BTreeMap;

/// A document as the model has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Doc {
    pub(crate) id: i64,
    /// In a unique index.
    pub(crate) u: i64,
    /// In an index that keeps writes from adding duplicates (prepareUnique).
    pub(crate) p: i64,
    /// In an index that is built and dropped, unique or not.
    pub(crate) q: i64,
    /// In an ordinary index, an array where there is more than one.
    pub(crate) k: Vec<i64>,
    /// Toggled between 0 and 1, leaving everything else as it was.
    pub(crate) t: i64,
    /// Grows by one with each increment.
    pub(crate) n: i64,
    /// The number of the statement that wrote the document, but for those that toggle.
    pub(crate) w: i64,
}

/// The documents of a collection by `_id`.
pub(crate) type Docs = BTreeMap<i64, Doc>;

/// The fields that an index may forbid two documents to share.
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
    /// Appends the fields but `_id`.
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

    /// Reads a document; `None` where it isn't one of the model's.
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

/// Appends `k` as a number or, where there are several, as an array.
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
