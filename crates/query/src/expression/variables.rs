//! Which names a variable may have and which paths a field reference, with MongoDB's errors.

use base::bson::{MAX_DEPTH, Path};
use base::{Result, err};

/// Checks a name that `$$name` refers to.
///
/// Errors: 16869 empty, 16870 a bad first character, 16871 a bad one later.
pub(crate) fn check_name_for_reading(name: &str) -> Result<()> {
    let Some(first) = name.chars().next() else {
        return Err(err!(16869, "empty variable names are not allowed"));
    };
    if first.is_ascii() && !first.is_ascii_alphabetic() {
        return Err(err!(16870, "'{name}' starts with an invalid character for a variable name"));
    }
    match bad_character(name) {
        Some(bad) => Err(err!(16871, "'{name}' contains an invalid character for a variable name: '{bad}'")),
        None => Ok(()),
    }
}

/// Checks a name that an expression or a command's `let` binds: it starts with a small letter,
/// and only CURRENT of the system's own may be bound.
///
/// Errors: 16866 empty, 16867 a bad first character, 16868 a bad one later.
pub fn check_name_for_binding(name: &str) -> Result<()> {
    let Some(first) = name.chars().next() else {
        return Err(err!(16866, "empty variable names are not allowed"));
    };
    if name == "CURRENT" {
        return Ok(());
    }
    if first.is_ascii() && !first.is_ascii_lowercase() {
        return Err(err!(16867, "'{name}' starts with an invalid character for a user variable name"));
    }
    match bad_character(name) {
        Some(bad) => Err(err!(16868, "'{name}' contains an invalid character for a variable name: '{bad}'")),
        None => Ok(()),
    }
}

fn bad_character(name: &str) -> Option<char> {
    name.chars().skip(1).find(|c| c.is_ascii() && !c.is_ascii_alphanumeric() && *c != '_')
}

/// Splits a dotted path after checking it.
///
/// Errors: 40352 empty, 40353 ends with a dot, and those of [`check_field_name`]; Overflow where
/// it has more components than documents may nest.
pub fn checked_path(text: &str) -> Result<Path> {
    if text.is_empty() {
        return Err(err!(40352, "FieldPath cannot be constructed with empty string"));
    }
    if text.ends_with('.') {
        return Err(err!(40353, "FieldPath must not end with a '.'."));
    }
    let path = Path::new(text);
    if path.components().len() > MAX_DEPTH {
        return Err(err!(Overflow, "FieldPath is too long"));
    }
    for component in path.components() {
        check_field_name(component.name())?;
    }
    Ok(path)
}

/// Checks one name of a path or an object literal.
///
/// Errors: 15998 empty, 16410 a leading dollar, 16411 NUL, 16412 a dot.
pub(crate) fn check_field_name(name: &str) -> Result<()> {
    if name.is_empty() {
        return Err(err!(15998, "FieldPath field names may not be empty strings."));
    }
    if name.starts_with('$') {
        return Err(err!(
            16410,
            "FieldPath field names may not start with '$'. Consider using $getField or $setField."
        ));
    }
    if name.contains('\0') {
        // MongoDB's own message ends at the NUL that it means to show.
        return Err(err!(16411, "FieldPath field names may not contain '"));
    }
    if name.contains('.') {
        return Err(err!(
            16412,
            "FieldPath field names may not contain '.'. Consider using $getField or $setField."
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, check_parse_error};

    #[test]
    fn names_of_variables_are_checked() {
        check_parse_error("'$$'", 16869);
        check_parse_error("'$$_x'", 16870);
        check_parse_error("'$$a-b'", 16871);
        check_parse_error("'$$nobody'", 17276);
        check_parse_error("{$let: {vars: {Big: 1}, in: 1}}", 16867);
        check_parse_error("{$let: {vars: {'a-b': 1}, in: 1}}", 16868);
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
