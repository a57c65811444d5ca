//! Cells of `2dsphere` indexes: S2 cells within the levels of an index.
//!
//! A key is the id of a cell, a signed 64-bit integer as MongoDB stores it. A shape has the cells of its covering. A
//! point has its leaf cell (from version 3 on). A search for a shape looks for keys within the cells of its covering,
//! and for keys of the cells above.
//!
//! Shapes on the sphere are regions that cells can cover.

use super::EARTH_RADIUS;
use super::geometry::{Geometry, Part};
use s2rst::s1::Angle;
use s2rst::s2::metric::{AVG_AREA, AVG_EDGE};
use s2rst::s2::polyline::Polyline;
use s2rst::s2::region_coverer::RegionCoverer;
use s2rst::s2::shape_index_region::ShapeIndexRegion;
use s2rst::s2::{Cap, Cell, CellId, Level, Point, Polygon, Rect, Region};
use std::collections::BTreeSet;

/// Approximate number of cells in the covering of a filter's shape.
const QUERY_CELLS: usize = 20;
/// The finest level of a filter's covering.
const QUERY_FINEST: u8 = 23;
/// Maximum number of cells of one document, counting the minimum that an index must create.
const CELLS_MAX: f64 = 100_000.0;

/// The cell levels of an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Levels {
    /// The finest level of cells for shapes.
    pub finest: u8,
    /// The coarsest level.
    pub coarsest: u8,
    /// Approximate number of cells in a covering.
    pub most: usize,
    /// Whether points have leaf cells.
    pub points_are_leaves: bool,
}

impl Levels {
    /// Returns MongoDB's levels for an index version.
    pub fn of_version(version: u8) -> Levels {
        let level = |metres: f64| AVG_EDGE.closest_level(metres / EARTH_RADIUS).as_u8();
        match version {
            1 | 2 => Levels {
                finest: level(500.0),
                coarsest: level(100.0 * 1000.0),
                most: 50,
                points_are_leaves: false,
            },
            _ => Levels {
                finest: level(110.0),
                coarsest: level(2000.0 * 1000.0),
                most: 20,
                points_are_leaves: true,
            },
        }
    }

    /// Returns the cells of a document's geometry. `None` if it needs too many cells, which only unusual index options
    /// cause.
    pub fn keys(&self, parts: &[Part], single: bool) -> Option<Vec<i64>> {
        if let ([Part::Point(_, point)], true, true) = (parts, single, self.points_are_leaves) {
            return Some(vec![key(CellId::from_point(point))]);
        }
        let region = Parts(parts);
        let least = region.rect_bound().area() / AVG_AREA.value(Level::new(self.coarsest));
        if least > CELLS_MAX {
            return None;
        }
        let covering = RegionCoverer::new()
            .min_level(Level::new(self.coarsest))
            .max_level(Level::new(self.finest))
            .max_cells(self.most)
            .covering(&region);
        Some(covering.cell_ids().iter().map(|cell| key(*cell)).collect())
    }

    /// Returns the cells to search for shapes that meet a geometry; `None` for flat shapes.
    pub fn covering(&self, geometry: &Geometry) -> Option<Covering> {
        geometry.with_region(|region| self.covering_of(region))
    }

    /// Returns the cells to search for shapes within an angle, in radians, of a point.
    pub fn covering_around(&self, center: Point, angle: f64) -> Covering {
        self.covering_of(&grown(Cap::from_center_angle(center, Angle::from_radians(angle))))
    }

    /// Returns cells that lie entirely within an angle of a point.
    pub fn inside(&self, center: Point, angle: f64) -> Covering {
        let cap = Cap::from_center_angle(center, Angle::from_radians(angle * (1.0 - 1e-9)));
        let cells = query_coverer().interior_covering(&cap);
        Covering { cells: cells.cell_ids().iter().map(|cell| key(*cell)).collect(), above: Vec::new() }
    }

    /// Returns the covering of a region and all ancestors of its cells, up to the coarsest level.
    fn covering_of(&self, region: &dyn Region) -> Covering {
        let covering = query_coverer().covering(region);
        let mut above = BTreeSet::new();
        for cell in covering.cell_ids() {
            let mut cell = *cell;
            while cell.level().as_u8() > self.coarsest {
                cell = cell.parent();
                if !above.insert(key(cell)) {
                    break;
                }
            }
        }
        Covering {
            cells: covering.cell_ids().iter().map(|cell| key(*cell)).collect(),
            above: above.into_iter().collect(),
        }
    }
}

/// Cells to search for a shape: cells with all their descendants, and single ancestor cells.
#[derive(Clone, Debug)]
pub struct Covering {
    /// Cells of the covering.
    pub cells: Vec<i64>,
    /// Ancestors of these cells.
    pub above: Vec<i64>,
}

/// Returns the first and last key of a cell and its descendants.
pub fn range(cell: i64) -> (i64, i64) {
    let cell = CellId::from(cell as u64);
    (key(cell.range_min()), key(cell.range_max()))
}

/// Formats a cell as older index versions store it: its face, then the quadrant at each level.
pub fn text(cell: i64) -> String {
    let cell = CellId::from(cell as u64);
    let quarters = (1..=cell.level().as_u8()).map(|level| cell.child_position(Level::new(level)));
    let digits: String = quarters.map(|quarter| char::from(b'0' + quarter)).collect();
    format!("{}f{digits}", cell.face().as_u8())
}

fn query_coverer() -> RegionCoverer {
    RegionCoverer::new().max_level(Level::new(QUERY_FINEST)).max_cells(QUERY_CELLS)
}

fn key(cell: CellId) -> i64 {
    cell.id() as i64
}

/// All parts of a geometry.
#[derive(Debug)]
pub(crate) struct Parts<'a>(pub(crate) &'a [Part]);

/// Enlarges a circle slightly, to allow for rounding of cell borders and distances.
pub(crate) fn grown(cap: Cap) -> Cap {
    cap.expanded(Angle::from_radians(1e-13 + cap.angle_radius().radians().max(0.0) * 1e-14))
}

/// Whether a polygon intersects a cell.
pub(super) fn polygon_intersects(polygon: &Polygon, cell: &Cell) -> bool {
    ShapeIndexRegion::new(polygon.shape_index()).intersects_cell(cell)
}

/// Whether a line intersects a cell.
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

    fn contains_point(&self, point: &Point) -> bool {
        self.0.iter().any(|part| match part {
            Part::Polygon(polygon) => polygon.contains_point(point),
            Part::Point(..) | Part::Line(_) => false,
        })
    }
}
