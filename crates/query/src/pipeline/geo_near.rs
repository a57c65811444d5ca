//! `$geoNear`: the documents nearest to a point, with their distances.
//!
//! The stage consists of a filter, for which the planner must find an index, and a stage that adds the metadata of each
//! document as fields. The database takes the stage from the pipeline's start ([`Pipeline::take_leading_near`]) and
//! plans the filter. A new option is a case in [`parse`].
//!
//! ```text
//! {$geoNear: {
//!     near: <GeoJSON point or legacy pair>,
//!     distanceField: <path>,                  optional since MongoDB 8.1
//!     spherical: <boolean>,                   optional
//!     minDistance: <number>,                  optional
//!     maxDistance: <number>,                  optional
//!     distanceMultiplier: <number>,           optional
//!     query: <filter>,                        optional
//!     includeLocs: <path>,                    optional
//!     key: <path>,                            optional: the indexed field
//! }}
//! ```

use super::fields::set_path;
use super::operator::{Kind, Operator};
use super::parse::{Parsed, Scope};
use super::{Environment, Pipeline, Stage, Step, Stream, registry};
use crate::expression::Dependencies;
use crate::field_path::checked_path;
use crate::{Arena, Context, Expression, Matcher, MetaKind, Row};
use base::bson::{Builder, Document, DocumentBuf, Element, FieldName, Path, Value, ValueBuf};
use base::{CompatibleWith, Result, bail, err};
use std::sync::Arc;

/// A parsed `$geoNear`.
pub struct GeoNear {
    near: Expression,
    min: Option<Expression>,
    max: Option<Expression>,
    query: DocumentBuf,
    spherical: bool,
    key: Option<String>,
    /// Adds the distance, and the location that it refers to.
    fields: Pipeline,
}

impl GeoNear {
    /// The field of the locations, if the stage names it.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// The stages that add metadata to the documents.
    pub fn fields(&self) -> &Pipeline {
        &self.fields
    }

    /// Returns the filter for the documents; their locations are at a path.
    ///
    /// Errors: 5860401 and 5860402 for a point that is not constant; TypeMismatch, BadValue, 7555701 and 7555702 for
    /// distances that are not constant numbers or are negative.
    pub fn filter(&self, path: FieldName<'_>, context: &Context) -> Result<DocumentBuf> {
        let Some(near) = constant(&self.near, context)? else {
            bail!(5860402, "$geoNear requires a constant near argument");
        };
        if !matches!(near.view(), Value::Document(_) | Value::Array(_)) {
            bail!(5860401, "$geoNear requires near argument to be a GeoJSON object or a legacy point(array)");
        }
        let mut out = Builder::new();
        out.append_all(self.query.view());
        out.begin_document(path);
        out.append(if self.spherical { c"$nearSphere" } else { c"$near" }, &near);
        for (name, operator, given, code) in
            [("min", c"$minDistance", &self.min, 7555701), ("max", c"$maxDistance", &self.max, 7555702)]
        {
            if let Some(given) = given {
                out.append(operator, distance(name, given, code, context)?);
            }
        }
        out.end();
        Ok(out.finish())
    }
}

/// Returns the value of a constant expression; `None` if it is not constant.
fn constant(expression: &Expression, context: &Context) -> Result<Option<ValueBuf>> {
    if !matches!(expression.dependencies(), Dependencies::Paths(paths) if paths.is_empty()) {
        return Ok(None);
    }
    let arena = Arena::new();
    let value = expression.evaluate(Document::EMPTY, context, &arena)?;
    Ok(Some(value.map_or_else(ValueBuf::null, |value| value.to_owned())))
}

/// Evaluates a distance limit. Errors: the given code unless it is constant, TypeMismatch unless it is a number,
/// BadValue if negative.
fn distance(name: &str, given: &Expression, code: i32, context: &Context) -> Result<f64> {
    let Some(value) = constant(given, context)? else {
        let message = format!("$geoNear requires ${name}Distance to evaluate to a constant number");
        return Err(base::Error::new(base::ErrorCode::Location(code), message));
    };
    let number = value.view().as_number().map(|number| number.to_f64());
    match number {
        None => Err(err!(TypeMismatch, "$geoNear requires ${name}Distance to evaluate to a number")),
        Some(number) if number >= 0.0 => Ok(number),
        Some(_) => Err(err!(BadValue, "{name}Distance must be nonnegative")),
    }
}

/// Parses `$geoNear`.
///
/// Errors: 40227, 50856 to 50858 for options of older versions, 5860400 without a point, 16606 for the field of the
/// distance; the errors of each option, BadValue for an unknown option.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    if let Value::Array(_) = spec.value() {
        bail!(5860400, "$geoNear requires a 'near' argument");
    }
    let Value::Document(options) = spec.value() else {
        bail!(10065, "invalid parameter: expected an object ($geoNear)");
    };
    check_removed_options(options)?;
    let near = options.get("near").ok_or_else(|| err!(5860400, "$geoNear requires a 'near' argument"))?;
    let expression = |value: Value<'_>| Expression::parse(value, scope.context);
    let mut stage = GeoNear {
        near: expression(near)?,
        min: None,
        max: None,
        query: DocumentBuf::empty(),
        spherical: false,
        key: None,
        fields: Pipeline::default(),
    };
    let (mut distance_field, mut include_locs, mut multiplier) = (None, None, None);
    for option in options {
        let value = option.value();
        match option.name() {
            // Accepted without effect, as in MongoDB since 2.6.
            "near" | "uniqueDocs" => {}
            "distanceField" => {
                let name = value.as_str();
                let missing = || err!(16606, "$geoNear requires that the 'distanceField' option is a String");
                distance_field = Some(name.ok_or_else(missing)?);
            }
            "minDistance" => stage.min = Some(expression(value)?),
            "maxDistance" => stage.max = Some(expression(value)?),
            "distanceMultiplier" => multiplier = Some(factor(value)?),
            "query" => {
                let query = value.as_document();
                let query = query.ok_or_else(|| err!(TypeMismatch, "query must be an object"))?;
                Matcher::parse_query(query, scope.context)?;
                stage.query = query.to_owned();
            }
            "spherical" => stage.spherical = value.is_truthy(),
            "includeLocs" => {
                let name = value.as_str();
                let missing = || err!(16607, "$geoNear requires that 'includeLocs' option is a String");
                include_locs = Some(name.ok_or_else(missing)?);
            }
            "key" => stage.key = Some(key(value)?),
            name => bail!(BadValue, "Unknown argument to $geoNear: {name}"),
        }
    }
    if distance_field.is_none() && scope.context.compatible_with < CompatibleWith::V8_2 {
        bail!(16606, "$geoNear requires a 'distanceField' option as a String");
    }
    stage.fields = fields(distance_field, multiplier, include_locs, scope)?;
    Ok(Parsed::one(Near(Arc::new(stage))))
}

/// Refuses options of older versions, with MongoDB's errors.
fn check_removed_options(options: Document<'_>) -> Result<()> {
    let has = |name: &str| options.find(name).is_some();
    if has("collation") {
        bail!(
            40227,
            "$geoNear does not accept the 'collation' parameter. Instead, specify a collation for the entire \
             aggregation command."
        );
    }
    if has("limit") {
        bail!(50858, "$geoNear no longer supports the 'limit' parameter. Use a $limit stage instead.");
    }
    if has("num") {
        bail!(50857, "$geoNear no longer supports the 'num' parameter. Use a $limit stage instead.");
    }
    if has("start") {
        bail!(50856, "$geoNear no longer supports the 'start' argument.");
    }
    Ok(())
}

fn factor(value: Value<'_>) -> Result<f64> {
    let number =
        value.as_number().ok_or_else(|| err!(TypeMismatch, "distanceMultiplier must be a number"))?;
    match number.to_f64() {
        factor if factor >= 0.0 => Ok(factor),
        _ => Err(err!(BadValue, "distanceMultiplier must be nonnegative")),
    }
}

/// Parses `key`, the path of the indexed field.
fn key(value: Value<'_>) -> Result<String> {
    match value {
        Value::String("") => Err(err!(BadValue, "$geoNear parameter 'key' cannot be the empty string")),
        Value::String(path) => Ok(checked_path(path)?.as_str().to_string()),
        other => Err(err!(
            TypeMismatch,
            "$geoNear parameter 'key' must be of type string but found type: {}",
            other.kind().alias()
        )),
    }
}

/// Returns the stage that adds the distance and the location. Unlike `$addFields`, it replaces arrays and values on the
/// paths of its fields by documents.
fn fields(
    distance: Option<&str>,
    multiplier: Option<f64>,
    locs: Option<&str>,
    scope: &Scope<'_>,
) -> Result<Pipeline> {
    let fields = Fields {
        distance: distance.map(checked_path).transpose()?,
        multiplier: multiplier.unwrap_or(1.0),
        locs: locs.map(checked_path).transpose()?,
    };
    if fields.distance.is_none() && fields.locs.is_none() {
        return Ok(Pipeline::default());
    }
    scope.context.metadata.require(MetaKind::GeoNearDistance);
    if fields.locs.is_some() {
        scope.context.metadata.require(MetaKind::GeoNearPoint);
    }
    let mut spec = Builder::new();
    spec.begin_document(c"$addFields");
    if let Some(distance) = &fields.distance {
        spec.begin_document(distance).append(c"$meta", MetaKind::GeoNearDistance.name()).end();
    }
    if let Some(locs) = fields.locs.as_ref().filter(|_| fields.locs != fields.distance) {
        spec.begin_document(locs).append(c"$meta", MetaKind::GeoNearPoint.name()).end();
    }
    spec.end();
    let definition = registry::find("$addFields")?;
    Ok(Pipeline { steps: vec![Step::new(definition, spec.finish(), Arc::new(fields))] })
}

/// Adds the distance and the location to documents.
struct Fields {
    distance: Option<Path>,
    multiplier: f64,
    locs: Option<Path>,
}

impl Operator for Fields {
    fn start(self: Arc<Self>, input: Stream, _environment: &Environment) -> Result<Stream> {
        Ok(Box::new(Running { fields: self, input }))
    }
}

/// Adds the fields to one document after another.
struct Running {
    fields: Arc<Fields>,
    input: Stream,
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        let Some(row) = self.input.next()? else { return Ok(None) };
        let Fields { distance, multiplier, locs } = &*self.fields;
        let value = match row.get(MetaKind::GeoNearDistance) {
            Some(Value::Double(unscaled)) => Value::Double(unscaled * multiplier),
            _ => Value::Null,
        };
        let document = row.document.view();
        let mut out = match distance {
            Some(distance) => set_path(document, distance, Some(value)),
            None => document.to_owned(),
        };
        if let (Some(locs), Some(point)) = (locs, row.get(MetaKind::GeoNearPoint)) {
            out = set_path(out.view(), locs, Some(point));
        }
        Ok(Some(row.with(out)))
    }
}

/// The stage within a pipeline.
struct Near(Arc<GeoNear>);

impl Operator for Near {
    fn kind(&self) -> Kind<'_> {
        Kind::GeoNear(&self.0)
    }

    /// Runs only without a collection: over a collection, the plan contains the stage.
    fn start(self: Arc<Self>, _input: Stream, _environment: &Environment) -> Result<Stream> {
        Err(err!(
            NamespaceNotFound,
            "$geoNear requires a geo index to run, but the collection does not exist"
        ))
    }
}

impl Pipeline {
    /// Removes and returns a leading `$geoNear`.
    pub fn take_leading_near(&mut self) -> Option<Arc<GeoNear>> {
        let Kind::GeoNear(near) = self.steps.first()?.operator.kind() else { return None };
        let near = near.clone();
        self.steps.remove(0);
        Some(near)
    }

    /// Concatenates two pipelines.
    pub fn then(&self, rest: Pipeline) -> Pipeline {
        Pipeline { steps: self.steps.iter().cloned().chain(rest.steps).collect() }
    }
}
