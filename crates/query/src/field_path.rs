//! Validation of field paths in sorts, projections, expressions and stages, as in MongoDB's `FieldPath`. Filters accept
//! any path.

use base::bson::{FieldName, MAX_DEPTH, Path};
use base::{Result, bail};
use foldhash::HashSet;

/// Names with a dollar sign that a path may contain: the parts of a DBRef, and internal metadata that servers attach to
/// documents.
const DOLLAR_NAMES: [&str; 7] =
    ["$db", "$id", "$recordId", "$ref", "$searchScore", "$searchSortValues", "$sortKey"];

/// Validates and splits a dotted path.
///
/// Errors: 40352 empty, 40353 ends with a dot, Overflow for more components than documents may nest, and the errors of
/// [`check_field_name`].
pub fn checked_path(text: &str) -> Result<Path> {
    if text.is_empty() {
        bail!(40352, "FieldPath cannot be constructed with empty string");
    }
    if text.ends_with('.') {
        bail!(40353, "FieldPath must not end with a '.'.");
    }
    if text.split('.').count() > MAX_DEPTH {
        bail!(Overflow, "FieldPath is too long");
    }
    text.split('.').try_for_each(check_field_name)?;
    Ok(Path::new(FieldName::new(text)?))
}

/// Validates one name of a path or an object literal.
///
/// Errors: 15998 empty, 16410 a leading dollar, 16411 NUL, 16412 a dot.
pub fn check_field_name(name: &str) -> Result<()> {
    if name.is_empty() {
        bail!(15998, "FieldPath field names may not be empty strings.");
    }
    if name.starts_with('$') && !DOLLAR_NAMES.contains(&name) {
        bail!(16410, "FieldPath field names may not start with '$'. Consider using $getField or $setField.");
    }
    if name.contains('\0') {
        // MongoDB's own message ends at the NUL that it tries to print.
        bail!(16411, "FieldPath field names may not contain '");
    }
    if name.contains('.') {
        bail!(16412, "FieldPath field names may not contain '.'. Consider using $getField or $setField.");
    }
    Ok(())
}

/// Finds paths that are equal to earlier ones, or that are above or below them.
#[derive(Default)]
pub(crate) struct PathConflicts<'p> {
    paths: HashSet<&'p str>,
    /// All paths above them.
    above: HashSet<&'p str>,
}

impl<'p> PathConflicts<'p> {
    /// Adds a path. Returns whether it conflicts with an earlier one.
    pub(crate) fn add(&mut self, path: &'p str) -> bool {
        let parents = path.match_indices('.').filter_map(|(end, _)| path.get(..end));
        let is_below = parents.clone().any(|parent| self.paths.contains(parent));
        self.above.extend(parents);
        !self.paths.insert(path) || is_below || self.above.contains(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_and_nested_paths_conflict() {
        for (paths, conflicts) in [
            (["a.b", "a.c", "b"], [false, false, false]),
            (["a", "a.b.c", "a"], [false, true, true]),
            (["a.b.c", "a.b", "a.bc"], [false, true, false]),
        ] {
            let mut known = PathConflicts::default();
            assert_eq!(paths.map(|path| known.add(path)), conflicts, "{paths:?}");
        }
    }

    #[test]
    fn paths_have_the_names_that_mongodb_takes() {
        let code = |path: &str| checked_path(path).map_or_else(|error| error.code().number(), |_| 0);
        assert_eq!(code("a.b"), 0);
        assert_eq!(code("a.$id"), 0);
        assert_eq!(code("$sortKey"), 0);
        assert_eq!(code("a.$foo"), 16410);
        assert_eq!(code(""), 40352);
        assert_eq!(code("a."), 40353);
        assert_eq!(code("a..b"), 15998);
        assert_eq!(code(&["a"; 201].join(".")), 15);
        assert_eq!(check_field_name("a.b").unwrap_err().code().number(), 16412);
    }
}
