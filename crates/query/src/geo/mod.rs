//! Geospatial data: geometry in documents and filters, relations of geometry, and the cells of both index types.
//!
//! MongoDB has two coordinate systems. In the *plane* a point is a pair of numbers, and shapes are boxes, circles and
//! polygons. On the *sphere* edges are arcs of great circles, and shapes are GeoJSON. A legacy pair of a longitude and
//! a latitude belongs to both. The S2 library implements the sphere; the plane is our own code.
//!
//! [`Geometry`] is the geometry of a document or a filter; [`geojson`] and [`specifier`] parse it.
//! [`contains`](Geometry::contains), [`intersects`](Geometry::intersects) and [`distance`](Geometry::distance) relate
//! two geometries. [`cells`] and [`hash`] are the keys of `2dsphere` and `2d` indexes.

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

/// The earth's radius in metres, as in MongoDB.
pub const EARTH_RADIUS: f64 = 6378.1 * 1000.0;
