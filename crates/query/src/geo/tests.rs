//! Tests of coverings: a covering may have too much, never too little.

use super::cells::{Covering, Levels, range};
use super::hash::Grid;
use super::{Cap, Circle, FlatBox, FlatPolygon, Geometry, Position};
use base::bson::{Document, Value, extended_json};
use proptest::prelude::*;

fn geometry(text: &str) -> Geometry {
    let document = extended_json::parse(text).unwrap();
    Geometry::stored(Value::Document(document.view())).unwrap()
}

/// Numbers with many duplicates and borders, and the extreme values.
fn number(most: f64) -> impl Strategy<Value = f64> {
    prop_oneof![
        (-4i32..=4).prop_map(move |part| f64::from(part) * most / 4.0),
        (-20i32..=20).prop_map(move |part| f64::from(part).min(most)),
        -most..=most,
        (-1.0..=1.0f64).prop_map(|small| small * 1e-6),
    ]
}

fn position() -> impl Strategy<Value = Position> {
    (number(180.0), number(90.0)).prop_map(|(x, y)| Position { x, y })
}

fn flat_shape() -> impl Strategy<Value = Geometry> {
    let radius = prop_oneof![0.0..1e-6f64, 0.0..5.0f64, 0.0..200.0f64];
    prop_oneof![
        (position(), position()).prop_map(|(a, b)| Geometry::Box(FlatBox::new(a, b))),
        (position(), radius).prop_map(|(center, radius)| Geometry::Circle(Circle { center, radius })),
        proptest::collection::vec(position(), 3..7)
            .prop_map(|corners| Geometry::Polygon(FlatPolygon::new(corners).unwrap())),
    ]
}

/// Circles on the sphere, including circles around poles and on the antimeridian.
fn cap() -> impl Strategy<Value = Geometry> {
    let radius = prop_oneof![0.0..1e-8f64, 0.0..0.01f64, 0.0..1.5f64, 0.0..3.1f64];
    (position(), radius)
        .prop_map(|(center, radius)| Geometry::Cap(Cap::new(Circle { center, radius }).unwrap()))
}

/// Triangles, including triangles across poles and the antimeridian.
fn triangle() -> impl Strategy<Value = Geometry> {
    (position(), position(), position()).prop_filter_map("no polygon", |(a, b, c)| {
        let ring = [a, b, c, a].map(|Position { x, y }| format!("[{x}, {y}]")).join(", ");
        let document =
            extended_json::parse(&format!("{{type: 'Polygon', coordinates: [[{ring}]]}}")).unwrap();
        Geometry::stored(Value::Document(document.view())).ok()
    })
}

fn round_shape() -> impl Strategy<Value = Geometry> {
    prop_oneof![cap(), triangle()]
}

/// The ranges of keys within a covering.
fn ranges_of(covering: &Covering) -> Vec<(i64, i64)> {
    let above = covering.above.iter().map(|cell| (*cell, *cell));
    covering.cells.iter().map(|cell| range(*cell)).chain(above).collect()
}

proptest! {
    #[test]
    fn the_grid_covers_flat_shapes(
        shape in flat_shape(),
        positions in proptest::collection::vec(position(), 1..30),
        bits in 1u32..=32,
    ) {
        let grid = Grid::new(Some(f64::from(bits)), None, None).unwrap();
        let ranges = grid.ranges(&shape).unwrap();
        for position in positions {
            let key = grid.key(position, Document::EMPTY).unwrap();
            let covered = ranges.iter().any(|(first, last)| (*first..=*last).contains(&key));
            prop_assert!(covered || !shape.contains(Geometry::Pair(position)), "{shape:?} {position:?}");
        }
    }

    #[test]
    fn cells_cover_spherical_shapes(
        shape in round_shape(),
        positions in proptest::collection::vec(position(), 1..30),
    ) {
        let levels = Levels::of_version(3);
        let grid = Grid::new(None, None, None).unwrap();
        let ranges = ranges_of(&levels.covering(&shape).unwrap());
        for position in positions {
            let stored = Geometry::Pair(position).stored_parts().unwrap();
            let contained = shape.contains(Geometry::Pair(position));
            let keys = levels.keys(&stored, true).unwrap();
            let covers = |key: &i64| ranges.iter().any(|(first, last)| (*first..=*last).contains(key));
            prop_assert!(keys.iter().any(covers) || !contained, "{shape:?} {position:?}");
            if let (Geometry::Cap(_), true) = (&shape, contained) {
                let key = grid.key(position, Document::EMPTY).unwrap();
                let ranges = grid.ranges(&shape).unwrap();
                prop_assert!(ranges.iter().any(|(first, last)| (*first..=*last).contains(&key)), "{position:?}");
            }
        }
    }

    #[test]
    fn shapes_that_meet_share_cells(a in triangle(), b in triangle()) {
        let levels = Levels::of_version(3);
        let ranges = ranges_of(&levels.covering(&a).unwrap());
        let keys = match &b {
            Geometry::Sphere { parts, .. } => levels.keys(parts, true).unwrap(),
            _ => Vec::new(),
        };
        let shared = keys.iter().any(|key| ranges.iter().any(|(first, last)| (*first..=*last).contains(key)));
        prop_assert!(shared || !a.intersects(b));
    }
}

#[test]
fn keys_equal_mongodbs() {
    // Documented values for 26 bits and for the cell of a point.
    let grid = Grid::new(None, None, None).unwrap();
    let key = |x: f64, y: f64| format!("{:016x}", grid.key(Position { x, y }, Document::EMPTY).unwrap());
    assert_eq!(key(-180.0, -180.0), "0000000000000000");
    assert_eq!(key(0.0, 0.0), "c000000000000000");
    assert_eq!(key(180.0, 180.0), "fffffffffffff000");
    let levels = Levels::of_version(3);
    assert_eq!((levels.finest, levels.coarsest, levels.most), (16, 2, 20));
    assert_eq!(
        levels.keys(&geometry("{type: 'Point', coordinates: [0, 0]}").stored_parts().unwrap(), true).unwrap(),
        [1152921504606846977]
    );
    let old = Levels::of_version(2);
    assert_eq!((old.finest, old.coarsest), (14, 7));
}

#[test]
fn distances_follow_great_circles() {
    let origin = Position { x: 0.0, y: 0.0 }.to_sphere().unwrap();
    let metres = |text: &str| geometry(text).metres_from(origin).unwrap().round();
    assert_eq!(metres("{type: 'Point', coordinates: [1, 0]}"), 111319.0);
    assert_eq!(metres("{type: 'LineString', coordinates: [[1, -1], [1, 1]]}"), 111319.0);
    assert_eq!(metres("{type: 'Polygon', coordinates: [[[-1, -1], [1, -1], [0, 1], [-1, -1]]]}"), 0.0);
    assert_eq!(metres("{type: 'MultiPoint', coordinates: [[180, 0], [0, 1]]}"), 111319.0);
}
