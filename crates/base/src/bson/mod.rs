//! BSON as bytes: borrowed views, an appending builder, MongoDB's order of values.
//!
//! A document stays one run of bytes from the socket to the engine and back. [`Document`] and [`Array`] are views of
//! the bytes, and [`Value`] is one decoded element. [`Builder`] writes new documents and copies elements undecoded
//! where possible.

mod builder;
mod compare;
mod decimal;
mod display;
mod element_type;
pub mod extended_json;
mod name;
mod number;
mod path;
mod raw;
mod validate;
mod value;

pub use builder::Builder;
pub use compare::{compare, compare_documents, compare_optional, compare_with, equal};
pub use decimal::{Decimal128, Parts as DecimalParts, Rounding};
pub use element_type::Type;
pub use name::{FieldName, FieldNameBuf, RegexText, ZeroByte};
pub use number::Number;
pub use path::{Path, PathComponent};
pub use raw::{Array, Document, DocumentBuf, DocumentCow, Element, Elements, LeadingElements};
pub use validate::{
    MAX_DEPTH, MAX_DOCUMENT_SIZE, MAX_STORED_DEPTH, check_depth, is_well_formed, nested, nests_deeper,
    validate,
};
pub use value::{ObjectId, Value, ValueBuf, ValueBuffer, ValueContent};
