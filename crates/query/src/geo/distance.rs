//! How far geometries are from a place.

use super::Position;
use super::geometry::{Geometry, Part, metres};
use s2rst::s2::Point;

impl Part {
    /// The least angle to a place, in radians; zero within a polygon.
    pub(crate) fn angle(&self, place: Point) -> f64 {
        let nearest = match self {
            Part::Point(_, point) => *point,
            Part::Line(line) => line.project(place).0,
            Part::Polygon(polygon) => polygon.project_point(place),
        };
        place.distance(nearest).radians()
    }
}

impl Geometry {
    /// The least distance of what a document holds to a place on the sphere, in metres; `None` for
    /// what isn't on the sphere.
    pub fn metres_from(self, place: Point) -> Option<f64> {
        let parts = self.stored_parts()?;
        parts.iter().map(|part| metres(part.angle(place))).reduce(f64::min)
    }

    /// The distance of a pair or a point to a place in the plane; `None` for other shapes.
    pub fn distance_from(&self, place: Position) -> Option<f64> {
        self.position().map(|own| own.distance(place))
    }
}
