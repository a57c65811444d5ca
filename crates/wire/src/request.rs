//! A command as it arrived: its document, and its document sequences.
//!
//! Both borrow from the frame. A sequence is never copied into the document. [`Documents`] reads a list of documents
//! either from an array in the body or from a sequence.

use base::bson::{Array, Document, Type, Value};
use base::{Error, Result, bail};

/// One request: the command and the database it is for.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The command's name: the name of the body's first field, or empty.
    pub name: &'a str,
    /// The command's document.
    pub body: Document<'a>,
    /// The database named by `$db` (by the namespace, in a legacy message).
    pub database: &'a str,
    /// The document sequences of the message.
    pub sequences: Sequences<'a>,
}

/// The document sequences of a message. Most commands have at most one, which takes no allocation.
#[derive(Clone, Debug, Default)]
pub struct Sequences<'a> {
    first: Option<Sequence<'a>>,
    rest: Vec<Sequence<'a>>,
}

impl<'a> Sequences<'a> {
    /// Returns the sequences in order.
    pub fn iter(&self) -> impl Iterator<Item = &Sequence<'a>> {
        self.first.iter().chain(&self.rest)
    }

    /// Adds a sequence.
    pub fn push(&mut self, sequence: Sequence<'a>) {
        match &self.first {
            None => self.first = Some(sequence),
            Some(_) => self.rest.push(sequence),
        }
    }
}

impl<'a> FromIterator<Sequence<'a>> for Sequences<'a> {
    fn from_iter<I: IntoIterator<Item = Sequence<'a>>>(list: I) -> Sequences<'a> {
        let mut sequences = Sequences::default();
        list.into_iter().for_each(|sequence| sequences.push(sequence));
        sequences
    }
}

/// A named list of documents outside the body (a section of kind 1).
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    /// The field of the command that this list replaces.
    pub name: &'a str,
    /// The documents, one after the other, each validated.
    pub documents: Documents<'a>,
}

impl<'a> Request<'a> {
    /// Builds a request and reads the database from `$db`.
    ///
    /// Errors: a command without a name (InvalidOptions as MongoDB) or without `$db` (40571), or a field given both as
    /// array and as sequence.
    pub fn new(body: Document<'a>, sequences: Sequences<'a>) -> Result<Request<'a>> {
        let database = match body.get("$db") {
            Some(Value::String(name)) => name,
            Some(other) => {
                return Err(Error::wrong_type("$db", other.kind(), "string"));
            }
            None => bail!(40571, "OP_MSG requests require a $db argument"),
        };
        if let Some(duplicate) = sequences.iter().find(|sequence| body.find(sequence.name).is_some()) {
            bail!(IDLDuplicateField, "BSON field '{}' is a duplicate field", duplicate.name);
        }
        Ok(Request { sequences, ..Request::of(body, database) })
    }

    /// Builds a request without sequences to a database.
    pub fn of(body: Document<'a>, database: &'a str) -> Request<'a> {
        let name = body.first().map_or("", |element| element.name());
        Request { name, body, database, sequences: Sequences::default() }
    }
}

/// A list of documents, from an array or from a sequence. Iteration copies nothing.
#[derive(Clone, Copy, Debug)]
pub struct Documents<'a> {
    source: Source<'a>,
    len: usize,
}

/// The encoding of a list of documents.
#[derive(Clone, Copy, Debug)]
enum Source<'a> {
    Array(Array<'a>),
    Sequence(&'a [u8]),
}

impl<'a> Documents<'a> {
    /// The documents of an array.
    ///
    /// Errors: position and type of the first element that is not a document.
    pub fn from_array(array: Array<'a>) -> std::result::Result<Documents<'a>, (usize, Type)> {
        let mut len = 0;
        for element in array.elements() {
            if element.kind() != Type::Document {
                return Err((len, element.kind()));
            }
            len += 1;
        }
        Ok(Documents { source: Source::Array(array), len })
    }

    /// Takes `len` concatenated, validated documents.
    pub fn from_sequence(bytes: &'a [u8], len: usize) -> Documents<'a> {
        Documents { source: Source::Sequence(bytes), len }
    }

    /// The bytes of a sequence; empty for an array, whose bytes belong to the body.
    pub(crate) fn sequence_bytes(&self) -> &'a [u8] {
        match self.source {
            Source::Array(_) => &[],
            Source::Sequence(bytes) => bytes,
        }
    }

    /// The number of documents.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the list is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The documents in order.
    pub fn iter(&self) -> DocumentsIter<'a> {
        match self.source {
            Source::Array(array) => DocumentsIter::Array(array.elements()),
            Source::Sequence(bytes) => DocumentsIter::Sequence(bytes),
        }
    }

    /// The documents that an earlier iteration had left: see [`DocumentsIter::rest`]. Constant time for a sequence.
    pub fn iter_from(&self, rest: usize) -> DocumentsIter<'a> {
        let mut documents = self.iter();
        match &mut documents {
            DocumentsIter::Array(elements) => {
                while elements.rest().len() > rest && elements.next().is_some() {}
            }
            DocumentsIter::Sequence(bytes) => {
                *bytes = bytes.len().checked_sub(rest).and_then(|at| bytes.get(at..)).unwrap_or_default();
            }
        }
        documents
    }
}

/// Iterates over [`Documents`].
pub enum DocumentsIter<'a> {
    /// Remaining elements of an array.
    Array(base::bson::Elements<'a>),
    /// Remaining bytes of a sequence.
    Sequence(&'a [u8]),
}

impl DocumentsIter<'_> {
    /// The length of the remaining documents, in bytes of the list's encoding.
    pub fn rest(&self) -> usize {
        match self {
            DocumentsIter::Array(elements) => elements.rest().len(),
            DocumentsIter::Sequence(bytes) => bytes.len(),
        }
    }
}

impl<'a> Iterator for DocumentsIter<'a> {
    type Item = Document<'a>;

    fn next(&mut self) -> Option<Document<'a>> {
        match self {
            DocumentsIter::Array(elements) => elements.next()?.value().as_document(),
            DocumentsIter::Sequence(rest) => {
                let (document, behind) = rest.split_at_checked(crate::header::document_length(rest)?)?;
                *rest = behind;
                Some(Document::from_valid(document))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    #[test]
    fn an_iteration_continues_after_documents_of_another() {
        let body = parse("{list: [{a: 1}, {a: 'two'}, {a: 3}]}").unwrap();
        let array = body.view().get("list").and_then(|list| list.as_array()).unwrap();
        let in_body = Documents::from_array(array).unwrap();
        let bytes: Vec<u8> = in_body.iter().flat_map(|document| document.bytes().to_vec()).collect();
        for list in [in_body, Documents::from_sequence(&bytes, 3)] {
            let all: Vec<Document<'_>> = list.iter().collect();
            let mut documents = list.iter();
            for done in 0..=3 {
                let rest: Vec<Document<'_>> = list.iter_from(documents.rest()).collect();
                assert!(
                    rest.iter().map(|document| document.bytes()).eq(all[done..].iter().map(|d| d.bytes()))
                );
                documents.next();
            }
            assert_eq!(documents.rest(), 0);
        }
    }
}
