//! Validation of variable names, with MongoDB's errors.

use base::{Result, bail, err};

/// Checks a name that `$$name` refers to.
///
/// Errors: FailedToParse for an empty name or an invalid character.
pub(crate) fn check_name_for_reading(name: &str) -> Result<()> {
    let Some(first) = name.chars().next() else {
        bail!(FailedToParse, "empty variable names are not allowed");
    };
    if first.is_ascii() && !first.is_ascii_alphabetic() {
        bail!(FailedToParse, "'{name}' starts with an invalid character for a variable name");
    }
    match bad_character(name) {
        Some(bad) => {
            Err(err!(FailedToParse, "'{name}' contains an invalid character for a variable name: '{bad}'"))
        }
        None => Ok(()),
    }
}

/// Checks a name that an expression or a command's `let` binds. It starts with a lower-case letter; of the system
/// variables only CURRENT may be bound.
///
/// Errors: FailedToParse for an empty name or an invalid character.
pub fn check_name_for_binding(name: &str) -> Result<()> {
    let Some(first) = name.chars().next() else {
        bail!(FailedToParse, "empty variable names are not allowed");
    };
    if name == "CURRENT" {
        return Ok(());
    }
    if first.is_ascii() && !first.is_ascii_lowercase() {
        bail!(FailedToParse, "'{name}' starts with an invalid character for a user variable name");
    }
    match bad_character(name) {
        Some(bad) => {
            Err(err!(FailedToParse, "'{name}' contains an invalid character for a variable name: '{bad}'"))
        }
        None => Ok(()),
    }
}

fn bad_character(name: &str) -> Option<char> {
    name.chars().skip(1).find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_')
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_parse_error};

    #[test]
    fn names_of_variables_are_checked() {
        check_parse_error("'$$'", 9);
        check_parse_error("'$$_x'", 9);
        check_parse_error("'$$a-b'", 9);
        check_parse_error("'$$nobody'", 17276);
        check_parse_error("{$let: {vars: {Big: 1}, in: 1}}", 9);
        check_parse_error("{$let: {vars: {'a-b': 1}, in: 1}}", 9);
    }

    #[test]
    fn paths_are_checked() {
        check_parse_error("'$'", 16872);
        check_parse_error("'$a.'", 40353);
        check_parse_error("'$a..b'", 15998);
        check_parse_error("'$a.$b'", 16410);
        check_parse_error("{'a.b': 1}", 16412);
    }

    #[test]
    fn system_variables() {
        check("'$$ROOT.a'", "{a: 1}", "1");
        check("'$$CURRENT.a'", "{a: 1}", "1");
        check("['$$REMOVE', {a: '$$REMOVE'}]", "{}", "[null, {}]");
        check("{$let: {vars: {CURRENT: '$a'}, in: '$b'}}", "{a: {b: 5}, b: 6}", "5");
    }
}
