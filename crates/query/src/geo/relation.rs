//! Containment and intersection of two geometries.
//!
//! A point on the sphere is its leaf cell, about a centimetre wide, as in MongoDB. A shape contains the point if it
//! intersects the cell. Points on a border therefore belong to both sides of it.

use super::cells::{line_intersects, polygon_intersects};
use super::geometry::{Geometry, Part};
use s2rst::s2::boolean_operation::{OpType, Options, PolygonModel, S2BooleanOperation};
use s2rst::s2::lax_polygon::LaxPolygon;
use s2rst::s2::polyline::Polyline;
use s2rst::s2::shape_index::ShapeIndex;
use s2rst::s2::{Cap, Cell, Point, Polygon, Region};

impl Geometry {
    /// Whether a document's geometry lies within this geometry.
    pub fn contains(&self, stored: Geometry) -> bool {
        match self {
            Geometry::Pair(_) => false,
            Geometry::Box(area) => stored.position().is_some_and(|position| area.contains(position)),
            Geometry::Circle(circle) => stored.position().is_some_and(|position| circle.contains(position)),
            Geometry::Polygon(polygon) => {
                stored.position().is_some_and(|position| polygon.contains(position))
            }
            Geometry::Cap(cap) => all_parts(stored, |part| cap_contains(cap.cap, part)),
            Geometry::Sphere { parts, .. } => all_parts(stored, |part| {
                parts.iter().any(|own| matches!(own, Part::Polygon(own) if polygon_contains(own, part)))
            }),
        }
    }

    /// Whether a document's geometry shares a point with this geometry.
    pub fn intersects(&self, stored: Geometry) -> bool {
        let Some(others) = stored.stored_parts() else { return false };
        match self {
            Geometry::Pair(position) => {
                let point = Part::point(*position);
                point.is_some_and(|point| others.iter().any(|other| parts_intersect(&point, other)))
            }
            Geometry::Sphere { parts, .. } => {
                parts.iter().any(|own| others.iter().any(|other| parts_intersect(own, other)))
            }
            _ => false,
        }
    }
}

fn all_parts(stored: Geometry, within: impl Fn(&Part) -> bool) -> bool {
    stored.stored_parts().is_some_and(|parts| parts.iter().all(within))
}

fn leaf(point: Point) -> Cell {
    Cell::from_point(point)
}

/// Whether a circle contains a shape: all points of the shape are farther from the circle's antipode than the
/// complementary radius.
fn cap_contains(cap: Cap, part: &Part) -> bool {
    let opposite = cap.complement();
    let apart = |distance: f64| opposite.is_empty() || distance >= opposite.angle_radius().radians();
    match part {
        Part::Point(_, point) => cap.intersects_cell(&leaf(*point)),
        Part::Line(_) | Part::Polygon(_) => apart(part.angle(opposite.center())),
    }
}

fn polygon_contains(polygon: &Polygon, part: &Part) -> bool {
    match part {
        Part::Point(_, point) => has_point(polygon, *point),
        Part::Line(line) => contains_line(polygon, line),
        Part::Polygon(other) => polygon.contains_polygon(other),
    }
}

fn has_point(polygon: &Polygon, point: Point) -> bool {
    polygon.contains_point(&point) || polygon_intersects(polygon, &leaf(point))
}

/// Whether two parts share a point. Points are compared as leaf cells.
fn parts_intersect(a: &Part, b: &Part) -> bool {
    match (a, b) {
        (Part::Point(_, a), Part::Point(_, b)) => leaf(*a).id() == leaf(*b).id(),
        (Part::Point(_, point), Part::Line(line)) | (Part::Line(line), Part::Point(_, point)) => {
            line_intersects(line, &leaf(*point))
        }
        (Part::Point(_, point), Part::Polygon(polygon)) | (Part::Polygon(polygon), Part::Point(_, point)) => {
            has_point(polygon, *point)
        }
        (Part::Line(a), Part::Line(b)) => a.rect_bound().intersects(b.rect_bound()) && a.intersects(b),
        (Part::Line(line), Part::Polygon(polygon)) | (Part::Polygon(polygon), Part::Line(line)) => {
            polygon_meets_line(polygon, line)
        }
        (Part::Polygon(a), Part::Polygon(b)) => a.intersects_polygon(b),
    }
}

fn index_of_line(line: &Polyline) -> ShapeIndex {
    let mut index = ShapeIndex::new();
    index.add(Box::new(line.clone()));
    index.build();
    index
}

fn index_of_polygon(polygon: &Polygon) -> ShapeIndex {
    let mut index = ShapeIndex::new();
    index.add(Box::new(LaxPolygon::from_polygon_ref(polygon)));
    index.build();
    index
}

/// Whether a line lies within a polygon; the line may run along the border.
fn contains_line(polygon: &Polygon, line: &Polyline) -> bool {
    if !polygon.subregion_bound().contains(line.rect_bound()) {
        return false;
    }
    let options = Options { polygon_model: PolygonModel::Closed, ..Options::default() };
    S2BooleanOperation::is_empty(
        OpType::Difference,
        &mut index_of_line(line),
        &mut index_of_polygon(polygon),
        options,
    )
}

/// Whether a line and a polygon, including its border, share a point.
fn polygon_meets_line(polygon: &Polygon, line: &Polyline) -> bool {
    if !polygon.rect_bound().intersects(line.rect_bound()) {
        return false;
    }
    let options = Options { polygon_model: PolygonModel::Closed, ..Options::default() };
    !S2BooleanOperation::is_empty(
        OpType::Intersection,
        &mut index_of_line(line),
        &mut index_of_polygon(polygon),
        options,
    )
}
