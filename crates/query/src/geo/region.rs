//! Shapes on the sphere as regions that cells may cover.

use super::geometry::{Geometry, Part};
use s2rst::s1::Angle;
use s2rst::s2::polyline::Polyline;
use s2rst::s2::shape_index_region::ShapeIndexRegion;
use s2rst::s2::{Cap, Cell, CellId, Point, Polygon, Rect, Region};

/// All parts of a geometry together.
#[derive(Debug)]
pub(crate) struct Parts<'a>(pub(crate) &'a [Part]);

/// A circle a little larger, for what rounding may do to a cell's borders and to a distance.
pub(crate) fn grown(cap: Cap) -> Cap {
    cap.expanded(Angle::from_radians(1e-13 + cap.angle_radius().radians().max(0.0) * 1e-14))
}

/// Whether a polygon reaches into a cell.
pub(super) fn polygon_intersects(polygon: &Polygon, cell: &Cell) -> bool {
    ShapeIndexRegion::new(polygon.shape_index()).intersects_cell(cell)
}

/// Whether a line reaches into a cell.
pub(super) fn line_intersects(line: &Polyline, cell: &Cell) -> bool {
    line.intersects_cell(cell)
}

impl Geometry {
    /// Calls `visit` with the geometry as a region; `None` for flat shapes.
    pub(crate) fn with_region<T>(&self, visit: impl FnOnce(&dyn Region) -> T) -> Option<T> {
        match self {
            Geometry::Cap(cap) => Some(visit(&grown(cap.cap))),
            Geometry::Sphere { parts, .. } => Some(visit(&Parts(parts))),
            Geometry::Pair(position) => Some(visit(&Parts(&[Part::point(*position)?]))),
            _ => None,
        }
    }
}

impl Region for Parts<'_> {
    fn cap_bound(&self) -> Cap {
        self.rect_bound().cap_bound()
    }

    fn rect_bound(&self) -> Rect {
        let bound = |part: &Part| match part {
            Part::Point(_, point) => Cap::from_point(*point).rect_bound(),
            Part::Line(line) => line.rect_bound(),
            Part::Polygon(polygon) => polygon.rect_bound(),
        };
        self.0.iter().map(bound).fold(Rect::empty(), |all, own| all.union(own))
    }

    fn cell_union_bound(&self) -> Vec<CellId> {
        self.cap_bound().cell_union_bound()
    }

    fn contains_cell(&self, cell: &Cell) -> bool {
        self.0.iter().any(|part| match part {
            Part::Polygon(polygon) => ShapeIndexRegion::new(polygon.shape_index()).contains_cell(cell),
            Part::Point(..) | Part::Line(_) => false,
        })
    }

    fn intersects_cell(&self, cell: &Cell) -> bool {
        self.0.iter().any(|part| match part {
            Part::Point(_, point) => Region::contains_point(cell, point),
            Part::Line(line) => line_intersects(line, cell),
            Part::Polygon(polygon) => polygon_intersects(polygon, cell),
        })
    }

    fn contains_point(&self, place: &Point) -> bool {
        self.0.iter().any(|part| match part {
            Part::Polygon(polygon) => polygon.contains_point(place),
            Part::Point(..) | Part::Line(_) => false,
        })
    }
}
