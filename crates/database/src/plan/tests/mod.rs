//! Compares plans with the collection scan on random documents, indexes, filters and sorts.

mod awkward;
mod generate;
mod property;
mod text;
