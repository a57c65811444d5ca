//! The table of all operators, sorted by name, with arity and function.
//!
//! A new operator is a row of [`OPERATORS`] and a function in the module of its subject (`array`, `date`, `string`, …).
//! Operators that differ only by a constant share a function.

use super::accumulators::{self, ranks};
use super::arithmetic::{self, divide, power, rounding, trigonometry};
use super::array::{self, iterate, order, position, reduce, to_object};
use super::convert::{self, Format};
use super::date::{self, from_string, parts, to_string};
use super::evaluate::{Call, Computed, value};
use super::node::{CallNode, Node};
use super::parse::Parser;
use super::string::{self, edit, regex, substring};
use super::{conditional, extended_json, literal, logic, misc, named, object, set};
use crate::accumulator_state::Deviation;
use base::bson::{Builder, FieldName, Rounding, Type, Value};
use base::{Result, err};
use std::cmp::Ordering;

/// Evaluates a call.
type Evaluate = for<'e, 'a> fn(&Call<'e, 'a>) -> Computed<'a>;
/// Parses the argument of an operator with a special form.
type Parse = fn(&mut Parser<'_>, &'static Operator, Value<'_>) -> Result<Node>;
/// Checks constant operands while parsing. Returns whether they make the value null for all documents.
type Check = for<'e, 'a> fn(&Call<'e, 'a>) -> Result<bool>;
/// Formats a call as BSON.
type Describe = fn(&CallNode, FieldName<'_>, &mut Builder);

/// The form in which a call is formatted as BSON. Its parser accepts this form.
pub(crate) enum Form {
    /// An array of the operands.
    Positional,
    /// An object with these names for the operands.
    Named(&'static [&'static str]),
    /// Another form.
    Own(Describe),
}

/// One operator of the expression language.
pub struct Operator {
    /// The name with the dollar sign.
    pub name: &'static str,
    /// The accepted arguments.
    pub arity: Arity,
    /// Whether the value depends only on the operands, which allows constant folding. Operators that bind variables are
    /// evaluated per document, as in MongoDB.
    pub pure: bool,
    pub(crate) evaluate: Evaluate,
    /// Checks constant operands even if other operands are not constant.
    pub(crate) check: Option<Check>,
    pub(crate) form: Form,
    pub(crate) composition: Composition,
}

/// The composition of an operator's value from its operands, which lets `$reduce` change a value without a copy.
#[derive(Clone, Copy)]
pub(crate) enum Composition {
    /// Not known.
    Opaque,
    /// The second or the third operand, depending on the truth of the first.
    Choice,
    /// The content of operands of this type, one after the other.
    Concatenation(Type),
    /// A join of operands of this type, for which `op(op(a, b), c)` is `op(a, b, c)`.
    Join(Type),
}

/// The accepted arguments of an operator.
#[derive(Clone, Copy)]
#[non_exhaustive]
pub enum Arity {
    /// Any number of arguments.
    Any,
    /// Exactly this number of arguments. A single argument that is not an array needs no brackets.
    Exactly(usize),
    /// A single value to convert.
    Converted,
    /// A range of numbers of arguments.
    Between(usize, usize),
    /// Named arguments.
    Named(&'static named::Named),
    /// A special form.
    #[allow(private_interfaces)]
    Own(Parse),
}

impl Operator {
    const fn new(name: &'static str, arity: Arity, evaluate: Evaluate) -> Operator {
        Operator {
            name,
            arity,
            pure: true,
            evaluate,
            check: None,
            form: Form::Positional,
            composition: Composition::Opaque,
        }
    }

    const fn described(mut self, describe: Describe) -> Operator {
        self.form = Form::Own(describe);
        self
    }

    const fn with_names(mut self, names: &'static [&'static str]) -> Operator {
        self.form = Form::Named(names);
        self
    }

    const fn checked(mut self, check: Check) -> Operator {
        self.check = Some(check);
        self
    }

    const fn impure(mut self) -> Operator {
        self.pure = false;
        self
    }

    const fn composed(mut self, composition: Composition) -> Operator {
        self.composition = composition;
        self
    }

    /// Checks the number of positional arguments.
    ///
    /// Errors: 16020, 28667; 50723 for conversions.
    pub(crate) fn check_count(&self, count: usize) -> Result<()> {
        let name = self.name;
        match self.arity {
            Arity::Converted if count != 1 => {
                Err(err!(50723, "{name} requires a single argument, got {count}"))
            }
            Arity::Exactly(expected) if count != expected => Err(err!(
                16020,
                "Expression {name} takes exactly {expected} arguments. {count} were passed in."
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

/// Returns the operator with this name.
pub(crate) fn find(name: &str) -> Option<&'static Operator> {
    OPERATORS.binary_search_by(|operator| operator.name.cmp(name)).ok().and_then(|index| OPERATORS.get(index))
}

/// Defines an operator without further properties.
const fn op(name: &'static str, arity: Arity, evaluate: Evaluate) -> Operator {
    Operator::new(name, arity, evaluate)
}

/// Defines an operator that returns a part of a date.
const fn date_part(name: &'static str, evaluate: Evaluate) -> Operator {
    op(name, Own(parts::parse), evaluate).with_names(parts::NAMES).checked(parts::check)
}

use Arity::{Any, Between, Converted, Exactly, Named, Own};
use Composition::{Choice, Concatenation, Join};

/// Every operator, sorted by name.
pub static OPERATORS: &[Operator] = &[
    op("$abs", Exactly(1), rounding::abs),
    op("$acos", Exactly(1), trigonometry::acos),
    op("$acosh", Exactly(1), trigonometry::acosh),
    op("$add", Any, arithmetic::add),
    op("$allElementsTrue", Exactly(1), set::all_true),
    op("$and", Any, logic::and),
    op("$anyElementTrue", Exactly(1), set::any_true),
    op("$arrayElemAt", Exactly(2), array::element_at),
    op("$arrayToObject", Exactly(1), to_object::array_to_object),
    op("$asin", Exactly(1), trigonometry::asin),
    op("$asinh", Exactly(1), trigonometry::asinh),
    op("$atan", Exactly(1), trigonometry::atan),
    op("$atan2", Exactly(2), trigonometry::atan2),
    op("$atanh", Exactly(1), trigonometry::atanh),
    op("$avg", Any, accumulators::avg),
    op("$binarySize", Exactly(1), misc::binary_size),
    op("$bitAnd", Any, |call| logic::combine_bits(call, -1, |a, b| a & b)),
    op("$bitNot", Exactly(1), logic::bit_not),
    op("$bitOr", Any, |call| logic::combine_bits(call, 0, |a, b| a | b)),
    op("$bitXor", Any, |call| logic::combine_bits(call, 0, |a, b| a ^ b)),
    op("$bsonSize", Exactly(1), misc::bson_size),
    op("$ceil", Exactly(1), rounding::ceil),
    op("$cmp", Exactly(2), logic::cmp),
    op("$concat", Any, string::concat).composed(Concatenation(Type::String)),
    op("$concatArrays", Any, array::concat).composed(Concatenation(Type::Array)),
    op("$cond", Own(conditional::parse_cond), conditional::cond).composed(Choice),
    op("$const", Own(literal::parse_literal), misc::never),
    op("$convert", Named(&convert::ARGUMENTS), convert::operator),
    op("$cos", Exactly(1), trigonometry::cos),
    op("$cosh", Exactly(1), trigonometry::cosh),
    op("$createObjectId", Own(misc::parse_empty), misc::create_object_id).impure(),
    op("$createUUID", Own(misc::parse_empty), misc::create_uuid).impure(),
    op("$currentDate", Own(misc::parse_empty), misc::current_date).impure(),
    op("$dateAdd", Named(&date::arithmetic::ADD), |call| date::arithmetic::shift_by(call, 1))
        .checked(date::arithmetic::check_shift),
    op("$dateDiff", Named(&date::arithmetic::DIFFERENCE), date::arithmetic::difference)
        .checked(date::arithmetic::check_difference),
    op("$dateFromParts", Own(parts::parse_from_parts), parts::from_parts)
        .described(parts::describe_from_parts)
        .checked(parts::check_from_parts),
    op("$dateFromString", Named(&from_string::ARGUMENTS), from_string::from_string)
        .checked(|call| date::check_zone(call, 2).map(|_| false)),
    op("$dateSubtract", Named(&date::arithmetic::SUBTRACT), |call| date::arithmetic::shift_by(call, -1))
        .checked(date::arithmetic::check_shift),
    op("$dateToParts", Named(&parts::TO_PARTS), parts::to_parts).checked(|call| date::check_zone(call, 1)),
    op("$dateToString", Named(&to_string::ARGUMENTS), to_string::to_string)
        .checked(|call| date::check_zone(call, 2).map(|_| false)),
    op("$dateTrunc", Named(&date::arithmetic::TRUNCATE), date::arithmetic::truncate)
        .checked(date::arithmetic::check_truncate),
    date_part("$dayOfMonth", parts::day_of_month),
    date_part("$dayOfWeek", parts::day_of_week),
    date_part("$dayOfYear", parts::day_of_year),
    op("$degreesToRadians", Exactly(1), trigonometry::degrees_to_radians),
    op("$deserializeEJSON", Named(&extended_json::DESERIALIZE), extended_json::deserialize),
    op("$divide", Exactly(2), divide::divide),
    op("$eq", Exactly(2), |call| value(logic::order(call)?.is_eq())),
    op("$exp", Exactly(1), power::exp),
    // The parser returns the operand.
    op("$expr", Own(literal::parse_expr), misc::never),
    op("$filter", Own(iterate::parse_filter), iterate::filter).described(iterate::describe).impure(),
    op("$first", Exactly(1), |call| array::end(call, 0)),
    op("$firstN", Named(&order::ENDS), order::first_n),
    op("$floor", Exactly(1), rounding::floor),
    op("$function", Own(misc::refuse), misc::never),
    op("$getField", Own(object::parse_get), object::get).with_names(&["field", "input"]),
    op("$gt", Exactly(2), |call| value(logic::order(call)?.is_gt())),
    op("$gte", Exactly(2), |call| value(logic::order(call)?.is_ge())),
    op("$hash", Named(&misc::HASH), misc::hash),
    op("$hexHash", Named(&misc::HEX_HASH), misc::hex_hash),
    date_part("$hour", parts::hour),
    op("$ifNull", Own(conditional::parse_if_null), conditional::if_null),
    op("$in", Exactly(2), array::contains),
    op("$indexOfArray", Between(2, 4), position::index_of),
    op("$indexOfBytes", Between(2, 4), substring::index_of_bytes),
    op("$indexOfCP", Between(2, 4), substring::index_of_code_points),
    op("$isArray", Exactly(1), array::is_array),
    op("$isNumber", Exactly(1), convert::is_number),
    date_part("$isoDayOfWeek", parts::iso_day_of_week),
    date_part("$isoWeek", parts::iso_week),
    date_part("$isoWeekYear", parts::iso_week_year),
    op("$last", Exactly(1), |call| array::end(call, -1)),
    op("$lastN", Named(&order::ENDS), order::last_n),
    op("$let", Own(literal::parse_let), literal::r#let).described(literal::describe_let).impure(),
    op("$literal", Own(literal::parse_literal), misc::never),
    op("$ln", Exactly(1), power::ln),
    op("$log", Exactly(2), power::log),
    op("$log10", Exactly(1), power::log10),
    op("$lt", Exactly(2), |call| value(logic::order(call)?.is_lt())),
    op("$lte", Exactly(2), |call| value(logic::order(call)?.is_le())),
    op("$ltrim", Named(&edit::LEFT), |call| edit::trim(call, true, false)),
    op("$map", Own(iterate::parse_map), iterate::map).described(iterate::describe).impure(),
    op("$max", Any, |call| accumulators::extreme(call, Ordering::Greater)),
    op("$maxN", Named(&order::EXTREMES), order::max_n),
    op("$median", Named(&ranks::MEDIAN), ranks::median),
    op("$mergeObjects", Any, object::merge).composed(Join(Type::Document)),
    op("$meta", Own(misc::parse_meta), misc::meta).described(misc::describe_meta).impure(),
    date_part("$millisecond", parts::millisecond),
    op("$min", Any, |call| accumulators::extreme(call, Ordering::Less)),
    op("$minN", Named(&order::EXTREMES), order::min_n),
    date_part("$minute", parts::minute),
    op("$mod", Exactly(2), divide::modulo),
    date_part("$month", parts::month),
    op("$multiply", Any, arithmetic::multiply),
    op("$ne", Exactly(2), |call| value(logic::order(call)?.is_ne())),
    op("$not", Exactly(1), logic::not),
    op("$objectToArray", Exactly(1), to_object::object_to_array),
    op("$or", Any, logic::or),
    op("$percentile", Named(&ranks::PERCENTILE), ranks::percentile),
    op("$pow", Exactly(2), power::pow),
    op("$radiansToDegrees", Exactly(1), trigonometry::radians_to_degrees),
    op("$rand", Own(misc::parse_rand), misc::rand).impure(),
    op("$range", Between(2, 3), position::range),
    op("$reduce", Own(iterate::parse_reduce), reduce::reduce).described(iterate::describe).impure(),
    op("$regexFind", Named(&regex::FIND), regex::find).checked(regex::check),
    op("$regexFindAll", Named(&regex::FIND_ALL), regex::find_all).checked(regex::check),
    op("$regexMatch", Named(&regex::MATCH), regex::is_match).checked(regex::check),
    op("$replaceAll", Named(&edit::REPLACE_ALL), |call| edit::replace(call, usize::MAX)),
    op("$replaceOne", Named(&edit::REPLACE_ONE), |call| edit::replace(call, 1)),
    op("$reverseArray", Exactly(1), array::reverse),
    op("$round", Between(1, 2), |call| rounding::places(call, Rounding::HalfEven)),
    op("$rtrim", Named(&edit::RIGHT), |call| edit::trim(call, false, true)),
    date_part("$second", parts::second),
    op("$serializeEJSON", Named(&extended_json::SERIALIZE), extended_json::serialize),
    op("$setDifference", Exactly(2), set::difference),
    op("$setEquals", Own(set::parse_equals), set::equals),
    op("$setField", Own(object::parse_set), object::set).with_names(&["field", "input", "value"]),
    op("$setIntersection", Any, set::intersection),
    op("$setIsSubset", Exactly(2), set::is_subset).checked(set::check_subset),
    op("$setUnion", Any, set::union).composed(Join(Type::Array)),
    op("$sigmoid", Own(power::parse_sigmoid), power::sigmoid),
    op("$sin", Exactly(1), trigonometry::sin),
    op("$sinh", Exactly(1), trigonometry::sinh),
    op("$size", Exactly(1), array::size),
    op("$slice", Between(2, 3), position::slice),
    op("$sortArray", Own(order::parse_sort), order::sort).described(order::describe_sort),
    op("$split", Exactly(2), edit::split),
    op("$sqrt", Exactly(1), power::sqrt),
    op("$stdDevPop", Any, |call| accumulators::accumulate(call, Deviation::default())),
    op("$stdDevSamp", Any, |call| accumulators::accumulate(call, Deviation::of_sample())),
    op("$strLenBytes", Exactly(1), string::length_bytes),
    op("$strLenCP", Exactly(1), string::length_code_points),
    op("$strcasecmp", Exactly(2), string::compare_ignoring_case),
    op("$substr", Exactly(3), substring::bytes),
    op("$substrBytes", Exactly(3), substring::bytes),
    op("$substrCP", Exactly(3), substring::code_points),
    op("$subtract", Exactly(2), arithmetic::subtract),
    op("$subtype", Exactly(1), misc::subtype),
    op("$sum", Any, accumulators::sum),
    op("$switch", Own(conditional::parse_switch), conditional::switch)
        .described(conditional::describe_switch)
        .checked(conditional::check_switch),
    op("$tan", Exactly(1), trigonometry::tan),
    op("$tanh", Exactly(1), trigonometry::tanh),
    op("$toArray", Converted, |call| convert::to_type(call, Type::Array, None)),
    op("$toBool", Converted, |call| convert::to_type(call, Type::Boolean, None)),
    op("$toDate", Converted, |call| convert::to_type(call, Type::DateTime, None)),
    op("$toDecimal", Converted, |call| convert::to_type(call, Type::Decimal128, None)),
    op("$toDouble", Converted, |call| convert::to_type(call, Type::Double, None)),
    op("$toHashedIndexKey", Exactly(1), misc::hashed_index_key),
    op("$toInt", Converted, |call| convert::to_type(call, Type::Int32, None)),
    op("$toLong", Converted, |call| convert::to_type(call, Type::Int64, None)),
    op("$toLower", Exactly(1), string::to_lower),
    op("$toObject", Converted, |call| convert::to_type(call, Type::Document, None)),
    op("$toObjectId", Converted, |call| convert::to_type(call, Type::ObjectId, None)),
    op("$toString", Converted, |call| convert::to_type(call, Type::String, Some(Format::Auto))),
    op("$toUUID", Converted, |call| convert::to_type(call, Type::Binary, Some(Format::Uuid))),
    op("$toUpper", Exactly(1), string::to_upper),
    op("$trim", Named(&edit::TRIM), |call| edit::trim(call, true, true)),
    op("$trunc", Between(1, 2), |call| rounding::places(call, Rounding::TowardZero)),
    op("$tsIncrement", Exactly(1), |call| parts::timestamp(call, 5687302, |time| time & 0xFFFF_FFFF)),
    op("$tsSecond", Exactly(1), |call| parts::timestamp(call, 5687301, |time| time >> 32)),
    op("$type", Exactly(1), convert::type_of),
    op("$unsetField", Own(object::parse_set), object::set).with_names(&["field", "input", "value"]),
    date_part("$week", parts::week),
    date_part("$year", parts::year),
    op("$zip", Own(array::zip::parse), array::zip::zip).described(array::zip::describe),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_sorted() {
        assert!(OPERATORS.windows(2).all(|pair| pair[0].name < pair[1].name));
        assert!(find("$add").is_some_and(|operator| operator.name == "$add"));
        assert!(find("$nothing").is_none());
    }
}
