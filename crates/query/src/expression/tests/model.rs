//! The model: values and expressions as plain trees, evaluated without optimisation.
//!
//! It follows the documentation and shares no code with the implementation.

use base::bson::Value;
use std::cmp::Ordering;

/// A value; a missing value is `None` outside it.
#[derive(Clone, Debug)]
pub(super) enum Model {
    Null,
    Bool(bool),
    Int(i32),
    Long(i64),
    Double(f64),
    Text(String),
    Array(Vec<Model>),
    Object(Vec<(String, Model)>),
}

/// Equality of value and type.
impl PartialEq for Model {
    fn eq(&self, other: &Model) -> bool {
        self.rank() == other.rank()
            && match (self, other) {
                (Model::Int(a), Model::Int(b)) => a == b,
                (Model::Long(a), Model::Long(b)) => a == b,
                (Model::Double(a), Model::Double(b)) => a == b,
                (Model::Int(_) | Model::Long(_) | Model::Double(_), _) => false,
                (Model::Array(a), Model::Array(b)) => a == b,
                (Model::Object(a), Model::Object(b)) => a == b,
                _ => self.order(other).is_eq(),
            }
    }
}

pub(super) struct EvaluationError;

impl std::fmt::Debug for EvaluationError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an error")
    }
}

/// A value, missing, or an error.
pub(super) type Evaluated = Result<Option<Model>, EvaluationError>;

impl Model {
    /// Returns the model of a value.
    pub(super) fn of(value: Value<'_>) -> Model {
        match value {
            Value::Null => Model::Null,
            Value::Boolean(value) => Model::Bool(value),
            Value::Int32(value) => Model::Int(value),
            Value::Int64(value) => Model::Long(value),
            Value::Double(value) => Model::Double(value),
            Value::String(value) => Model::Text(value.to_string()),
            Value::Array(values) => Model::Array(values.iter().map(Model::of).collect()),
            Value::Document(fields) => Model::Object(
                fields.iter().map(|field| (field.name().to_string(), Model::of(field.value()))).collect(),
            ),
            other => panic!("the model has no {other}"),
        }
    }

    /// Formats the value in the shell's notation.
    pub(super) fn text(&self) -> String {
        let list = |items: Vec<String>| items.join(", ");
        match self {
            Model::Null => "null".to_string(),
            Model::Bool(value) => value.to_string(),
            Model::Int(value) => value.to_string(),
            Model::Long(value) => format!("NumberLong('{value}')"),
            Model::Double(value) => format!("{value:?}"),
            Model::Text(value) => format!("'{value}'"),
            Model::Array(values) => format!("[{}]", list(values.iter().map(Model::text).collect())),
            Model::Object(fields) => {
                let fields = fields.iter().map(|(name, value)| format!("{name}: {}", value.text()));
                format!("{{{}}}", list(fields.collect()))
            }
        }
    }

    fn number(&self) -> Option<f64> {
        match self {
            Model::Int(value) => Some(f64::from(*value)),
            Model::Long(value) => Some(*value as f64),
            Model::Double(value) => Some(*value),
            _ => None,
        }
    }

    fn truthy(value: &Option<Model>) -> bool {
        match value {
            None | Some(Model::Null) => false,
            Some(Model::Bool(value)) => *value,
            Some(value) => value.number() != Some(0.0),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Model::Null => 0,
            Model::Int(_) | Model::Long(_) | Model::Double(_) => 1,
            Model::Text(_) => 2,
            Model::Object(_) => 3,
            Model::Array(_) => 4,
            Model::Bool(_) => 5,
        }
    }

    fn order(&self, other: &Model) -> Ordering {
        match (self, other) {
            (Model::Text(a), Model::Text(b)) => a.cmp(b),
            (Model::Bool(a), Model::Bool(b)) => a.cmp(b),
            (Model::Array(a), Model::Array(b)) => {
                let orders = a.iter().zip(b).map(|(a, b)| a.order(b));
                orders.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            (Model::Object(a), Model::Object(b)) => {
                let field = |((a, v), (b, w)): (&(String, Model), &(String, Model))| {
                    v.rank().cmp(&w.rank()).then(a.cmp(b)).then_with(|| v.order(w))
                };
                let orders = a.iter().zip(b).map(field);
                orders.fold(Ordering::Equal, Ordering::then).then(a.len().cmp(&b.len()))
            }
            _ => match (self.number(), other.number()) {
                (Some(a), Some(b)) => a.partial_cmp(&b).unwrap(),
                _ => self.rank().cmp(&other.rank()),
            },
        }
    }

    /// Compares optional values; missing sorts first.
    fn order_of(a: &Option<Model>, b: &Option<Model>) -> Ordering {
        match (a, b) {
            (Some(a), Some(b)) => a.order(b),
            _ => a.is_some().cmp(&b.is_some()),
        }
    }

    fn at_path(&self, path: &[&str]) -> Option<Model> {
        let (Model::Object(fields), [name, rest @ ..]) = (self, path) else { return None };
        let (_, value) = fields.iter().find(|(field, _)| field == name)?;
        match value {
            value if rest.is_empty() => Some(value.clone()),
            Model::Array(values) => {
                Some(Model::Array(values.iter().filter_map(|value| value.at_path(rest)).collect()))
            }
            value => value.at_path(rest),
        }
    }
}

/// An expression.
#[derive(Clone, Debug)]
pub(super) enum Expr {
    Path(&'static str),
    Constant(Model),
    Variable(&'static str),
    Call(&'static str, Vec<Expr>),
    List(Vec<Expr>),
    /// `$let` over the free variables.
    Bound(Box<Expr>),
    Map(Box<Expr>, Box<Expr>),
    Filter(Box<Expr>, Box<Expr>),
    Reduce(Box<Expr>, Box<Expr>, Box<Expr>),
}

#[derive(Clone, Default)]
struct Variables {
    this: Option<Model>,
    value: Option<Model>,
}

impl Expr {
    pub(super) fn map(over: Expr, of: Expr) -> Expr {
        Expr::Map(Box::new(over), Box::new(of))
    }

    pub(super) fn filter(over: Expr, of: Expr) -> Expr {
        Expr::Filter(Box::new(over), Box::new(of))
    }

    pub(super) fn reduce(over: Expr, first: Expr, of: Expr) -> Expr {
        Expr::Reduce(Box::new(over), Box::new(first), Box::new(of))
    }

    /// Binds `$$this` and `$$value` to the fields `a` and `b`.
    pub(super) fn bound(&self) -> Expr {
        Expr::Bound(Box::new(self.clone()))
    }

    pub(super) fn text(&self) -> String {
        let list = |items: &[Expr]| items.iter().map(Expr::text).collect::<Vec<_>>().join(", ");
        match self {
            Expr::Path(path) => format!("'${path}'"),
            Expr::Constant(value) => format!("{{$literal: {}}}", value.text()),
            Expr::Variable(name) => format!("'$${name}'"),
            Expr::Call(name, operands) => format!("{{{name}: [{}]}}", list(operands)),
            Expr::List(items) => format!("[{}]", list(items)),
            Expr::Bound(of) => format!("{{$let: {{vars: {{this: '$a', value: '$b'}}, in: {}}}}}", of.text()),
            Expr::Map(over, of) => format!("{{$map: {{input: {}, in: {}}}}}", over.text(), of.text()),
            Expr::Filter(over, of) => format!("{{$filter: {{input: {}, cond: {}}}}}", over.text(), of.text()),
            Expr::Reduce(over, first, of) => format!(
                "{{$reduce: {{input: {}, initialValue: {}, in: {}}}}}",
                over.text(),
                first.text(),
                of.text()
            ),
        }
    }

    fn parts(&self) -> Vec<&Expr> {
        match self {
            Expr::Path(_) | Expr::Constant(_) | Expr::Variable(_) => Vec::new(),
            Expr::Call(_, parts) | Expr::List(parts) => parts.iter().collect(),
            Expr::Bound(of) => vec![of],
            Expr::Map(over, of) | Expr::Filter(over, of) => vec![over, of],
            Expr::Reduce(over, first, of) => vec![over, first, of],
        }
    }

    /// Whether the value depends on neither the document nor a variable. Operators that iterate over an array are
    /// evaluated per document nevertheless.
    fn is_constant(&self) -> bool {
        let waits = matches!(self, Expr::Path(_) | Expr::Variable(_) | Expr::Bound(_));
        let iterates = matches!(self, Expr::Map(..) | Expr::Filter(..) | Expr::Reduce(..));
        !waits && !iterates && self.parts().into_iter().all(Expr::is_constant)
    }

    /// Whether a constant part fails.
    pub(super) fn has_bad_constant(&self) -> bool {
        (self.is_constant() && self.evaluate(&Model::Null).is_err())
            || self.parts().into_iter().any(Expr::has_bad_constant)
    }

    pub(super) fn evaluate(&self, root: &Model) -> Evaluated {
        self.of(root, &Variables::default())
    }

    fn of(&self, root: &Model, variables: &Variables) -> Evaluated {
        match self {
            Expr::Path(path) => Ok(root.at_path(&path.split('.').collect::<Vec<_>>())),
            Expr::Constant(value) => Ok(Some(value.clone())),
            Expr::Variable("this") => Ok(variables.this.clone()),
            Expr::Variable(_) => Ok(variables.value.clone()),
            Expr::List(items) => {
                let items: Result<Vec<_>, _> =
                    items.iter().map(|item| Ok(item.of(root, variables)?.unwrap_or(Model::Null))).collect();
                Ok(Some(Model::Array(items?)))
            }
            Expr::Bound(of) => {
                let bound = Variables { this: root.at_path(&["a"]), value: root.at_path(&["b"]) };
                of.of(root, &bound)
            }
            Expr::Map(over, of) => each(over.of(root, variables)?, |item, out| {
                let inner = Variables { this: Some(item), ..variables.clone() };
                out.push(of.of(root, &inner)?.unwrap_or(Model::Null));
                Ok(())
            }),
            Expr::Filter(over, of) => each(over.of(root, variables)?, |item, out| {
                let inner = Variables { this: Some(item.clone()), ..variables.clone() };
                if Model::truthy(&of.of(root, &inner)?) {
                    out.push(item);
                }
                Ok(())
            }),
            Expr::Reduce(over, first, of) => {
                let over = over.of(root, variables)?;
                let mut value = match over {
                    None | Some(Model::Null) => return Ok(Some(Model::Null)),
                    _ => first.of(root, variables)?,
                };
                let Some(Model::Array(items)) = over else { return Err(EvaluationError) };
                for item in items {
                    value = of.of(root, &Variables { this: Some(item), value })?;
                }
                Ok(value)
            }
            Expr::Call(name, operands) => call(name, operands, &|operand| operand.of(root, variables)),
        }
    }
}

/// Maps over the elements; null for null.
fn each(
    over: Option<Model>,
    mut make: impl FnMut(Model, &mut Vec<Model>) -> Result<(), EvaluationError>,
) -> Evaluated {
    let items = match over {
        None | Some(Model::Null) => return Ok(Some(Model::Null)),
        Some(Model::Array(items)) => items,
        Some(_) => return Err(EvaluationError),
    };
    let mut out = Vec::new();
    for item in items {
        make(item, &mut out)?;
    }
    Ok(Some(Model::Array(out)))
}

fn call(name: &str, operands: &[Expr], of: &dyn Fn(&Expr) -> Evaluated) -> Evaluated {
    let lazily = |truth: bool| -> Evaluated {
        for operand in operands {
            if Model::truthy(&of(operand)?) == truth {
                return Ok(Some(Model::Bool(truth)));
            }
        }
        Ok(Some(Model::Bool(!truth)))
    };
    match name {
        "$and" => return lazily(false),
        "$or" => return lazily(true),
        "$cond" => return of(&operands[if Model::truthy(&of(&operands[0])?) { 1 } else { 2 }]),
        "$ifNull" => {
            let (last, first) = operands.split_last().unwrap();
            for operand in first {
                match of(operand)? {
                    None | Some(Model::Null) => {}
                    found => return Ok(found),
                }
            }
            return of(last);
        }
        "$add" | "$multiply" | "$concat" | "$concatArrays" => return gather(name, operands, of),
        _ => {}
    }
    let values = operands.iter().map(of).collect::<Result<Vec<_>, _>>()?;
    match (name, &values[..]) {
        ("$max" | "$min", values) => Ok(Some(extreme(name, values))),
        (_, [one]) => unary(name, one.as_ref()),
        (_, [a, b]) => binary(name, a, b),
        _ => panic!("the model has no {name}"),
    }
}

/// Combines the operands; the first null or operand of a wrong type ends the evaluation.
fn gather(name: &str, operands: &[Expr], of: &dyn Fn(&Expr) -> Evaluated) -> Evaluated {
    let mut result: Option<Model> = None;
    for operand in operands {
        let Some(value) = of(operand)?.filter(|value| *value != Model::Null) else {
            return Ok(Some(Model::Null));
        };
        result = Some(match (name, result, value) {
            ("$concat", None, Model::Text(text)) => Model::Text(text),
            ("$concat", Some(Model::Text(result)), Model::Text(text)) => Model::Text(result + &text),
            ("$concatArrays", None, Model::Array(items)) => Model::Array(items),
            ("$concatArrays", Some(Model::Array(result)), Model::Array(items)) => {
                Model::Array([result, items].concat())
            }
            ("$add", result, value) => arithmetic(&result.unwrap_or(Model::Int(0)), &value, |a, b| a + b)?,
            ("$multiply", result, value) => {
                arithmetic(&result.unwrap_or(Model::Int(1)), &value, |a, b| a * b)?
            }
            _ => return Err(EvaluationError),
        });
    }
    Ok(Some(result.unwrap_or(match name {
        "$concat" => Model::Text(String::new()),
        "$concatArrays" => Model::Array(Vec::new()),
        "$add" => Model::Int(0),
        _ => Model::Int(1),
    })))
}

/// Numbers are so small that nothing overflows or is rounded.
fn arithmetic(a: &Model, b: &Model, operate: fn(f64, f64) -> f64) -> Result<Model, EvaluationError> {
    let (Some(x), Some(y)) = (a.number(), b.number()) else { return Err(EvaluationError) };
    let result = operate(x, y);
    Ok(match (a, b) {
        (Model::Double(_), _) | (_, Model::Double(_)) => Model::Double(result),
        (Model::Long(_), _) | (_, Model::Long(_)) => Model::Long(result as i64),
        _ => i32::try_from(result as i64).map_or(Model::Long(result as i64), Model::Int),
    })
}

/// Returns the extreme value; a single array stands for its elements.
fn extreme(name: &str, values: &[Option<Model>]) -> Model {
    let values: Vec<_> = match values {
        [Some(Model::Array(items))] => items.clone(),
        values => values.iter().flatten().cloned().collect(),
    };
    let better = if name == "$max" { Ordering::Greater } else { Ordering::Less };
    let values = values.into_iter().filter(|value| *value != Model::Null);
    values
        .reduce(|best, value| if value.order(&best) == better { value } else { best })
        .unwrap_or(Model::Null)
}

fn unary(name: &str, value: Option<&Model>) -> Evaluated {
    let nullish = matches!(value, None | Some(Model::Null));
    Ok(Some(match (name, value) {
        ("$not", _) => Model::Bool(!Model::truthy(&value.cloned())),
        ("$isArray", _) => Model::Bool(matches!(value, Some(Model::Array(_)))),
        ("$type", _) => Model::Text(type_name(value).to_string()),
        ("$size", Some(Model::Array(items))) => Model::Int(items.len() as i32),
        ("$strLenCP", Some(Model::Text(text))) => Model::Int(text.chars().count() as i32),
        ("$abs" | "$reverseArray" | "$first", _) if nullish => Model::Null,
        ("$abs", Some(Model::Int(number))) => Model::Int(number.abs()),
        ("$abs", Some(Model::Long(number))) => Model::Long(number.abs()),
        ("$abs", Some(Model::Double(number))) => Model::Double(number.abs()),
        ("$reverseArray", Some(Model::Array(items))) => Model::Array(items.iter().rev().cloned().collect()),
        ("$first", Some(Model::Array(items))) => return Ok(items.first().cloned()),
        _ => return Err(EvaluationError),
    }))
}

fn type_name(value: Option<&Model>) -> &'static str {
    match value {
        None => "missing",
        Some(Model::Null) => "null",
        Some(Model::Bool(_)) => "bool",
        Some(Model::Int(_)) => "int",
        Some(Model::Long(_)) => "long",
        Some(Model::Double(_)) => "double",
        Some(Model::Text(_)) => "string",
        Some(Model::Array(_)) => "array",
        Some(Model::Object(_)) => "object",
    }
}

fn binary(name: &str, a: &Option<Model>, b: &Option<Model>) -> Evaluated {
    let order = Model::order_of(a, b);
    let held = match name {
        "$eq" => order.is_eq(),
        "$ne" => order.is_ne(),
        "$gt" => order.is_gt(),
        "$gte" => order.is_ge(),
        "$lt" => order.is_lt(),
        "$lte" => order.is_le(),
        "$cmp" => return Ok(Some(Model::Int(order as i32))),
        "$in" => match b {
            Some(Model::Array(items)) => {
                items.iter().any(|item| Model::order_of(a, &Some(item.clone())).is_eq())
            }
            _ => return Err(EvaluationError),
        },
        _ => return positional(name, a, b),
    };
    Ok(Some(Model::Bool(held)))
}

fn positional(name: &str, a: &Option<Model>, b: &Option<Model>) -> Evaluated {
    let nullish = |value: &Option<Model>| matches!(value, None | Some(Model::Null));
    if nullish(a) || nullish(b) {
        return Ok(Some(Model::Null));
    }
    let (Some(a), Some(b)) = (a, b) else { return Err(EvaluationError) };
    if name == "$subtract" {
        return arithmetic(a, b, |a, b| a - b).map(Some);
    }
    let Model::Array(items) = a else { return Err(EvaluationError) };
    if name == "$setDifference" {
        let Model::Array(without) = b else { return Err(EvaluationError) };
        let mut unique: Vec<Model> = Vec::new();
        for item in items {
            if !without.iter().chain(&unique).any(|other| other.order(item).is_eq()) {
                unique.push(item.clone());
            }
        }
        return Ok(Some(Model::Array(unique)));
    }
    let Some(number) = b.number().filter(|number| number.fract() == 0.0) else { return Err(EvaluationError) };
    let (number, length) = (number as i64, items.len() as i64);
    if name == "$arrayElemAt" {
        let at = if number < 0 { length + number } else { number };
        return Ok(usize::try_from(at).ok().and_then(|at| items.get(at)).cloned());
    }
    let count = number.abs().min(length) as usize;
    Ok(Some(Model::Array(match number {
        0.. => items[..count].to_vec(),
        _ => items[items.len() - count..].to_vec(),
    })))
}
