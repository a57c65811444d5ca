//! Places by their indexes against places by collection scans, on random documents: points, lines, slivers and
//! polygons with holes about the poles, the antimeridian and one another's corners. What is near comes in the
//! order of the distances that are measured one by one.

#![allow(clippy::unwrap_used)]

use base::Namespace;
use base::bson::{Builder, DocumentBuf, Value, extended_json};
use database::{
    AggregateRequest, Database, FindRequest, Hint, InsertRequest, ManualClock, Operation, index::IndexSpec,
};
use query::Context;
use query::geo::{Geometry, Position};
use std::collections::BTreeMap;
use std::f64::consts::TAU;
use std::sync::Arc;
use storage::MemoryEngine;

struct Session {
    database: Arc<Database>,
    namespace: Namespace,
    operation: Arc<Operation>,
    context: Arc<Context>,
}

fn json(text: &str) -> DocumentBuf {
    extended_json::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

impl Session {
    fn new(indexes: &[&str]) -> Session {
        let clock = Arc::new(ManualClock::new(1_700_000_000_000));
        let operation = Arc::new(Operation::new(1));
        let session = Session {
            database: Database::open(Arc::new(MemoryEngine::new()), clock, 7).unwrap(),
            namespace: Namespace::parse("test.c").unwrap(),
            context: Arc::new(Context::new(0, 1, operation.clone())),
            operation,
        };
        for index in indexes {
            let spec = IndexSpec::parse(json(index).view(), &session.namespace, &session.context).unwrap();
            let created = session.database.create_indexes(
                &Operation::new(0),
                &session.namespace,
                [spec],
                &session.context,
            );
            created.unwrap();
        }
        session
    }

    fn insert(&self, document: &DocumentBuf) -> bool {
        let insert = InsertRequest { document: document.view(), bypass_validation: false };
        self.database.insert(&Operation::new(0), &self.namespace, insert, &self.context).is_ok()
    }

    /// The `_id`s that a filter finds, in the order they come in.
    fn find(&self, filter: &str, scan: bool) -> Result<Vec<i64>, base::Error> {
        let filter = json(filter);
        let mut request = FindRequest::new(filter.view());
        request.hint = scan.then_some(Hint::Natural { forward: true });
        let cursor = self.database.find(&self.operation, &self.namespace, &request, &self.context)?;
        Ok(all(cursor)?
            .iter()
            .map(|document| document.view().get("_id").unwrap().as_i64().unwrap())
            .collect())
    }

    fn sorted(&self, filter: &str, scan: bool) -> Option<Vec<i64>> {
        let mut ids = self.find(filter, scan).ok()?;
        ids.sort_unstable();
        Some(ids)
    }

    /// The distances that a stage finds.
    fn near(&self, stage: &str) -> Vec<f64> {
        let pipeline = json(&format!("{{pipeline: [{{$geoNear: {stage}}}]}}"));
        let stages = pipeline.view().get("pipeline").unwrap().as_array().unwrap();
        let request = AggregateRequest::new(stages);
        let context = Arc::new(Context::new(0, 1, self.operation.clone()));
        let cursor = self.database.aggregate(&self.operation, &self.namespace, &request, &context).unwrap();
        let far = |document: &DocumentBuf| document.view().get("d").unwrap().as_number().unwrap().to_f64();
        all(cursor).unwrap().iter().map(far).collect()
    }
}

/// The documents of a cursor.
fn all(mut cursor: database::Cursor) -> Result<Vec<DocumentBuf>, base::Error> {
    let mut out = Builder::new();
    out.begin_array("");
    cursor.next_batch(u64::MAX, &mut out)?;
    out.end();
    let out = out.finish();
    let documents = out.view().get("").unwrap().as_array().unwrap();
    Ok(documents.iter().map(|document| document.as_document().unwrap().to_owned()).collect())
}

/// Draws places and shapes, awkward ones often.
struct Draw(u64);

impl Draw {
    fn below(&mut self, count: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % count
    }

    fn unit(&mut self) -> f64 {
        self.below(1 << 53) as f64 / (1u64 << 53) as f64
    }

    fn number(&mut self, most: f64) -> f64 {
        match self.below(4) {
            0 => (self.below(9) as f64 - 4.0) * most / 4.0,
            1 => (self.below(21) as f64 - 10.0).clamp(-most, most),
            _ => (self.unit() * 2.0 - 1.0) * most,
        }
    }

    fn position(&mut self) -> (f64, f64) {
        (self.number(180.0), self.number(90.0))
    }

    fn size(&mut self) -> f64 {
        [0.0001, 0.5, 5.0, 40.0][self.below(4) as usize] * (self.unit() + 0.1)
    }

    /// A ring about a place, narrow ones among them.
    fn ring(&mut self, (x, y): (f64, f64), size: f64, flat: f64) -> String {
        let corners = 3 + self.below(4);
        let turned = self.unit();
        let mut places: Vec<String> = (0..corners)
            .map(|corner| {
                let angle = (corner as f64 / corners as f64 + turned) * TAU;
                let (x, y) = (x + size * angle.cos(), y + size * flat * angle.sin());
                let x = if x > 180.0 {
                    x - 360.0
                } else if x < -180.0 {
                    x + 360.0
                } else {
                    x
                };
                format!("[{x:?}, {:?}]", y.clamp(-90.0, 90.0))
            })
            .collect();
        places.push(places[0].clone());
        format!("[{}]", places.join(", "))
    }

    fn polygon(&mut self) -> String {
        let (at, size) = (self.position(), self.size());
        let flat = if self.below(4) == 0 { 0.001 } else { 1.0 };
        let outer = self.ring(at, size, flat);
        match self.below(3) {
            0 => format!("[{outer}, {}]", self.ring(at, size * 0.3, flat)),
            _ => format!("[{outer}]"),
        }
    }

    fn point(&mut self) -> String {
        let (x, y) = self.position();
        format!("[{x:?}, {y:?}]")
    }

    fn line(&mut self) -> String {
        let ((x, y), size) = (self.position(), self.size());
        let end = |a: f64, most: f64| if a + size > most { a - size } else { a + size };
        format!("[[{x:?}, {y:?}], [{:?}, {:?}]]", end(x, 180.0), end(y, 90.0))
    }

    fn geojson(&mut self) -> String {
        let (kind, coordinates) = match self.below(6) {
            0 | 1 => ("Point", self.point()),
            2 => ("LineString", self.line()),
            3 => ("Polygon", self.polygon()),
            4 => ("MultiPoint", format!("[{}, {}]", self.point(), self.point())),
            _ => ("MultiPolygon", format!("[{}, {}]", self.polygon(), self.polygon())),
        };
        format!("{{type: '{kind}', coordinates: {coordinates}}}")
    }

    fn stored(&mut self) -> String {
        if self.below(2) == 0 { self.point() } else { self.geojson() }
    }

    fn sphere_condition(&mut self) -> String {
        match self.below(4) {
            0 => {
                let radius = self.size() / 30.0;
                format!("{{$geoWithin: {{$centerSphere: [{}, {radius:?}]}}}}", self.point())
            }
            1 => {
                format!("{{$geoWithin: {{$geometry: {{type: 'Polygon', coordinates: {}}}}}}}", self.polygon())
            }
            _ => format!("{{$geoIntersects: {{$geometry: {}}}}}", self.geojson()),
        }
    }

    fn flat_condition(&mut self) -> String {
        let (a, b, c) = (self.point(), self.point(), self.point());
        let shape = match self.below(4) {
            0 => format!("$box: [{a}, {b}]"),
            1 => format!("$center: [{a}, {:?}]", self.size()),
            2 => format!("$centerSphere: [{a}, {:?}]", self.size() / 60.0),
            _ => format!("$polygon: [{a}, {b}, {c}, {}]", self.point()),
        };
        format!("{{$geoWithin: {{{shape}}}}}")
    }
}

const INDEXES: [&str; 3] = [
    "{name: 'geo', key: {geo: '2dsphere'}}",
    "{name: 'old', key: {kind: 1, geo: '2dsphere'}, '2dsphereIndexVersion': 2, finestIndexedLevel: 9, coarsestIndexedLevel: 1}",
    "{name: 'loc', key: {loc: '2d', kind: -1}, bits: 20}",
];

fn filled(draw: &mut Draw, count: i64) -> (Session, BTreeMap<i64, DocumentBuf>) {
    let session = Session::new(&INDEXES);
    let mut documents = BTreeMap::new();
    for id in 0..count {
        let (geo, loc, kind) = (draw.stored(), draw.point(), draw.below(3));
        let several = format!("[{loc}, {}]", draw.point());
        let loc = if kind == 0 { several } else { loc };
        let document = json(&format!("{{_id: NumberLong('{id}'), geo: {geo}, loc: {loc}, kind: {kind}}}"));
        if session.insert(&document) {
            documents.insert(id, document);
        }
    }
    assert!(documents.len() as i64 > count / 2);
    (session, documents)
}

#[test]
fn indexes_find_what_scans_find() {
    let mut draw = Draw(11);
    let (session, _) = filled(&mut draw, 400);
    let mut found = 0;
    for _ in 0..600 {
        let filter = match draw.below(3) {
            0 => format!("{{loc: {}}}", draw.flat_condition()),
            1 => format!("{{geo: {}}}", draw.sphere_condition()),
            _ => format!("{{geo: {}, kind: {}}}", draw.sphere_condition(), draw.below(3)),
        };
        let scanned = session.sorted(&filter, true);
        assert_eq!(session.sorted(&filter, false), scanned, "{filter}");
        found += scanned.map_or(0, |ids| ids.len());
    }
    assert!(found > 1000, "{found}");
}

#[test]
fn what_is_near_comes_in_order() {
    let mut draw = Draw(12);
    let (session, documents) = filled(&mut draw, 300);
    for _ in 0..40 {
        let (x, y) = draw.position();
        let place = Position { x, y };
        let on_sphere = draw.below(2) == 0;
        let (min, max) = match on_sphere {
            true => (draw.unit() * 1e6, 1e6 + draw.unit() * 2e7),
            false => (draw.unit() * 10.0, 10.0 + draw.unit() * 200.0),
        };
        let near = match on_sphere {
            true => format!("{{type: 'Point', coordinates: [{x:?}, {y:?}]}}"),
            false => format!("[{x:?}, {y:?}]"),
        };
        let key = if on_sphere { "geo" } else { "loc" };
        let stage = format!(
            "{{near: {near}, key: '{key}', distanceField: 'd', minDistance: {min:?}, maxDistance: {max:?}}}"
        );
        let mut expected: Vec<f64> = documents
            .values()
            .filter_map(|document| {
                let value = document.view().get(key).unwrap();
                distance(value, place, on_sphere).filter(|far| (min..=max).contains(far))
            })
            .collect();
        expected.sort_by(f64::total_cmp);
        assert_eq!(session.near(&stage), expected, "{stage}");
    }
}

/// The distance of the nearest of a value's places.
fn distance(value: Value<'_>, place: Position, on_sphere: bool) -> Option<f64> {
    let one = |value: Value<'_>| {
        let stored = Geometry::stored(value).ok()?;
        match on_sphere {
            true => {
                let point = json(&format!("{{type: 'Point', coordinates: [{:?}, {:?}]}}", place.x, place.y));
                let point = Geometry::stored(Value::Document(point.view())).ok()?;
                let query::geo::Geometry::Sphere { parts, .. } = point else { return None };
                let [query::geo::Part::Point(_, point)] = parts.as_slice() else { return None };
                stored.metres_from(*point)
            }
            false => stored.distance_from(place),
        }
    };
    one(value).or_else(|| value.as_array()?.iter().filter_map(one).reduce(f64::min))
}
