//! The table of all operators, sorted by name: how many arguments each takes and what it does.

use super::evaluate::{Call, Computed};
use super::named::Named;
use super::node::{CallNode, Node};
use super::parse::Parser;
use super::{arithmetic, boolean, comparison, literal};
use base::bson::{Builder, Value};
use base::{Result, err};

type Evaluate = for<'e, 'a> fn(&Call<'e, 'a>) -> Computed<'a>;
type Parse = fn(&mut Parser<'_>, &'static Operator, Value<'_>) -> Result<Node>;
type Describe = fn(&CallNode, &str, &mut Builder, &dyn Fn(&Node, &str, &mut Builder));

/// One operator of the expression language.
pub struct Operator {
    /// Its name with the dollar.
    pub name: &'static str,
    /// What arguments it takes.
    pub arity: Arity,
    /// Whether the value depends on nothing but the operands, so that constants can be folded.
    pub pure: bool,
    pub(crate) evaluate: Evaluate,
    pub(crate) describe: Option<Describe>,
}

/// What arguments an operator takes.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Arity {
    /// Any number of arguments.
    Any,
    /// So many arguments; one that is no array may stand alone.
    Exactly(usize),
    /// From so many to so many arguments.
    Between(usize, usize),
    /// Arguments with names.
    Named(&'static Named),
    /// A form of its own.
    #[allow(private_interfaces)]
    Own(Parse),
}

impl Operator {
    const fn new(name: &'static str, arity: Arity, evaluate: Evaluate) -> Operator {
        Operator { name, arity, pure: true, evaluate, describe: None }
    }

    const fn described(mut self, describe: Describe) -> Operator {
        self.describe = Some(describe);
        self
    }

    /// Checks the number of positional arguments.
    ///
    /// Errors: 16020 and 28667.
    pub(crate) fn check_count(&self, count: usize) -> Result<()> {
        let name = self.name;
        match self.arity {
            Arity::Exactly(wanted) if count != wanted => Err(err!(
                16020,
                "Expression {name} takes exactly {wanted} arguments. {count} were passed in."
            )),
            Arity::Between(least, most) if !(least..=most).contains(&count) => Err(err!(
                28667,
                "Expression {name} takes at least {least} arguments, and at most {most}, but {count} were passed in."
            )),
            _ => Ok(()),
        }
    }
}

impl std::fmt::Debug for Operator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The operator of this name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.binary_search_by(|operator| operator.name.cmp(name)).ok().and_then(|index| OPERATORS.get(index))
}

const fn op(name: &'static str, arity: Arity, evaluate: Evaluate) -> Operator {
    Operator::new(name, arity, evaluate)
}

use Arity::{Any, Exactly, Own};

/// Every operator, sorted by name.
pub static OPERATORS: &[Operator] = &[
    op("$add", Any, arithmetic::add),
    op("$and", Any, boolean::and),
    op("$cmp", Exactly(2), comparison::cmp),
    op("$const", Own(literal::parse_literal), literal::literal),
    op("$eq", Exactly(2), comparison::eq),
    op("$gt", Exactly(2), comparison::gt),
    op("$gte", Exactly(2), comparison::gte),
    op("$let", Own(literal::parse_let), literal::r#let).described(literal::describe_let),
    op("$literal", Own(literal::parse_literal), literal::literal),
    op("$lt", Exactly(2), comparison::lt),
    op("$lte", Exactly(2), comparison::lte),
    op("$multiply", Any, arithmetic::multiply),
    op("$ne", Exactly(2), comparison::ne),
    op("$not", Exactly(1), boolean::not),
    op("$or", Any, boolean::or),
    op("$subtract", Exactly(2), arithmetic::subtract),
];

#[cfg(any())]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(OPERATORS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(find("$add").is_some_and(|operator| operator.name == "$add"));
        assert!(find("$nothing").is_none());
    }
}
