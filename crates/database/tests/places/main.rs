//! Compares geospatial indexes with collection scans on random documents: points, lines, slivers
//! and polygons with holes. They lie near the poles, across the antimeridian, and on one another's
//! corners and edges. `$geoNear` results must be sorted by distances measured one by one.
//!
//! `PLACES_SEEDS=1000 PLACES_FROM=50` sets the number of cases and the first seed. A failure prints
//! its seed.

#![allow(clippy::unwrap_used)]

mod draw;

use base::Namespace;
use base::bson::{Builder, DocumentBuf, Value, extended_json};
use database::{
    AggregateRequest, Database, FindRequest, Hint, InsertRequest, ManualClock, Operation, Scope,
    index::IndexSpec,
};
use draw::Draw;
use query::Context;
use query::geo::{EARTH_RADIUS, Geometry, Position};
use std::collections::BTreeMap;
use std::ops::Range;
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
    fn new(indexes: &[String]) -> Session {
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
        self.database
            .insert(&Scope::new(&Arc::new(Operation::new(0)), &self.namespace, &self.context), insert)
            .is_ok()
    }

    /// Returns the `_id`s that a filter finds, in the order of the results.
    fn find(&self, filter: &str, scan: bool) -> Result<Vec<i64>, base::Error> {
        let filter = json(filter);
        let mut request = FindRequest::new(filter.view());
        request.hint = scan.then_some(Hint::Natural { forward: true });
        let cursor =
            self.database.find(&Scope::new(&self.operation, &self.namespace, &self.context), &request)?;
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

    /// Returns the distances that a stage finds.
    fn near(&self, stage: &str) -> Vec<f64> {
        let pipeline = json(&format!("{{pipeline: [{{$geoNear: {stage}}}]}}"));
        let stages = pipeline.view().get("pipeline").unwrap().as_array().unwrap();
        let request = AggregateRequest::new(stages);
        let context = Arc::new(Context::new(0, 1, self.operation.clone()));
        let cursor = self
            .database
            .aggregate(&Scope::new(&self.operation, &self.namespace, &context), &request)
            .unwrap();
        let far = |document: &DocumentBuf| document.view().get("d").unwrap().as_number().unwrap().to_f64();
        all(cursor).unwrap().iter().map(far).collect()
    }
}

/// Returns the documents of a cursor.
fn all(mut cursor: database::Cursor) -> Result<Vec<DocumentBuf>, base::Error> {
    let mut out = Builder::new();
    out.begin_array(c"");
    cursor.next_batch(u64::MAX, &mut out)?;
    out.end();
    let out = out.finish();
    let documents = out.view().get("").unwrap().as_array().unwrap();
    Ok(documents.iter().map(|document| document.as_document().unwrap().to_owned()).collect())
}

/// Returns one index of each kind, with random options.
fn indexes(draw: &mut Draw) -> Vec<String> {
    let version = 1 + draw.below(3);
    let coarsest = draw.below(8);
    let finest = coarsest + draw.below(10);
    let old = match draw.below(3) {
        0 => format!("'2dsphereIndexVersion': {version}"),
        _ => format!(
            "'2dsphereIndexVersion': {version}, finestIndexedLevel: {finest}, coarsestIndexedLevel: {coarsest}"
        ),
    };
    let bits = 1 + draw.below(32);
    let limits = *draw.pick(&["", ", min: -200, max: 200.5", ", min: -180.1, max: 1000"]);
    vec![
        "{name: 'geo', key: {geo: '2dsphere'}}".to_string(),
        format!("{{name: 'old', key: {{kind: 1, old: '2dsphere'}}, {old}}}"),
        format!("{{name: 'loc', key: {{loc: '2d', kind: -1}}, bits: {bits}{limits}}}"),
    ]
}

fn filled(draw: &mut Draw, count: i64) -> (Session, BTreeMap<i64, DocumentBuf>) {
    let indexes = indexes(draw);
    let session = Session::new(&indexes);
    let mut documents = BTreeMap::new();
    for id in 0..count {
        let (geo, loc, kind) = (draw.stored(), draw.point(), draw.below(3));
        let old = if draw.below(4) == 0 { draw.point() } else { geo.clone() };
        let several = format!("[{loc}, {}]", draw.point());
        let loc = if kind == 0 { several } else { loc };
        let document =
            json(&format!("{{_id: NumberLong('{id}'), geo: {geo}, old: {old}, loc: {loc}, kind: {kind}}}"));
        if session.insert(&document) {
            documents.insert(id, document);
        }
    }
    assert!(documents.len() as i64 > count / 3, "{indexes:?}");
    (session, documents)
}

/// Returns the seeds to test, from `PLACES_SEEDS` and `PLACES_FROM` or a default number.
fn seeds(each_day: u64) -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
    let from = number("PLACES_FROM").unwrap_or(1);
    from..from + number("PLACES_SEEDS").unwrap_or(each_day)
}

#[test]
fn indexes_equal_scans() {
    let (mut found, mut requested, mut refused) = (0, 0, 0);
    for seed in seeds(12) {
        let mut draw = Draw::new(seed);
        let (session, _) = filled(&mut draw, 120);
        for _ in 0..120 {
            let filter = match draw.below(4) {
                0 => format!("{{loc: {}}}", draw.flat_condition()),
                1 => format!("{{geo: {}}}", draw.sphere_condition()),
                2 => format!("{{old: {}}}", draw.sphere_condition()),
                _ => format!("{{old: {}, kind: {}}}", draw.sphere_condition(), draw.below(3)),
            };
            let scanned = session.sorted(&filter, true);
            assert_eq!(session.sorted(&filter, false), scanned, "seed {seed}: {filter}");
            requested += 1;
            refused += usize::from(scanned.is_none());
            found += scanned.map_or(0, |ids| ids.len());
        }
    }
    assert!(
        found > 2 * requested && refused * 5 < requested,
        "{found} found by {requested}, {refused} refused"
    );
}

/// A search near a location, by an index.
struct Requested {
    position: Position,
    key: &'static str,
    near: String,
    /// Whether distances are on the sphere, and whether they are in radians.
    on_sphere: bool,
    radians: bool,
}

impl Requested {
    fn draw(draw: &mut Draw) -> Requested {
        let (x, y) = draw.position();
        let pair = format!("[{x:?}, {y:?}]");
        let point = format!("{{type: 'Point', coordinates: {pair}}}");
        let (key, near, on_sphere, radians) = match draw.below(4) {
            0 => ("geo", point, true, false),
            1 => (*draw.pick(&["geo", "old"]), point, true, false),
            2 => (*draw.pick(&["geo", "loc"]), format!("{pair}, spherical: true"), true, true),
            _ => ("loc", pair, false, false),
        };
        Requested { position: Position { x, y }, key, near, on_sphere, radians }
    }

    /// Returns the distances of documents in the search's unit.
    fn distances(&self, documents: &BTreeMap<i64, DocumentBuf>, of: Option<(&str, i64)>) -> Vec<f64> {
        let unit = if self.radians { EARTH_RADIUS } else { 1.0 };
        let of_kind = |document: &&DocumentBuf| {
            let has = |(name, value)| document.view().get(name).and_then(|own| own.as_i64()) == Some(value);
            of.is_none_or(has)
        };
        let values =
            documents.values().filter(of_kind).map(|document| document.view().get(self.key).unwrap());
        values
            .filter_map(|value| distance(value, self.position, self.on_sphere))
            .map(|far| far / unit)
            .collect()
    }
}

#[test]
fn near_results_are_sorted() {
    let mut found = 0;
    for seed in seeds(12) {
        let mut draw = Draw::new(seed);
        let (session, documents) = filled(&mut draw, 120);
        for _ in 0..12 {
            let requested = Requested::draw(&mut draw);
            // An index with another field before the location needs a condition on that field.
            let of = match draw.below(6) {
                0 if requested.key != "old" => Some(("_id", draw.below(120) as i64)),
                1 | 2 => Some(("kind", draw.below(3) as i64)),
                _ if requested.key == "old" => Some(("kind", draw.below(3) as i64)),
                _ => None,
            };
            let mut expected = requested.distances(&documents, of);
            expected.sort_by(f64::total_cmp);
            // Limits between distances, at a distance (not in radians, which are rounded), or none.
            let mut limit = |from: f64| match draw.below(3) {
                0 => None,
                1 if !requested.radians && !expected.is_empty() => Some(*draw.pick(&expected)),
                _ => Some(from * (0.5 + draw.unit()) * expected.last().copied().unwrap_or(1.0)),
            };
            let (min, max) = (limit(0.2), limit(0.8));
            let option = |name: &str, value: Option<f64>| {
                value.map(|value| format!(", {name}: {value:?}")).unwrap_or_default()
            };
            let (least, most) = (option("minDistance", min), option("maxDistance", max));
            let query = of.map(|(name, value)| format!(", query: {{{name}: {value}}}")).unwrap_or_default();
            let Requested { near, key, .. } = &requested;
            let stage = format!("{{near: {near}, key: '{key}', distanceField: 'd'{least}{most}{query}}}");
            expected.retain(|far| min.is_none_or(|min| min <= *far) && max.is_none_or(|max| *far <= max));
            found += expected.len();
            assert_eq!(session.near(&stage), expected, "seed {seed}: {stage}");
        }
    }
    assert!(found > 1000, "{found}");
}

/// Returns the distance of the nearest location of a value.
fn distance(value: Value<'_>, position: Position, on_sphere: bool) -> Option<f64> {
    let one = |value: Value<'_>| {
        let stored = Geometry::stored(value).ok()?;
        match on_sphere {
            true => {
                let point =
                    json(&format!("{{type: 'Point', coordinates: [{:?}, {:?}]}}", position.x, position.y));
                let point = Geometry::stored(Value::Document(point.view())).ok()?;
                let query::geo::Geometry::Sphere { parts, .. } = point else { return None };
                let [query::geo::Part::Point(_, point)] = parts.as_slice() else { return None };
                stored.metres_from(*point)
            }
            false => stored.distance_from(position),
        }
    };
    one(value).or_else(|| value.as_array()?.iter().filter_map(one).reduce(f64::min))
}
