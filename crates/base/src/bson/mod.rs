//! BSON as bytes: borrowed views, an appending builder, MongoDB's order of values.
//!
//! A document stays one run of bytes from the socket to the engine and back. [`Document`] and [`Array`] are views of
//! the bytes, and [`Value`] is one decoded element. [`Builder`] writes new documents and copies elements undecoded
//! where possible.

mod builder;
mod compare;
mod decimal;
mod depth;
mod display;
mod document_cow;
mod element_type;
pub mod extended_json;
mod name;
mod number;
mod object_id;
mod path;
mod raw;
mod validate;
mod value;

pub use builder::Builder;
pub use compare::{compare, compare_documents, compare_optional, compare_with, equal};
pub use decimal::{Decimal128, Parts as DecimalParts, Rounding};
pub use depth::{MAX_DEPTH, MAX_STORED_DEPTH, check_depth, nests_deeper};
pub use document_cow::DocumentCow;
pub use element_type::Type;
pub use name::{FieldName, FieldNameBuf, RegexText, ZeroByte};
pub use number::Number;
pub use object_id::ObjectId;
pub use path::{Path, PathComponent};
pub use raw::{Array, Document, DocumentBuf, Element, Elements};
pub use validate::{MAX_DOCUMENT_SIZE, is_well_formed, validate};
pub use value::{Value, ValueBuf};
