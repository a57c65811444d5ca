//! Parser of accumulators, and computation of their arguments.

use super::find;
use crate::accumulator_state::Accumulator;
use crate::expression::{Dependencies, Expression};
use crate::{Arena, Context, RowView, SortPattern};
use base::bson::{Builder, Document, Element, FieldNameBuf, Number, Value};
use base::{Error, ErrorCode, Result, bail, err};
use std::sync::Arc;

/// Creates the state of a group. The number is the accumulator's `n`, or 1.
pub(crate) type AccumulatorFactory = Arc<dyn Fn(usize) -> Box<dyn Accumulator> + Send + Sync>;

/// The parsed part of an accumulator.
#[derive(Clone)]
pub(crate) struct Accumulation {
    argument: Argument,
    /// `n`, which may depend on the group's `_id`.
    count: Option<Expression>,
    make: AccumulatorFactory,
}

/// The argument computed for each document.
#[derive(Clone)]
pub(crate) enum Argument {
    /// No argument: `$count`.
    Nothing,
    /// The value of an expression.
    Value(Expression),
    /// The value of an expression with the document's sort key, as `{k: key, v: value}`.
    Sorted(SortPattern, Expression),
}

impl Accumulation {
    /// Parses `{$name: …}`, the value of an output field of `$group`.
    ///
    /// Errors: 15952 for an unknown name, and the errors of the accumulator.
    pub(crate) fn parse(spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
        let entry =
            find(spec.name()).ok_or_else(|| err!(15952, "unknown group operator '{}'", spec.name()))?;
        (entry.parse)(entry.name, spec, context)
    }

    /// Parses an accumulator as a window function. Unlike in a group, an array is a normal operand.
    pub(crate) fn parse_in_window(spec: &Element<'_>, context: &Context) -> Result<Accumulation> {
        let Value::Array(array) = spec.value() else { return Accumulation::parse(spec, context) };
        // Joining a single array yields the array. The operand is an expression that is not an array literal.
        let mut operand = Builder::new();
        operand.begin_document(spec.field_name()).begin_array(c"$concatArrays").push(array);
        let operand = operand.finish();
        operand.view().first().map_or_else(
            || Err(err!(15952, "unknown group operator '{}'", spec.name())),
            |operand| Accumulation::parse(&operand, context),
        )
    }

    /// Returns an accumulator whose argument is an expression.
    ///
    /// Errors: 40237 for an array, because only one operand is allowed.
    pub(crate) fn unary(
        name: &'static str,
        spec: &Element<'_>,
        context: &Context,
        make: impl Fn() -> Box<dyn Accumulator> + Send + Sync + 'static,
    ) -> Result<Accumulation> {
        if matches!(spec.value(), Value::Array(_)) {
            bail!(40237, "The {name} accumulator is a unary operator");
        }
        let argument = Argument::Value(Expression::parse(spec.value(), context)?);
        Ok(Accumulation::of(argument, Arc::new(move |_| make())))
    }

    /// Returns an accumulator of this argument.
    pub(crate) fn of(argument: Argument, make: AccumulatorFactory) -> Accumulation {
        Accumulation { argument, count: None, make }
    }

    /// Sets the accumulator's `n`.
    pub(crate) fn with_count(self, count: Option<Expression>) -> Accumulation {
        Accumulation { count, ..self }
    }

    /// Whether the accumulator's `n` is constant, if it has one.
    pub(crate) fn has_constant_count(&self) -> bool {
        self.count.as_ref().is_none_or(Expression::is_constant)
    }

    /// Computes the argument for one row.
    pub(crate) fn argument<'a>(
        &'a self,
        root: RowView<'a>,
        context: &'a Context,
        arena: &'a Arena,
    ) -> Result<Option<Value<'a>>> {
        match &self.argument {
            Argument::Nothing => Ok(None),
            Argument::Value(expression) => expression.evaluate(root, context, arena),
            Argument::Sorted(pattern, output) => {
                let mut key = Vec::new();
                pattern.key_in(root, context, &mut key)?;
                let mut builder = Builder::new();
                builder.append(c"k", Value::Binary { subtype: 0, bytes: &key });
                builder.append(c"v", output.evaluate(root, context, arena)?.unwrap_or(Value::Null));
                let bytes = arena.bytes(builder.finish().bytes());
                Ok(Some(Value::Document(Document::from_valid(bytes))))
            }
        }
    }

    /// Creates the state of a group with this `_id`.
    ///
    /// Errors: 5787902, 5787903, 5787908 for an invalid `n`.
    pub(crate) fn start(&self, id: Value<'_>, context: &Context) -> Result<Box<dyn Accumulator>> {
        let Some(expression) = &self.count else { return Ok((self.make)(1)) };
        let arena = Arena::new();
        let root = id.as_document().unwrap_or(Document::EMPTY);
        let value = expression.evaluate(root, context, &arena)?;
        Ok((self.make)(checked_count(value)?))
    }

    /// Returns the paths that the argument reads, including the paths of its sort pattern.
    pub(crate) fn dependencies(&self) -> Dependencies {
        match &self.argument {
            Argument::Nothing => Dependencies::Paths(Vec::new()),
            Argument::Value(expression) => expression.dependencies(),
            Argument::Sorted(pattern, output) => match output.dependencies() {
                Dependencies::Paths(mut paths) => {
                    paths.extend(pattern.fields().iter().map(|(path, _)| path.clone()));
                    Dependencies::Paths(paths)
                }
                Dependencies::Whole => Dependencies::Whole,
            },
        }
    }
}

/// Converts `n` to a count.
fn checked_count(value: Option<Value<'_>>) -> Result<usize> {
    let shown = value.map_or_else(|| "missing".to_string(), |value| value.to_string());
    let Some(number) = value.and_then(|value| value.as_number()) else {
        bail!(5787902, "Value for 'n' must be of integral type, but found {shown}");
    };
    let Some(count) = number.to_i64_exact() else {
        bail!(5787903, "Value for 'n' must be of integral type, but found {shown}");
    };
    match usize::try_from(count) {
        Ok(count) if count > 0 => Ok(count),
        _ => Err(err!(5787908, "'n' must be greater than 0, found {count}")),
    }
}

/// Parses `{input: …, n: …}` of `$firstN` and related accumulators.
///
/// Errors: 5787801, 5787900, 5787901, 5787906, 5787907 as in MongoDB; the errors of an invalid constant `n`.
pub(crate) fn input_and_count(spec: &Element<'_>, context: &Context) -> Result<(Expression, Expression)> {
    let Value::Document(fields) = spec.value() else {
        let code = if matches!(spec.name(), "$firstN" | "$lastN") { 5787801 } else { 5787900 };
        return Err(Error::new(
            ErrorCode::Location(code),
            format!("specification must be an object; found {spec}"),
        ));
    };
    let (mut input, mut count) = (None, None);
    for field in fields {
        match field.name() {
            "input" => input = Some(Expression::parse(field.value(), context)?),
            "n" => count = Some(parse_count(field.value(), context)?),
            other => bail!(5787901, "Unknown argument for 'n' operator: {other}"),
        }
    }
    let count = count.ok_or_else(|| err!(5787906, "Missing value for 'n'"))?;
    Ok((input.ok_or_else(|| err!(5787907, "Missing value for 'input'"))?, count))
}

/// Parses an `n`; a constant `n` is checked at once.
pub(crate) fn parse_count(value: Value<'_>, context: &Context) -> Result<Expression> {
    let count = Expression::parse(value, context)?;
    if count.is_constant() {
        checked_count(count.constant())?;
    }
    Ok(count)
}

/// Parses an output field of a stage: `name: {$accumulator: …}`.
///
/// Errors: 40234 to 40238 as in MongoDB, and the errors of the accumulator.
pub(crate) fn parse_field(field: &Element<'_>, context: &Context) -> Result<(FieldNameBuf, Accumulation)> {
    let name = output_name(field)?;
    let Value::Document(spec) = field.value() else {
        bail!(40234, "The field '{name}' must be an accumulator object");
    };
    let mut fields = spec.iter();
    match (fields.next(), fields.next()) {
        (Some(only), None) => Ok((name, Accumulation::parse(&only, context)?)),
        (None, _) => Err(err!(40234, "The field '{name}' must be an accumulator object")),
        _ => Err(err!(40238, "The field '{name}' must specify one accumulator")),
    }
}

/// Converts a count for messages and results: int32 if it fits, else int64.
pub(crate) fn count_value(count: u64) -> Number {
    i32::try_from(count).map_or(Number::Int64(i64::try_from(count).unwrap_or(i64::MAX)), Number::Int32)
}

/// Parses a field name. Errors: 40235 for a dot, 40236 for a dollar sign.
fn output_name(field: &Element<'_>) -> Result<FieldNameBuf> {
    let name = field.name();
    if name.contains('.') {
        bail!(40235, "The field name '{name}' cannot contain '.'");
    }
    if name.starts_with('$') {
        bail!(40236, "The field name '{name}' cannot be an operator name");
    }
    Ok(field.field_name().to_owned())
}
