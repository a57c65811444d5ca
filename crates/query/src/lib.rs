//! The query language: filters, updates, projections, expressions and pipelines over raw BSON.
