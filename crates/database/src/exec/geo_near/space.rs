//! The world in which nearness is measured: the sphere or the plane, and an index of either.

use crate::access::Access;
use crate::access::interval::Intervals;
use crate::index::{GeoIndex, KeyRange, hashes};
use base::bson::Value;
use base::{Result, err};
use query::geo::hash::Grid;
use query::geo::{Circle, EARTH_RADIUS, Geometry};
use query::matcher::{Center, Near};

/// How distances are measured, and where in an index to look.
pub(super) struct Space<'a> {
    near: &'a Near,
    geo: &'a GeoIndex,
}

impl<'a> Space<'a> {
    /// `None` for an index that has no places.
    pub(super) fn new(access: &'a Access, near: &'a Near) -> Option<Space<'a>> {
        Some(Space { near, geo: access.index.spec.geo.as_ref()? })
    }

    /// Errors: 16433 where the place lies beyond the bounds of a `2d` index.
    pub(super) fn check(&self) -> Result<()> {
        let position = self.position();
        match self.geo {
            GeoIndex::Flat(grid) if !grid.holds(position) => Err(err!(
                16433,
                "point not in interval of [ {}, {} ] :: caused by :: {{ 0: {}, 1: {} }}",
                grid.min,
                grid.max,
                position.x,
                position.y
            )),
            _ => Ok(()),
        }
    }

    fn position(&self) -> query::geo::Position {
        match self.near.center {
            Center::Flat(position) | Center::Sphere(position, _) => position,
        }
    }

    /// No place of the index is farther.
    pub(super) fn farthest(&self) -> f64 {
        match (self.geo, self.near.center) {
            (GeoIndex::Flat(grid), Center::Flat(position)) => {
                let far = |value: f64| (value - grid.min).abs().max((grid.max - value).abs());
                (far(position.x) + far(position.y)) * 1.001
            }
            _ => std::f64::consts::PI * EARTH_RADIUS,
        }
    }

    /// A distance to begin the search for a first ring with.
    pub(super) fn least_step(&self) -> f64 {
        match (self.geo, self.near.center) {
            (GeoIndex::Flat(grid), Center::Flat(_)) => grid.cell_width(),
            _ => 1.0,
        }
    }

    /// The bounds of the keys of everything within a distance.
    pub(super) fn within(&self, distance: f64) -> Intervals {
        Intervals::of(&self.ranges_within(distance))
    }

    fn ranges_within(&self, distance: f64) -> Vec<KeyRange> {
        match (self.geo, self.near.center) {
            (GeoIndex::Sphere(sphere), Center::Sphere(_, point)) => {
                self.geo.cell_ranges(&sphere.levels.covering_around(point, distance / EARTH_RADIUS))
            }
            (GeoIndex::Flat(grid), Center::Flat(center)) => {
                hashes(grid.ranges_of_circle(&Circle { center, radius: distance }))
            }
            (GeoIndex::Flat(grid), Center::Sphere(..)) => self.hashes_within(grid, distance),
            (GeoIndex::Sphere(_), Center::Flat(_)) => Vec::new(),
        }
    }

    fn hashes_within(&self, grid: &Grid, distance: f64) -> Vec<KeyRange> {
        let circle = Circle { center: self.position(), radius: distance / EARTH_RADIUS };
        match query::geo::Cap::new(circle) {
            Ok(cap) => hashes(grid.ranges_of_cap(&cap.cap)),
            Err(_) => Vec::new(),
        }
    }

    /// The bounds of keys that nothing beyond a distance has.
    pub(super) fn nearer_than(&self, distance: f64) -> Intervals {
        Intervals::of(&self.ranges_nearer_than(distance))
    }

    fn ranges_nearer_than(&self, distance: f64) -> Vec<KeyRange> {
        match (self.geo, self.near.center) {
            (GeoIndex::Sphere(sphere), Center::Sphere(_, point)) => {
                self.geo.cell_ranges(&sphere.levels.inside(point, distance / EARTH_RADIUS))
            }
            (GeoIndex::Flat(grid), Center::Flat(center)) => {
                hashes(grid.inside(&Circle { center, radius: distance }))
            }
            _ => Vec::new(),
        }
    }

    /// The distance of a value; `None` for what is no place of this world.
    pub(super) fn distance(&self, value: Value<'_>) -> Option<f64> {
        let stored = Geometry::stored(value).ok()?;
        match self.near.center {
            Center::Flat(position) => stored.distance_from(position),
            Center::Sphere(_, point) => stored.metres_from(point),
        }
    }
}
