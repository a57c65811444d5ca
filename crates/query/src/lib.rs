//! The query language: filters, updates, projections, sorts, expressions and pipelines.
//!
//! All functions are pure functions over bytes. Specifications are parsed once into a small tree, which reports every
//! bad operator before a document is read. The tree is then evaluated over raw BSON. [`Context`] provides collections,
//! the clock and random numbers.

pub mod accumulator;
mod accumulator_state;
pub mod change;
pub mod collation;
pub mod context;
mod element_order;
pub mod expression;
pub mod field_path;
pub mod geo;
mod interrupt_check;
pub mod keys;
pub mod limits;
pub mod matcher;
mod metadata;
pub mod pipeline;
pub mod projection;
pub mod query_shape;
pub mod regex;
mod row;
pub mod sort;
pub mod sorter;
pub mod spill;
pub mod text;
pub mod update;
pub mod window;

pub use collation::Collation;
pub use context::{Arena, Context, Helpers, Interrupt, Timestamps};
pub use expression::Expression;
pub use limits::Limits;
pub use matcher::Matcher;
pub use metadata::{DocumentMetadata, MetaKind, MetaKinds, Metadata};
pub use pipeline::{Pipeline, Stage};
pub use projection::Projection;
pub use regex::Regex;
pub use row::{Row, RowView};
pub use sort::SortPattern;
pub use sorter::Sorter;
pub use spill::SpillFolder;
pub use update::Update;
