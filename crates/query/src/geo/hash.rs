//! Cells of `2d` indexes: the plane between two bounds, quartered repeatedly.
//!
//! The hash of a point has a bit of x and a bit of y for each quartering, the coarsest first. A cell of any size is
//! therefore a range of hashes. A key is a hash of eight bytes. A search for a shape looks for keys within the cells of
//! its covering. All computations use integers, to which positions are mapped monotonically. Rounding can therefore
//! never make a covering too small.

use super::{Circle, FlatBox, FlatPolygon, Geometry, Position};
use base::bson::Document;
use base::{Result, bail};
use std::collections::VecDeque;

/// Maximum number of cells in a covering; cell borders may require more.
const CELLS: usize = 16;

/// The cell grid of an index.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Grid {
    /// Number of halvings of each axis, 1 to 32.
    pub bits: u32,
    /// Lower bound of coordinates.
    pub min: f64,
    /// Upper bound of coordinates.
    pub max: f64,
}

/// A cell: the leading bits of x and of y, and their number.
#[derive(Clone, Copy)]
struct Cell {
    x: u32,
    y: u32,
    level: u32,
}

/// Relation of an area to a shape.
enum Relation {
    Outside,
    Within,
    Across,
}

impl Grid {
    /// Builds the grid of an index's options. MongoDB's defaults: 26 bits over degrees.
    ///
    /// Errors: InvalidOptions.
    pub fn new(bits: Option<f64>, min: Option<f64>, max: Option<f64>) -> Result<Grid> {
        let bits = bits.unwrap_or(26.0).trunc();
        if !(1.0..=32.0).contains(&bits) {
            bail!(InvalidOptions, "bits for hash must be > 0 and <= 32, but {bits} bits were specified");
        }
        let grid = Grid { bits: bits as u32, min: min.unwrap_or(-180.0), max: max.unwrap_or(180.0) };
        if grid.min >= grid.max || !(grid.max - grid.min).is_finite() {
            bail!(
                InvalidOptions,
                "region for hash must be valid and have positive area, but [{}, {}] was specified",
                grid.min,
                grid.max
            );
        }
        Ok(grid)
    }

    /// Returns the key of a point.
    ///
    /// Errors: 13027 for a point outside the bounds.
    pub fn key(&self, position: Position, source: Document<'_>) -> Result<u64> {
        if !self.holds(position) {
            bail!(13027, "point not in interval of [ {}, {} ] :: caused by :: {source}", self.min, self.max);
        }
        let cell = Cell { x: self.along(position.x), y: self.along(position.y), level: 32 };
        Ok(cell.first() & !(u64::MAX.checked_shr(2 * self.bits).unwrap_or(0)))
    }

    /// Whether a point is within the bounds.
    pub fn holds(&self, position: Position) -> bool {
        let within = |value: f64| value >= self.min && value <= self.max;
        within(position.x) && within(position.y)
    }

    /// The width of the smallest cell.
    pub fn cell_width(&self) -> f64 {
        (self.max - self.min) / (1u64 << self.bits) as f64
    }

    /// Returns sorted, disjoint, inclusive ranges of keys that cover a geometry; `None` for geometry that is not in the
    /// plane.
    pub fn ranges(&self, geometry: &Geometry) -> Option<Vec<(u64, u64)>> {
        match geometry {
            Geometry::Box(area) => Some(self.ranges_of_box(area)),
            Geometry::Circle(circle) => Some(self.ranges_of_circle(circle)),
            Geometry::Polygon(polygon) => Some(self.ranges_of_polygon(polygon)),
            Geometry::Cap(cap) => Some(self.ranges_of_cap(&cap.cap)),
            _ => None,
        }
    }

    /// Whether the index can search a shape. It cannot search circles on the sphere that reach over a pole or the
    /// antimeridian.
    pub fn serves(&self, geometry: &Geometry) -> bool {
        match geometry {
            Geometry::Box(_) | Geometry::Circle(_) | Geometry::Polygon(_) => true,
            Geometry::Cap(cap) => {
                let bound = cap.cap.rect_bound();
                !bound.lng.is_full() && bound.lng.lo <= bound.lng.hi
            }
            _ => false,
        }
    }

    /// Returns the ranges of cells that lie entirely within a circle.
    pub fn inside(&self, circle: &Circle) -> Vec<(u64, u64)> {
        let radius = circle.radius * (1.0 - 1e-9);
        self.cells(&circle.bound(), true, |cell| match () {
            () if cell.distance(circle.center) > radius => Relation::Outside,
            () if cell.greatest_distance(circle.center) <= radius => Relation::Within,
            () => Relation::Across,
        })
    }

    /// Returns the ranges of a rectangle.
    pub fn ranges_of_box(&self, area: &FlatBox) -> Vec<(u64, u64)> {
        self.cover(area, |cell| match area.contains(cell.low) && area.contains(cell.high) {
            true => Relation::Within,
            false => Relation::Across,
        })
    }

    /// Returns the ranges of a circle.
    pub fn ranges_of_circle(&self, circle: &Circle) -> Vec<(u64, u64)> {
        // Tolerance for the rounding of a distance.
        let slack = (circle.radius + circle.center.x.abs() + circle.center.y.abs()) * 1e-14;
        let grown = Circle { radius: circle.radius + slack, ..*circle };
        self.cover(&grown.bound(), |cell| match () {
            () if cell.distance(circle.center) > grown.radius => Relation::Outside,
            () if cell.greatest_distance(circle.center) <= circle.radius => Relation::Within,
            () => Relation::Across,
        })
    }

    /// Returns the ranges of a circle on the sphere, for points that are longitudes and latitudes.
    pub fn ranges_of_cap(&self, cap: &s2rst::s2::Cap) -> Vec<(u64, u64)> {
        const SLACK: f64 = 1e-9;
        let bound = cap.rect_bound();
        if bound.is_empty() {
            return Vec::new();
        }
        let degrees = |radians: f64| radians.to_degrees();
        let (low, high) = (degrees(bound.lat.lo) - SLACK, degrees(bound.lat.hi) + SLACK);
        let area = |from: f64, to: f64| {
            let corner = |x: f64, y: f64| Position { x, y };
            FlatBox::new(corner(degrees(from) - SLACK, low), corner(degrees(to) + SLACK, high))
        };
        let pi = std::f64::consts::PI;
        let areas = match bound.lng {
            lng if lng.is_full() => vec![area(-pi, pi)],
            lng if lng.lo > lng.hi => vec![area(lng.lo, pi), area(-pi, lng.hi)],
            lng => vec![area(lng.lo, lng.hi)],
        };
        let mut ranges: Vec<_> = areas.iter().flat_map(|area| self.ranges_of_box(area)).collect();
        ranges.sort_unstable();
        joined(ranges)
    }

    fn ranges_of_polygon(&self, polygon: &FlatPolygon) -> Vec<(u64, u64)> {
        self.cover(&polygon.bound(), |cell| match polygon.may_intersect(cell) {
            true => Relation::Across,
            false => Relation::Outside,
        })
    }

    /// Returns ranges of cells that cover a rectangle, except the parts that `relate` excludes.
    fn cover(&self, area: &FlatBox, relate: impl Fn(&FlatBox) -> Relation) -> Vec<(u64, u64)> {
        self.cells(area, false, relate)
    }

    /// Returns ranges of cells that cover a rectangle, except the parts that `relate` excludes; only cells inside the
    /// shape if `inside`.
    fn cells(&self, area: &FlatBox, inside: bool, relate: impl Fn(&FlatBox) -> Relation) -> Vec<(u64, u64)> {
        let bounds =
            FlatBox::new(Position { x: self.min, y: self.min }, Position { x: self.max, y: self.max });
        if !area.intersects(&bounds) {
            return Vec::new();
        }
        let corner = |position: Position| (self.along(position.x), self.along(position.y));
        let area_corners = (corner(area.low), corner(area.high));
        let mut done: Vec<(u64, u64)> = Vec::new();
        let mut open = VecDeque::from([Cell { x: 0, y: 0, level: 0 }]);
        while let Some(cell) = open.pop_front() {
            let full = done.len() + open.len() + 4 > CELLS;
            match self.relation(&cell, area_corners, &relate) {
                Relation::Outside => {}
                Relation::Within => done.push(cell.range()),
                Relation::Across if inside && (cell.level >= self.bits || full) => {}
                Relation::Across if cell.level >= self.bits || full => done.push(cell.range()),
                Relation::Across => open.extend(cell.quarters()),
            }
        }
        done.sort_unstable();
        joined(done)
    }

    /// Returns the relation of a cell to a shape within a rectangle. Cells outside the rectangle are outside the shape.
    fn relation(
        &self,
        cell: &Cell,
        ((left, bottom), (right, top)): ((u32, u32), (u32, u32)),
        relate: &impl Fn(&FlatBox) -> Relation,
    ) -> Relation {
        let ((x, x_last), (y, y_last)) = (cell.extent(cell.x), cell.extent(cell.y));
        if x > right || x_last < left || y > top || y_last < bottom {
            return Relation::Outside;
        }
        relate(&self.area((x, x_last), (y, y_last)))
    }

    /// Returns the rectangle of integer coordinates, slightly enlarged for rounding.
    fn area(&self, (left, right): (u32, u32), (bottom, top): (u32, u32)) -> FlatBox {
        let width = (self.max - self.min) / 4_294_967_296.0;
        let slack = width + (self.max.abs() + self.min.abs()) * 1e-15;
        let low = |value: u32| self.min + f64::from(value) * width - slack;
        let high = |value: u32| self.min + (f64::from(value) + 1.0) * width + slack;
        FlatBox {
            low: Position { x: low(left), y: low(bottom) },
            high: Position { x: high(right), y: high(top) },
        }
    }

    /// Maps a coordinate to an integer; the mapping is monotonic.
    fn along(&self, value: f64) -> u32 {
        // The conversion saturates at the maximum.
        ((value - self.min) * (4_294_967_296.0 / (self.max - self.min))) as u32
    }
}

impl Cell {
    /// Returns the least and the greatest coordinate with these leading bits.
    fn extent(&self, bits: u32) -> (u32, u32) {
        let below = u32::MAX.checked_shr(self.level).unwrap_or(0);
        (bits, bits | below)
    }

    fn first(&self) -> u64 {
        spread(self.x) << 1 | spread(self.y)
    }

    fn range(&self) -> (u64, u64) {
        let first = self.first();
        (first, first | u64::MAX.checked_shr(2 * self.level).unwrap_or(0))
    }

    fn quarters(&self) -> [Cell; 4] {
        let half = 1u32 << (31 - self.level.min(31));
        let quarter = |x: u32, y: u32| Cell { x: self.x | x, y: self.y | y, level: self.level + 1 };
        [quarter(0, 0), quarter(0, half), quarter(half, 0), quarter(half, half)]
    }
}

/// Spreads the bits of a number, each with a zero in front.
fn spread(number: u32) -> u64 {
    let mut bits = u64::from(number);
    for (shift, mask) in [
        (16, 0x0000_FFFF_0000_FFFF),
        (8, 0x00FF_00FF_00FF_00FF),
        (4, 0x0F0F_0F0F_0F0F_0F0F),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// Sorts ranges and merges adjacent ranges.
fn joined(ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    let mut joined: Vec<(u64, u64)> = Vec::with_capacity(ranges.len());
    for (first, last) in ranges {
        match joined.last_mut() {
            Some((_, end)) if first <= end.saturating_add(1) => *end = last.max(*end),
            _ => joined.push((first, last)),
        }
    }
    joined
}
