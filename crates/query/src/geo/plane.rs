//! Shapes in the plane: `$box`, `$center` and `$polygon`. Shapes include their borders.

use super::Position;
use base::{Result, bail};

/// An axis-aligned rectangle.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct FlatBox {
    /// The corner with the least coordinates.
    pub low: Position,
    /// The corner with the greatest coordinates.
    pub high: Position,
}

impl FlatBox {
    /// Builds the rectangle between two opposite corners.
    pub fn new(a: Position, b: Position) -> FlatBox {
        FlatBox {
            low: Position { x: a.x.min(b.x), y: a.y.min(b.y) },
            high: Position { x: a.x.max(b.x), y: a.y.max(b.y) },
        }
    }

    pub(crate) fn contains(&self, position: Position) -> bool {
        let (low, high) = (self.low, self.high);
        position.x >= low.x && position.x <= high.x && position.y >= low.y && position.y <= high.y
    }

    /// Whether two rectangles share a point.
    pub(crate) fn intersects(&self, other: &FlatBox) -> bool {
        self.low.x <= other.high.x
            && other.low.x <= self.high.x
            && self.low.y <= other.high.y
            && other.low.y <= self.high.y
    }

    /// The least distance between the rectangle and a point.
    pub(crate) fn distance(&self, position: Position) -> f64 {
        let x = position.x.clamp(self.low.x, self.high.x);
        let y = position.y.clamp(self.low.y, self.high.y);
        position.distance(Position { x, y })
    }

    /// The greatest distance between the rectangle and a point.
    pub(crate) fn greatest_distance(&self, position: Position) -> f64 {
        let farther = |value: f64, low: f64, high: f64| {
            if (value - low).abs() > (value - high).abs() { low } else { high }
        };
        let x = farther(position.x, self.low.x, self.high.x);
        let y = farther(position.y, self.low.y, self.high.y);
        position.distance(Position { x, y })
    }
}

/// All points within a distance of a center.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Circle {
    /// The center.
    pub center: Position,
    /// The radius.
    pub radius: f64,
}

impl Circle {
    /// Whether a point is in the circle, including its border.
    pub(crate) fn contains(&self, position: Position) -> bool {
        // Along an axis the end points are compared, which rounds as the computation of the coordinate did.
        let along = |a: f64, b: f64| a.max(b) <= a.min(b) + self.radius;
        let (center, radius) = (self.center, self.radius);
        match (center.x == position.x, center.y == position.y) {
            (true, _) => along(center.y, position.y),
            (_, true) => along(center.x, position.x),
            _ => center.distance(position) - radius <= 0.0,
        }
    }

    /// The bounding rectangle.
    pub(crate) fn bound(&self) -> FlatBox {
        let Circle { center, radius } = *self;
        FlatBox::new(
            Position { x: center.x - radius, y: center.y - radius },
            Position { x: center.x + radius, y: center.y + radius },
        )
    }
}

/// A polygon, which may cross itself. A point is inside if a ray from it crosses the border an odd number of times.
#[derive(Clone, PartialEq, Debug)]
pub struct FlatPolygon {
    corners: Vec<Position>,
}

impl FlatPolygon {
    /// Builds a polygon.
    ///
    /// Errors: BadValue for fewer than three corners.
    pub(crate) fn new(corners: Vec<Position>) -> Result<FlatPolygon> {
        if corners.len() < 3 {
            bail!(BadValue, "Polygon must have at least 3 points");
        }
        Ok(FlatPolygon { corners })
    }

    /// Whether a point is inside the polygon, on an edge or a corner.
    pub(crate) fn contains(&self, position: Position) -> bool {
        let mut inside = false;
        for (a, b) in self.edges() {
            match crossing(position, a, b) {
                Crossing::OnEdge => return true,
                Crossing::Crosses => inside = !inside,
                Crossing::Misses => {}
            }
        }
        inside
    }

    /// The bounding rectangle.
    pub(crate) fn bound(&self) -> FlatBox {
        let mut corners = self.corners.iter();
        let first = corners.next().copied().unwrap_or(Position { x: 0.0, y: 0.0 });
        corners.fold(FlatBox::new(first, first), |bound, corner| FlatBox {
            low: Position { x: bound.low.x.min(corner.x), y: bound.low.y.min(corner.y) },
            high: Position { x: bound.high.x.max(corner.x), y: bound.high.y.max(corner.y) },
        })
    }

    /// Whether the polygon may share a point with a rectangle: a corner of either is inside the other, or an edge may
    /// cross the rectangle.
    pub(crate) fn may_intersect(&self, area: &FlatBox) -> bool {
        self.contains(area.low) || self.edges().any(|(a, b)| may_cross(area, a, b))
    }

    fn edges(&self) -> impl Iterator<Item = (Position, Position)> {
        let shifted = self.corners.iter().cycle().skip(1);
        self.corners.iter().copied().zip(shifted.copied())
    }
}

/// Relation of an edge to a ray from a point towards greater x.
enum Crossing {
    OnEdge,
    Crosses,
    Misses,
}

/// Returns the relation of an edge to the ray from a point. Horizontal edges never cross.
fn crossing(position: Position, a: Position, b: Position) -> Crossing {
    let (low, high) = (a.y.min(b.y), a.y.max(b.y));
    let (left, right) = (a.x.min(b.x), a.x.max(b.x));
    if position == a || position == b {
        return Crossing::OnEdge;
    }
    if a.y == b.y {
        let on = position.y == a.y && position.x >= left && position.x <= right;
        return if on { Crossing::OnEdge } else { Crossing::Misses };
    }
    // Only the upper end of an edge counts, so a ray through a corner counts once.
    if position.y <= low || position.y > high || position.x > right {
        return Crossing::Misses;
    }
    if a.x == b.x {
        return if position.x == a.x { Crossing::OnEdge } else { Crossing::Crosses };
    }
    let meets = (position.y - a.y) * (b.x - a.x) / (b.y - a.y) + a.x;
    if position.x <= meets { Crossing::Crosses } else { Crossing::Misses }
}

/// Whether an edge may have a point in a rectangle: their extents overlap, and the rectangle's corners are not all on
/// one side of the edge.
fn may_cross(area: &FlatBox, a: Position, b: Position) -> bool {
    if !area.intersects(&FlatBox::new(a, b)) {
        return false;
    }
    let FlatBox { low, high } = *area;
    let side = |x: f64, y: f64| (b.x - a.x) * (y - a.y) - (b.y - a.y) * (x - a.x);
    let sides = [side(low.x, low.y), side(low.x, high.y), side(high.x, low.y), side(high.x, high.y)];
    // A case that rounding may hide counts as a crossing.
    let slack = 1e-9
        * ((b.x - a.x).abs() + (b.y - a.y).abs() + 1e-300)
        * (low.x.abs() + low.y.abs() + high.x.abs() + high.y.abs() + a.x.abs() + a.y.abs());
    !(sides.iter().all(|side| *side > slack) || sides.iter().all(|side| *side < -slack))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(x: f64, y: f64) -> Position {
        Position { x, y }
    }

    #[test]
    fn borders_belong_to_shapes() {
        let triangle = FlatPolygon::new(vec![at(0.0, 0.0), at(4.0, 0.0), at(0.0, 4.0)]).unwrap();
        for inside in [at(0.0, 0.0), at(2.0, 0.0), at(0.0, 2.0), at(1.0, 1.0), at(2.0, 2.0), at(4.0, 0.0)] {
            assert!(triangle.contains(inside), "{inside:?}");
        }
        for outside in [at(-0.1, 0.0), at(2.1, 2.0), at(4.1, 0.0), at(0.0, 4.1), at(1.0, -0.1)] {
            assert!(!triangle.contains(outside), "{outside:?}");
        }
        let square = FlatBox::new(at(2.0, 2.0), at(0.0, 0.0));
        assert!(square.contains(at(2.0, 1.0)) && !square.contains(at(2.1, 1.0)));
        let circle = Circle { center: at(0.1, 0.1), radius: 0.2 };
        assert!(circle.contains(at(0.1, 0.1 + 0.2)) && circle.contains(at(0.1 + 0.2, 0.1)));
        assert!(!circle.contains(at(0.25, 0.25)));
    }

    #[test]
    fn a_polygon_that_crosses_itself_has_holes() {
        let star = [at(0.0, 3.0), at(2.0, -3.0), at(-3.0, 1.0), at(3.0, 1.0), at(-2.0, -3.0)];
        let star = FlatPolygon::new(star.to_vec()).unwrap();
        assert!(star.contains(at(0.0, 2.0)) && !star.contains(at(0.0, 0.0)));
    }

    #[test]
    fn distances_to_boxes() {
        let area = FlatBox::new(at(0.0, 0.0), at(2.0, 2.0));
        assert_eq!((area.distance(at(5.0, 6.0)), area.distance(at(1.0, 1.0))), (5.0, 0.0));
        assert_eq!(area.greatest_distance(at(-1.0, -2.0)), 5.0);
    }
}
