//! `2dsphere`: a key has a cell for each geospatial field and a value for each other field.
//!
//! A document has a key for each combination. Since version 2, a document without any place has no key. Since version
//! 3, cells are numbers; earlier versions have texts.

use super::{KeyRange, VERSION, elements, number};
use crate::index::keys::KeyOf;
use crate::index::{DocumentKeys, GeoIndex, IndexSpec, KeyKind};
use base::bson::{Document, Value, ValueBuf};
use base::key_string::KeyBuilder;
use base::{Result, bail, err};
use query::Context;
use query::geo::cells::{Covering, Levels, text};
use query::geo::{Form, Geometry};

/// The options of a `2dsphere` index.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sphere {
    version: u8,
    /// Levels of its cells.
    pub(crate) levels: Levels,
}

impl Sphere {
    /// Parses the options.
    ///
    /// Errors: CannotCreateIndex for an unknown version, 16747 to 16749 for levels.
    pub(super) fn parse(options: Document<'_>) -> Result<Sphere> {
        let version = version(options)?;
        let mut levels = Levels::of_version(version);
        let finest = number(options, "finestIndexedLevel").unwrap_or(f64::from(levels.finest));
        let coarsest = number(options, "coarsestIndexedLevel").unwrap_or(f64::from(levels.coarsest));
        if coarsest < 0.0 || coarsest.is_nan() {
            bail!(16747, "coarsestIndexedLevel must be >= 0");
        }
        if finest > 30.0 || finest.is_nan() {
            bail!(16748, "finestIndexedLevel must be <= 30");
        }
        if finest < coarsest {
            bail!(16749, "finestIndexedLevel must be >= coarsestIndexedLevel");
        }
        (levels.finest, levels.coarsest) = (finest as u8, coarsest as u8);
        Ok(Sphere { version, levels })
    }

    /// Returns true if all options except the version agree. The version decides the default levels.
    pub(super) fn same_options(&self, other: &Sphere) -> bool {
        self.version != other.version || self.levels == other.levels
    }

    /// Returns the keys within cells, and the keys of their parent cells.
    pub(super) fn ranges(&self, covering: &Covering) -> Vec<KeyRange> {
        let within = covering.cells.iter().map(|cell| self.within(*cell));
        let alone = covering.above.iter().map(|cell| {
            let key = self.key(*cell);
            KeyRange { low: key.clone(), high: key, closed: true }
        });
        within.chain(alone).collect()
    }

    /// Returns the keys of a cell and of all cells below it.
    fn within(&self, cell: i64) -> KeyRange {
        if self.version > 2 {
            let (first, last) = query::geo::cells::range(cell);
            let value = |key: i64| Value::Int64(key).to_owned();
            return KeyRange { low: value(first), high: value(last), closed: true };
        }
        let first = text(cell);
        let mut behind = first.clone();
        // A text ends with a digit up to 3 or with the f of a face, so the next character never occurs.
        let last = behind.pop().map_or('0', |last| char::from(last as u8 + 1));
        behind.push(last);
        let value = |text: &str| Value::String(text).to_owned();
        KeyRange { low: value(&first), high: value(&behind), closed: false }
    }

    /// Returns the value of a cell in keys, by the version of the index.
    fn key(&self, cell: i64) -> ValueBuf {
        match self.version {
            1 | 2 => Value::String(&text(cell)).to_owned(),
            _ => Value::Int64(cell).to_owned(),
        }
    }

    /// Adds the keys of a document: each combination of its cells and other values.
    pub(super) fn keys(
        &self,
        spec: &IndexSpec,
        document: Document<'_>,
        document_keys: &mut DocumentKeys,
        context: &Context,
    ) -> Result<()> {
        let mut parts: Vec<Vec<ValueBuf>> = Vec::with_capacity(spec.parts.len());
        let mut has_geometry = self.version == 1;
        for part in &spec.parts {
            let mut values: Vec<Value<'_>> = Vec::new();
            let components = part.path.components();
            let is_geo = GeoIndex::is_geo_part(part);
            let mut bits = elements(document, components, false, &mut |value| values.push(value));
            let last = 1u32 << components.len().saturating_sub(1).min(31);
            let part_values = match is_geo {
                true => {
                    if self.version > 1 && matches!(values.as_slice(), [only] if is_nothing(only)) {
                        values.clear();
                    }
                    has_geometry |= !values.is_empty();
                    let (cells, several) = self.cells(document, &values)?;
                    bits |= if several { last } else { 0 };
                    cells
                }
                false => {
                    let (values, several) = literals(&values);
                    bits |= if several { last } else { 0 };
                    values
                }
            };
            document_keys.multikey.push(bits);
            parts.push(part_values);
        }
        if has_geometry {
            product(spec, &parts, document_keys, context)?;
        }
        Ok(())
    }

    /// Returns the cells of all places, and whether one place has several.
    fn cells(&self, document: Document<'_>, values: &[Value<'_>]) -> Result<(Vec<ValueBuf>, bool)> {
        let mut keys = Vec::new();
        let mut several = false;
        for value in values {
            let cells = self
                .cells_of(*value)
                .map_err(|error| err!(16755, "Can't extract geo keys: {document}  {}", error.message()))?;
            if cells.is_empty() {
                bail!(16756, "Unable to generate keys for (likely malformed) geometry: {document}");
            }
            several |= cells.len() > 1;
            keys.extend(cells.into_iter().map(|cell| self.key(cell)));
        }
        if keys.is_empty() {
            keys.push(ValueBuf::null());
        }
        Ok((keys, several))
    }

    /// Returns the cells of one place. Version 1 indexes no collection of geometries.
    fn cells_of(&self, value: Value<'_>) -> Result<Vec<i64>> {
        let geometry = Geometry::stored(value)?;
        if geometry.is_strict() {
            bail!(BadValue, "can't index geometry with strict winding order");
        }
        let single = !matches!(geometry, Geometry::Sphere { form: Form::Several, .. });
        if self.version == 1 && !single {
            bail!(BadValue, "given geometry can't be indexed in the old index format");
        }
        let parts = geometry
            .stored_parts()
            .ok_or_else(|| err!(BadValue, "can't project geometry into spherical CRS: {value}"))?;
        self.levels.keys(&parts, single).ok_or_else(|| {
            err!(BadValue, "the index's coarsestIndexedLevel gives this geometry too many cells: {value}")
        })
    }
}

/// Parses the version. Errors: CannotCreateIndex.
fn version(options: Document<'_>) -> Result<u8> {
    let Some(given) = options.get(VERSION) else { return Ok(3) };
    let name = VERSION;
    let known = "only versions: [1,2,3] are supported";
    if matches!(given, Value::Double(double) if !double.is_normal()) {
        bail!(
            CannotCreateIndex,
            "Invalid value for geo index version {{ {name} : {name}: {given} }}, {known}"
        );
    }
    match given.as_number().map(|number| number.to_i64_clamped()) {
        Some(version @ 1..=3) => Ok(version as u8),
        _ => Err(err!(
            CannotCreateIndex,
            "unsupported geo index version {{ {name} : {name}: {given} }}, {known}"
        )),
    }
}

/// Returns true for a value that counts as no place.
fn is_nothing(value: &Value<'_>) -> bool {
    match value {
        Value::Null | Value::Undefined => true,
        Value::Document(document) => document.is_empty(),
        Value::Array(array) => array.is_empty(),
        _ => false,
    }
}

/// Returns the values of an ordinary field, and whether an array makes them several.
fn literals(values: &[Value<'_>]) -> (Vec<ValueBuf>, bool) {
    let mut several = false;
    let mut all = Vec::new();
    for value in values {
        match value {
            Value::Array(array) => {
                several = true;
                if array.is_empty() {
                    all.push(Value::Undefined.to_owned());
                }
                all.extend(array.iter().map(|value| value.to_owned()));
            }
            value => all.push(value.to_owned()),
        }
    }
    if all.is_empty() {
        all.push(ValueBuf::null());
    }
    (all, several)
}

/// Adds a key for each combination of the parts' values.
fn product(
    spec: &IndexSpec,
    parts: &[Vec<ValueBuf>],
    document_keys: &mut DocumentKeys,
    context: &Context,
) -> Result<()> {
    let count: usize = parts.iter().map(Vec::len).product();
    for number in 0..count {
        let mut builder = KeyBuilder::new();
        let mut rest = number;
        for (part, values) in spec.parts.iter().zip(parts) {
            let Some(value) = values.get(rest % values.len().max(1)) else { continue };
            rest /= values.len().max(1);
            match GeoIndex::is_geo_part(part) {
                true => _ = builder.push(value.view(), true),
                false => {
                    spec.collation.push_key(&mut builder, value.view(), part.kind != KeyKind::Descending);
                }
            }
        }
        let key: KeyOf = builder.into();
        // Cells are short, so only long values of other parts count. A covering takes long in a debug build, and a
        // check behind several coverings would find the operation late.
        context.steps(key.key_string.len() / 1024)?;
        document_keys.keys.push(key);
    }
    Ok(())
}
