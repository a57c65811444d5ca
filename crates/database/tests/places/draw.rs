//! Random locations and shapes, often special cases: near the poles, across the antimeridian,
//! narrow, with holes, or with corners and edges at other locations.

use base::random::Random;
use std::f64::consts::TAU;

/// Random generator; a seed always gives the same results.
pub(crate) struct Draw {
    random: Random,
    /// Corners and centers of edges generated so far, for reuse.
    met: Vec<(f64, f64)>,
}

/// Most stored locations.
const MET_MAX: usize = 500;

impl Draw {
    pub(crate) fn new(seed: u64) -> Draw {
        Draw { random: Random::new(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15)), met: Vec::new() }
    }

    pub(crate) fn below(&mut self, count: u64) -> u64 {
        self.random.below(count)
    }

    pub(crate) fn unit(&mut self) -> f64 {
        self.below(1 << 53) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len() as u64) as usize]
    }

    fn number(&mut self, most: f64) -> f64 {
        match self.below(4) {
            0 => (self.below(9) as f64 - 4.0) * most / 4.0,
            1 => (self.below(21) as f64 - 10.0).clamp(-most, most),
            _ => (self.unit() * 2.0 - 1.0) * most,
        }
    }

    pub(crate) fn position(&mut self) -> (f64, f64) {
        if !self.met.is_empty() && self.below(3) == 0 {
            let at = self.below(self.met.len() as u64) as usize;
            return self.met[at];
        }
        (self.number(180.0), self.number(90.0))
    }

    fn meet(&mut self, (x, y): (f64, f64)) {
        if x.abs() > 180.0 || y.abs() > 90.0 {
            return;
        }
        match self.met.len() < MET_MAX {
            true => self.met.push((x, y)),
            false => {
                let at = self.below(MET_MAX as u64) as usize;
                self.met[at] = (x, y);
            }
        }
    }

    pub(crate) fn size(&mut self) -> f64 {
        [0.0001, 0.5, 5.0, 40.0][self.below(4) as usize] * (self.unit() + 0.1)
    }

    /// Returns the corners of a ring around a location, in either winding order. `flat` is the
    /// ratio of height to width.
    fn corners(&mut self, (x, y): (f64, f64), size: f64, flat: f64) -> Vec<(f64, f64)> {
        if self.below(4) == 0 {
            // Sides along meridians and, for small rings, approximately along parallels.
            let (x, y, size) = (x.round(), y.round(), size.ceil());
            let sides = [(-size, -size), (size, -size), (size, size), (-size, size)];
            return sides.iter().map(|(a, b)| (x + a, y + b * flat)).collect();
        }
        let corners = 3 + self.below(4);
        let turned = self.unit();
        let angle = |corner: u64| (corner as f64 / corners as f64 + turned) * TAU;
        if y.abs() > 89.0 {
            // Around the pole.
            let lat = (90.0 - size.min(80.0)) * y.signum();
            return (0..corners).map(|corner| (angle(corner).to_degrees() % 360.0 - 180.0, lat)).collect();
        }
        (0..corners)
            .map(|corner| (x + size * angle(corner).cos(), y + size * flat * angle(corner).sin()))
            .collect()
    }

    /// Returns a closed ring.
    fn ring(&mut self, at: (f64, f64), size: f64, flat: f64) -> String {
        let mut corners = self.corners(at, size, flat);
        for (x, y) in &mut corners {
            // Across the antimeridian.
            *x = if *x > 180.0 { *x - 360.0 } else { *x };
            *x = if *x < -180.0 { *x + 360.0 } else { *x };
            *y = y.clamp(-90.0, 90.0);
        }
        let ends = corners.iter().zip(corners.iter().cycle().skip(1));
        let middles: Vec<_> = ends.map(|(a, b)| ((a.0 + b.0) / 2.0, (a.1 + b.1) / 2.0)).collect();
        corners.iter().chain(&middles).for_each(|position| self.meet(*position));
        corners.push(corners[0]);
        let corner_texts: Vec<String> = corners.iter().map(|(x, y)| format!("[{x:?}, {y:?}]")).collect();
        format!("[{}]", corner_texts.join(", "))
    }

    pub(crate) fn polygon(&mut self) -> String {
        let (at, size) = (self.position(), self.size());
        let flat = if self.below(4) == 0 { 0.001 } else { 1.0 };
        let outer = self.ring(at, size, flat);
        match self.below(3) {
            0 => format!("[{outer}, {}]", self.ring(at, size * 0.3, flat)),
            _ => format!("[{outer}]"),
        }
    }

    pub(crate) fn point(&mut self) -> String {
        let (x, y) = self.position();
        format!("[{x:?}, {y:?}]")
    }

    fn line(&mut self) -> String {
        let ((x, y), size) = (self.position(), self.size());
        let end = |a: f64, most: f64| if a + size > most { a - size } else { a + size };
        let (a, b) = (end(x, 180.0), end(y, 90.0));
        self.meet((a, b));
        self.meet(((x + a) / 2.0, (y + b) / 2.0));
        format!("[[{x:?}, {y:?}], [{a:?}, {b:?}]]")
    }

    pub(crate) fn geojson(&mut self) -> String {
        let (kind, coordinates) = match self.below(8) {
            0..=2 => ("Point", self.point()),
            3 => ("LineString", self.line()),
            4 => ("Polygon", self.polygon()),
            5 => ("MultiPoint", format!("[{}, {}]", self.point(), self.point())),
            6 => ("MultiLineString", format!("[{}, {}]", self.line(), self.line())),
            _ if self.below(2) == 0 => ("MultiPolygon", format!("[{}, {}]", self.polygon(), self.polygon())),
            _ => {
                let (point, line) = (self.point(), self.line());
                let point = format!("{{type: 'Point', coordinates: {point}}}");
                let line = format!("{{type: 'LineString', coordinates: {line}}}");
                return format!("{{type: 'GeometryCollection', geometries: [{point}, {line}]}}");
            }
        };
        format!("{{type: '{kind}', coordinates: {coordinates}}}")
    }

    pub(crate) fn stored(&mut self) -> String {
        if self.below(2) == 0 { self.point() } else { self.geojson() }
    }

    pub(crate) fn sphere_condition(&mut self) -> String {
        match self.below(5) {
            0 => {
                let radius = self.size() / 30.0;
                format!("{{$geoWithin: {{$centerSphere: [{}, {radius:?}]}}}}", self.point())
            }
            1 => {
                format!("{{$geoWithin: {{$geometry: {{type: 'Polygon', coordinates: {}}}}}}}", self.polygon())
            }
            // One side of the border or the other, by its winding order.
            2 => {
                let (at, size) = (self.position(), self.size());
                let ring = self.ring(at, size, 1.0);
                let relation = *self.pick(&["$geoWithin", "$geoIntersects"]);
                let crs = "{type: 'name', properties: {name: 'urn:x-mongodb:crs:strictwinding:EPSG:4326'}}";
                format!(
                    "{{{relation}: {{$geometry: {{type: 'Polygon', coordinates: [{ring}], crs: {crs}}}}}}}"
                )
            }
            _ => format!("{{$geoIntersects: {{$geometry: {}}}}}", self.geojson()),
        }
    }

    pub(crate) fn flat_condition(&mut self) -> String {
        let (a, b, c) = (self.point(), self.point(), self.point());
        let shape = match self.below(5) {
            0 => format!("$box: [{a}, {b}]"),
            1 => format!("$center: [{a}, {:?}]", self.size()),
            2 => format!("$centerSphere: [{a}, {:?}]", self.size() / 60.0),
            3 => format!("$polygon: [{a}, {b}, {c}, {}]", self.point()),
            _ => {
                // An edge whose center is a known location.
                let ((x, y), (far, up)) = (self.position(), (self.number(20.0), self.number(20.0)));
                format!("$polygon: [[{:?}, {:?}], [{:?}, {:?}], {c}]", x - far, y - up, x + far, y + up)
            }
        };
        format!("{{$geoWithin: {{{shape}}}}}")
    }
}
