//! Places: what documents and filters hold of them, how they relate, and the cells of both indexes.
//!
//! Two worlds, as in MongoDB: the *plane*, where a place is a pair of numbers and shapes are boxes,
//! circles and polygons, and the *sphere*, where edges are arcs of great circles and shapes are
//! GeoJSON's. A legacy pair whose numbers are a longitude and a latitude belongs to both. The sphere
//! is the S2 library's, the plane our own.
//!
//! [`Geometry`] is what a document or a filter holds ([`geojson`] and [`specifier`] read it),
//! [`contains`](Geometry::contains), [`intersects`](Geometry::intersects) and
//! [`distance`](Geometry::distance) relate two of them; [`cells`] and [`hash`] are the keys of
//! `2dsphere` and `2d` indexes.

pub mod cells;
mod geojson;
mod geometry;
pub mod hash;
mod plane;
mod position;
mod relation;
mod rings;
#[cfg(test)]
mod tests;

pub(crate) use geometry::query_point;
pub use geometry::{Cap, Form, Geometry, Part};
pub use plane::{Circle, FlatBox, FlatPolygon};
pub use position::Position;
pub(crate) use position::fields_of;

/// The earth's radius in metres, as MongoDB takes it.
pub const EARTH_RADIUS: f64 = 6378.1 * 1000.0;
