//! Operators with named arguments: `{$operator: {input: …, cond: …}}`.

use super::node::Node;
use super::parse::Parser;
use super::table::Operator;
use base::bson::{Document, Value};
use base::{Error, ErrorCode, Result};

/// The named arguments of an operator. In messages, `{}` is the argument's name or the type found.
#[derive(Debug)]
pub struct Named {
    /// The arguments in the order of their evaluation.
    pub parameters: &'static [Parameter],
    /// Error for an argument that is not an object; `{}` is the type found, `{element}` the operator with its argument.
    pub no_object: ErrorTemplate,
    /// Error for an unknown argument; `{}` is its name.
    pub unknown: ErrorTemplate,
}

/// One named argument.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// Error if the argument is missing; `None` if it is optional.
    pub missing: Option<ErrorTemplate>,
}

/// An error code and a message that contains `{}`.
#[derive(Debug, Clone, Copy)]
pub struct ErrorTemplate(pub ErrorCode, pub &'static str);

impl ErrorTemplate {
    /// Builds the error, with `detail` for `{}` in the message.
    pub fn about(self, detail: &str) -> Error {
        Error::new(self.0, self.1.replace("{}", detail))
    }
}

/// Builds a complaint with one of MongoDB's unnamed codes.
pub(crate) const fn error_template(code: i32, message: &'static str) -> ErrorTemplate {
    ErrorTemplate(ErrorCode::Location(code), message)
}

/// Builds a required argument.
pub(crate) const fn required(name: &'static str, code: i32, message: &'static str) -> Parameter {
    Parameter { name, missing: Some(error_template(code, message)) }
}

/// Builds an optional argument.
pub(crate) const fn optional(name: &'static str) -> Parameter {
    Parameter { name, missing: None }
}

/// Declares the arguments of an operator that answers with FailedToParse, as MongoDB's newer ones do: the required and
/// the optional ones.
macro_rules! named_arguments {
    ($operator:literal, [$($required:literal),*], [$($optional:literal),*]) => {
        $crate::expression::named::Named {
            parameters: &[
                $($crate::expression::named::Parameter {
                    name: $required,
                    missing: Some($crate::expression::named::ErrorTemplate(
                        base::ErrorCode::FailedToParse,
                        concat!("Missing '", $required, "' parameter to ", $operator),
                    )),
                },)*
                $($crate::expression::named::optional($optional),)*
            ],
            no_object: $crate::expression::named::ErrorTemplate(
                base::ErrorCode::FailedToParse,
                concat!($operator, " expects an object of named arguments but found: {}"),
            ),
            unknown: $crate::expression::named::ErrorTemplate(
                base::ErrorCode::FailedToParse,
                concat!($operator, " found an unknown argument: {}"),
            ),
        }
    };
}
pub(super) use named_arguments;

/// Parses the argument object into operands in the declared order.
pub(super) fn parse(
    parser: &mut Parser<'_>,
    operator: &'static Operator,
    declared: &'static Named,
    argument: Value<'_>,
) -> Result<Node> {
    let Value::Document(argument) = argument else {
        let ErrorTemplate(code, message) = declared.no_object;
        let element = format!("{}: {argument}", operator.name);
        let message = message.replace("{}", argument.kind().alias()).replace("{element}", &element);
        return Err(Error::new(code, message));
    };
    operands(parser, declared.parameters, declared.unknown, argument)
        .map(|operands| Node::call(operator, operands))
}

/// Parses the fields of an argument into operands in the declared order. Errors: `unknown` for another field, and the
/// errors of missing ones.
pub(super) fn operands(
    parser: &mut Parser<'_>,
    parameters: &[Parameter],
    unknown: ErrorTemplate,
    argument: Document<'_>,
) -> Result<Vec<Node>> {
    let mut operands = vec![Node::Absent; parameters.len()];
    for element in argument {
        let position = parameters.iter().position(|parameter| parameter.name == element.name());
        let slot = position.and_then(|index| operands.get_mut(index));
        *slot.ok_or_else(|| unknown.about(element.name()))? = parser.operand(element.value())?;
    }
    for (parameter, operand) in parameters.iter().zip(&operands) {
        if let (Some(missing), Node::Absent) = (parameter.missing, operand) {
            return Err(missing.about(parameter.name));
        }
    }
    Ok(operands)
}
