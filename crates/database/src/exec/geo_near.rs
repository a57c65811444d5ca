//! GEO_NEAR_2DSPHERE and GEO_NEAR_2D: records by their distance from a location.
//!
//! The index is read in growing rings (the `searchIntervals` of explain): first the keys within a small distance, then
//! the unread keys within a greater distance. Measured records wait in a heap. A record is returned when the rings read
//! so far include its distance, because no nearer record can follow. The width of a ring depends on the number of
//! records in the previous rings, so that few results need few reads.
//!
//! [`Space`] has the geometry. A new kind of location or geospatial index is a case in its functions.

use super::ixscan::IndexScan;
use super::or::SeenIds;
use super::prefetch::Prefetch;
use super::{ExecContext, IdStream, RecordStream, Report, Scan, Stats, search_within_budget, stored};
use crate::access::{Access, Intervals};
use crate::index::{GeoIndex, KeyRange, elements, hashes};
use crate::keys::RecordId;
use base::bson::{Document, Value, ValueBuf};
use base::{Result, err, ordered_by};
use query::geo::hash::Grid;
use query::geo::{Circle, EARTH_RADIUS, Geometry};
use query::matcher::{Center, Matcher, Near};
use query::{DocumentMetadata, MetaKind, MetaKinds, Row};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// A ring with fewer records makes the next ring wider. A ring with more than twice as many makes
/// it narrower.
const RING_RECORDS: usize = 300;
/// Growth factor of empty rings.
const EMPTY_GROWTH: f64 = 8.0;

/// A geospatial index, the bounds of its other parts, and the search.
#[derive(Clone)]
pub(crate) struct NearAccess {
    /// The index.
    pub(crate) access: Access,
    /// The index's geospatial part.
    part: usize,
    near: Near,
}

impl NearAccess {
    /// Errors: 16433 for a location outside of the index's bounds.
    pub(crate) fn new(access: Access, part: usize, near: Near) -> Result<NearAccess> {
        if let Some(space) = Space::new(&access, &near) {
            space.check()?;
        }
        Ok(NearAccess { access, part, near })
    }

    /// Returns the stage's name.
    pub(crate) fn stage(&self) -> &'static str {
        match self.access.index.spec.geo {
            Some(GeoIndex::Flat(_)) => "GEO_NEAR_2D",
            _ => "GEO_NEAR_2DSPHERE",
        }
    }
}

/// A record with its measured distance.
struct NearRecord {
    distance: f64,
    id: RecordId,
    /// The nearest location of the record, if it is requested.
    point: Option<ValueBuf>,
}

/// A ring, as explain prints it: distances in metres on the sphere, in the index's units in the plane.
struct Ring {
    inner: f64,
    outer: f64,
    buffered: u64,
    returned: u64,
}

/// Yields the records near a location, nearest first.
pub(crate) struct GeoNear {
    exec_context: Arc<ExecContext>,
    near: Arc<NearAccess>,
    filter: Option<Arc<Matcher>>,
    metadata: MetaKinds,
    /// Distance up to which the index has been read, in metres or in the index's units.
    outer: f64,
    /// Maximum distance.
    end: f64,
    /// Width of the next ring; `None` before the first.
    step: Option<f64>,
    /// The bounds that have been read.
    read: Intervals,
    seen: SeenIds,
    /// Records that have been read and not returned, the nearest first.
    records: BinaryHeap<Reverse<NearRecord>>,
    rings: Vec<Ring>,
    /// Statistics of the search, and of the filter's FETCH above it.
    stats: Stats,
    fetched: Stats,
    keys: u64,
    documents: u64,
}

impl GeoNear {
    pub(crate) fn new(
        exec_context: &Arc<ExecContext>,
        near: &Arc<NearAccess>,
        filter: Option<Arc<Matcher>>,
        metadata: MetaKinds,
    ) -> GeoNear {
        let space = Space::new(&near.access, &near.near);
        let distance_max = space.as_ref().map_or(0.0, Space::distance_max);
        let read = match &space {
            Some(space) if near.near.min > 0.0 => space.nearer_than(near.near.min),
            _ => Intervals::default(),
        };
        GeoNear {
            exec_context: exec_context.clone(),
            filter,
            metadata,
            outer: near.near.min,
            end: near.near.max.min(distance_max),
            step: None,
            read,
            seen: SeenIds::default(),
            records: BinaryHeap::new(),
            rings: Vec::new(),
            stats: Stats::default(),
            fetched: Stats::default(),
            keys: 0,
            documents: 0,
            near: near.clone(),
        }
    }

    /// Returns true if all records have been read.
    fn is_complete(&self) -> bool {
        self.step.is_some() && self.outer >= self.end
    }

    /// Returns the unread bounds within a distance.
    fn unread(&self, distance: f64) -> Option<(Intervals, Intervals)> {
        let all = Space::new(&self.near.access, &self.near.near)?.within(distance);
        Some((all.intersection(&self.read.complement()), all))
    }

    fn scan(&self, bounds: Intervals, prefetch: Prefetch) -> Result<Option<IndexScan>> {
        let mut access = self.near.access.clone();
        if let Some(part) = access.parts.get_mut(self.near.part) {
            *part = bounds;
        }
        match access.is_empty() {
            true => Ok(None),
            false => {
                let scan = Scan::new(Arc::new(access), true);
                IndexScan::open(&self.exec_context, &scan, prefetch).map(Some)
            }
        }
    }

    /// Returns the width of the first ring: a distance within which the index has keys.
    fn first_step(&mut self) -> Result<f64> {
        let mut step = Space::new(&self.near.access, &self.near.near).map_or(1.0, |space| space.least_step());
        loop {
            let outer = self.outer + step;
            if outer >= self.end {
                return Ok(step);
            }
            let Some((unread, _)) = self.unread(outer) else { return Ok(step) };
            if let Some(mut scan) = self.scan(unread, Prefetch::default())? {
                let first = scan.next()?;
                self.keys += scan.examined();
                if first.is_some() {
                    return Ok(step);
                }
            }
            step *= EMPTY_GROWTH;
        }
    }

    /// Reads the next ring.
    fn read_ring(&mut self) -> Result<()> {
        let step = match self.step {
            Some(step) => step,
            None => self.first_step()?,
        };
        let outer = (self.outer + step).min(self.end);
        let mut count = 0;
        if let Some((unread, all)) = self.unread(outer) {
            if let Some(mut scan) = self.scan(unread, Prefetch { records: true, limit: 0 })? {
                while let Some(id) = scan.next()? {
                    count += usize::from(self.measure(&mut scan, id)?);
                }
                self.keys += scan.examined();
            }
            self.read = self.read.with(&all);
        }
        let factor = match count {
            0 => EMPTY_GROWTH,
            1..RING_RECORDS => 2.0,
            count if count > 2 * RING_RECORDS => 0.5,
            _ => 1.0,
        };
        self.step = Some(step * factor);
        self.rings.push(Ring { inner: self.outer, outer, buffered: count as u64, returned: 0 });
        self.outer = outer.max(self.outer);
        Ok(())
    }

    /// Reads and measures a record. Returns true if it must be returned.
    fn measure(&mut self, scan: &mut IndexScan, id: RecordId) -> Result<bool> {
        if !self.seen.insert(id) {
            return Ok(false);
        }
        self.documents += 1;
        self.exec_context.examine_document()?;
        let Some(stored) = self.exec_context.document(scan, id)? else { return Ok(false) };
        let document = Document::from_valid(&stored);
        let NearAccess { access, near, .. } = &*self.near;
        let (Some(space), Some(path)) = (Space::new(access, near), access.path(self.near.part)) else {
            return Ok(false);
        };
        let mut best: Option<(f64, ValueBuf)> = None;
        let mut note = |value: Value<'_>| {
            let distance = space.distance(value);
            if let Some(distance) =
                distance.filter(|distance| best.as_ref().is_none_or(|(least, _)| distance < least))
            {
                best = Some((distance, value.to_owned()));
            }
            distance.is_some()
        };
        elements(document, path.components(), false, &mut |value| match value {
            _ if note(value) => {}
            Value::Array(points) => points.iter().for_each(|point| _ = note(point)),
            _ => {}
        });
        let Some((distance, point)) = best.filter(|(distance, _)| (near.min..=near.max).contains(distance))
        else {
            return Ok(false);
        };
        let point = self.metadata.has(MetaKind::GeoNearPoint).then_some(point);
        self.records.push(Reverse(NearRecord { distance, id, point }));
        Ok(true)
    }

    /// Returns the nearest record if no unread record can be nearer.
    fn take(&mut self) -> Option<NearRecord> {
        let Reverse(nearest) = self.records.peek()?;
        // Records at the ring's outer distance may also be in the next ring, in any order.
        if nearest.distance > self.outer && !self.is_complete() {
            return None;
        }
        self.records.pop().map(|Reverse(nearest)| nearest)
    }

    /// Returns the next matching record, `Some(None)` at the end, or `None` beyond the budget of examined documents.
    fn search(&mut self, budget: u64) -> Result<Option<Option<Row>>> {
        let started = self.documents;
        loop {
            while let Some(nearest) = self.take() {
                self.stats.advance();
                if let Some(ring) = self.rings.last_mut() {
                    ring.returned += 1;
                }
                let Some(value) = self.exec_context.fetch(nearest.id)? else { continue };
                let matched = self.exec_context.passes(&self.filter, &value)?;
                if matched {
                    self.fetched.advance();
                    let metadata = self.metadata_of(&nearest);
                    return Ok(Some(Some(Row { metadata, ..stored(nearest.id, value.to_shared()) })));
                }
                self.fetched.need_time();
            }
            if self.is_complete() {
                self.stats.end();
                self.fetched.end();
                return Ok(Some(None));
            }
            if self.documents - started > budget {
                return Ok(None);
            }
            self.stats.need_time();
            self.read_ring()?;
        }
    }

    fn metadata_of(&self, record: &NearRecord) -> Option<Box<DocumentMetadata>> {
        (!self.metadata.is_empty()).then(|| {
            Box::new(DocumentMetadata {
                geo_near_distance: Some(self.near.near.shown(record.distance)),
                geo_near_point: record.point.clone(),
                ..DocumentMetadata::default()
            })
        })
    }
}

impl RecordStream for GeoNear {
    fn next(&mut self) -> Result<Option<Row>> {
        search_within_budget(self, |stage| &stage.exec_context.operation, Self::search)
    }

    fn report(&self, report: &mut Report) {
        if self.filter.is_some() {
            report.node(&self.fetched);
        }
        let ran = report.node(&self.stats);
        (ran.keys_examined, ran.docs_examined) = (self.keys, self.documents);
        ran.own.begin_array(c"searchIntervals");
        for ring in &self.rings {
            let shown = |distance: f64| self.near.near.shown(distance);
            ran.own
                .push_document()
                .append(c"minDistance", shown(ring.inner))
                .append(c"maxDistance", shown(ring.outer))
                .append(c"maxInclusive", ring.outer >= self.end)
                .append(c"nBuffered", ring.buffered as i64)
                .append(c"nReturned", ring.returned as i64)
                .end();
        }
        ran.own.end();
    }
}

ordered_by!(NearRecord, |one, other| one.distance.total_cmp(&other.distance).then(one.id.cmp(&other.id)));

// Geometry of the search: sphere or plane, and an index of either.

/// Distances, and the index keys within them.
struct Space<'a> {
    near: &'a Near,
    geo: &'a GeoIndex,
}

impl<'a> Space<'a> {
    /// Returns `None` for an index without geospatial keys.
    fn new(access: &'a Access, near: &'a Near) -> Option<Space<'a>> {
        Some(Space { near, geo: access.index.spec.geo.as_ref()? })
    }

    /// Errors: 16433 for a location outside of the bounds of a `2d` index.
    fn check(&self) -> Result<()> {
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

    /// Returns a distance that includes all locations of the index.
    fn distance_max(&self) -> f64 {
        match (self.geo, self.near.center) {
            (GeoIndex::Flat(grid), Center::Flat(position)) => {
                let distance = |value: f64| (value - grid.min).abs().max((grid.max - value).abs());
                (distance(position.x) + distance(position.y)) * 1.001
            }
            _ => std::f64::consts::PI * EARTH_RADIUS,
        }
    }

    /// Returns the initial distance of the search for the first ring.
    fn least_step(&self) -> f64 {
        match (self.geo, self.near.center) {
            (GeoIndex::Flat(grid), Center::Flat(_)) => grid.cell_width(),
            _ => 1.0,
        }
    }

    /// Returns the bounds of the keys of all locations within a distance.
    fn within(&self, distance: f64) -> Intervals {
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

    /// Returns the bounds of keys that no location beyond a distance has.
    fn nearer_than(&self, distance: f64) -> Intervals {
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

    /// Returns the distance of a value; `None` if it is not a location of this geometry.
    fn distance(&self, value: Value<'_>) -> Option<f64> {
        let stored = Geometry::stored(value).ok()?;
        match self.near.center {
            Center::Flat(position) => stored.distance_from(position),
            Center::Sphere(_, point) => stored.metres_from(point),
        }
    }
}
