//! The query language: filters, updates, projections, sorts, expressions and pipelines.
//!
//! Pure functions over bytes. Everything is parsed once into a small tree, which reports every
//! bad operator before a document is read, and then evaluated over raw BSON. Collections, the
//! clock and randomness are passed in through [`Context`].

pub mod context;

pub use context::{Arena, Context, Interrupt};
