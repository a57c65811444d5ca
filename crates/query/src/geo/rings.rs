//! Polygons of GeoJSON: an outer ring and its holes, validated as in MongoDB.

use super::geojson::{elements, kind_of, vertex};
use base::bson::{Array, Value};
use base::{Result, bail, err};
use s2rst::s2::{LatLng, Loop, Point, Polygon};

/// Parses a polygon. Each ring bounds the smaller of its two sides.
///
/// Errors: BadValue.
pub(super) fn polygon(coordinates: Option<Value<'_>>) -> Result<Polygon> {
    let Some(Value::Array(rings)) = coordinates else {
        bail!(BadValue, "Polygon coordinates must be an array, instead got type {}", kind_of(coordinates));
    };
    let mut loops: Vec<Loop> = Vec::new();
    for ring in rings.iter() {
        let vertices = ring_vertices(ring)?;
        let mut vertex_loop = checked(vertices).map_err(|error| not_valid(ring, &error))?;
        vertex_loop.normalize();
        if loops.first().is_some_and(|outer| !outer.contains_loop(&vertex_loop)) {
            bail!(
                BadValue,
                "Secondary loops not contained by first exterior loop - secondary loops must be holes: {ring} \
                 first loop: {}",
                rings.iter().next().unwrap_or(Value::Null)
            );
        }
        loops.push(vertex_loop);
    }
    if loops.is_empty() {
        bail!(BadValue, "Polygon has no loops.");
    }
    if loops.len() == 1 {
        return Ok(Polygon::from_loops(loops));
    }
    let polygon = Polygon::from_loops(loops);
    check_holes(&polygon, rings)?;
    Ok(polygon)
}

/// Parses a polygon of one ring, whose interior is left of it.
///
/// Errors: BadValue.
pub(super) fn strict(coordinates: Option<Value<'_>>) -> Result<Polygon> {
    let Some(Value::Array(rings)) = coordinates else {
        bail!(BadValue, "Coordinates of polygon must be an array");
    };
    let (Some(ring), 1) = (rings.iter().next(), rings.len()) else {
        bail!(
            BadValue,
            "Only one simple loop is allowed in a big polygon, instead provided {} loops: {}",
            rings.len(),
            Value::Array(rings)
        );
    };
    let own = checked(ring_vertices(ring)?).map_err(|error| not_valid(Value::Array(rings), &error))?;
    Ok(Polygon::from_loops(vec![own]))
}

fn not_valid(ring: Value<'_>, error: &str) -> base::Error {
    err!(BadValue, "Loop is not valid: {ring} {error}")
}

/// Returns the corners of a closed ring, each once.
fn ring_vertices(ring: Value<'_>) -> Result<Vec<Point>> {
    let mut vertices: Vec<Point> = elements(Some(ring))?.iter().map(vertex).collect::<Result<_>>()?;
    let (Some(first), Some(last)) = (vertices.first(), vertices.last()) else {
        bail!(BadValue, "Loop has no vertices: {ring}");
    };
    if first != last {
        bail!(BadValue, "Loop is not closed: {ring}");
    }
    vertices.dedup();
    vertices.pop();
    if vertices.len() < 3 {
        bail!(
            BadValue,
            "Loop must have at least 3 different vertices, {} unique vertices were provided: {ring}",
            vertices.len()
        );
    }
    Ok(vertices)
}

/// Returns a ring without self-intersections, or a description of the error.
fn checked(vertices: Vec<Point>) -> std::result::Result<Loop, String> {
    if let Some((first, again)) = duplicate(&vertices) {
        return Err(format!("Duplicate vertices: {first} and {again}"));
    }
    if let Some(index) = antipodal(&vertices) {
        return Err(format!("Vertices {index} and {} are antipodal", (index + 1) % vertices.len()));
    }
    let own = Loop::new(vertices.clone());
    let alone = Polygon::from_loops(vec![own.clone()]);
    match alone.find_validation_error() {
        None => Ok(own),
        Some(_) => Err(crossing(&vertices).unwrap_or_else(|| "Edges cross.".to_string())),
    }
}

/// The bits of a vertex, for sorting.
fn bits(point: Point) -> [u64; 3] {
    [point.x(), point.y(), point.z()].map(|part| (part + 0.0).to_bits())
}

/// Returns the positions of the first vertex that occurs twice, found by sorting.
fn duplicate(vertices: &[Point]) -> Option<(usize, usize)> {
    let mut sorted: Vec<([u64; 3], usize)> =
        vertices.iter().enumerate().map(|(index, point)| (bits(*point), index)).collect();
    sorted.sort_unstable();
    let pairs = sorted.windows(2).filter_map(|pair| match pair {
        [(a, first), (b, again)] if a == b => Some((*first, *again)),
        _ => None,
    });
    pairs.min_by_key(|(_, again)| *again)
}

fn antipodal(vertices: &[Point]) -> Option<usize> {
    let next = vertices.iter().cycle().skip(1);
    vertices.iter().zip(next).position(|(a, b)| bits(Point(-a.0)) == bits(*b))
}

/// Describes the crossing edges with MongoDB's message. Called only if edges cross.
fn crossing(vertices: &[Point]) -> Option<String> {
    /// Maximum number of edges of a ring for the search.
    const EDGES_MAX: usize = 2000;
    use s2rst::s2::edge_crossings::{Crossing, crossing_sign};
    let count = vertices.len();
    let edge = |index: usize| Some((*vertices.get(index)?, *vertices.get((index + 1) % count)?));
    if count > EDGES_MAX {
        return None;
    }
    for first in 0..count {
        for second in first + 2..count {
            let ((a, b), (c, d)) = (edge(first)?, edge(second)?);
            if crossing_sign(a, b, c, d) == Crossing::Cross {
                let show = |point: Point| {
                    let location = LatLng::from_point(point);
                    format!("[{}, {}]", location.lat.degrees(), location.lng.degrees())
                };
                return Some(format!(
                    "Edges {first} and {second} cross. Edge locations in degrees: {}-{} and {}-{}",
                    show(a),
                    show(b),
                    show(c),
                    show(d)
                ));
            }
        }
    }
    None
}

/// Checks the relation of an outer ring and its holes.
fn check_holes(polygon: &Polygon, rings: Array<'_>) -> Result<()> {
    let coordinates = Value::Array(rings);
    if let Some(error) = polygon.find_validation_error() {
        bail!(BadValue, "Polygon isn't valid: {} {coordinates}", error.message);
    }
    if !polygon.is_normalized() {
        bail!(BadValue, "A loop shares more than one vertex with its parent loop: {coordinates}");
    }
    let depths = || polygon.loops().iter().map(Loop::depth);
    if depths().filter(|depth| *depth == 0).count() > 1 {
        bail!(BadValue, "Only one exterior polygon loop is allowed: {coordinates}");
    }
    if depths().any(|depth| depth > 1) {
        bail!(BadValue, "Polygon interior loops cannot be nested: {coordinates}");
    }
    Ok(())
}
