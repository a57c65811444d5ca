//! The compound keys of a document under a list of paths, for sorts and indexes.
//!
//! Arrays on a path multiply the keys: `{a: [1, 2]}` has two keys under `a`. Several paths may lead through a common
//! array (`a.b`, `a.c`); each of its elements then gives one key. Two different arrays would give a product and are
//! refused, as in MongoDB. A numeric component selects an array position if the array is long enough; otherwise it is a
//! field name.

use base::bson::{Array, Document, Path, PathComponent, Value};
use base::{Result, bail};

/// One compound key: a value for each path, `None` for a missing value. An empty array at a path's end gives
/// [`Value::Undefined`], which sorts below null.
pub type CompoundKey<'a> = Vec<Option<Value<'a>>>;

/// Calls `each` with every key of the document under these paths, in the order of the arrays' elements, with
/// duplicates.
///
/// `fans_out` is called first, for each path that fans out over an array. Its arguments are the path's index in `paths`
/// and the number of components after the array.
///
/// Errors: CannotIndexParallelArrays, 16746 for a number that is both a position and a field of an embedded document;
/// the errors of `each` and `fans_out`.
#[inline(always)]
pub fn compound_keys<'a, 'p>(
    document: Document<'a>,
    paths: impl Iterator<Item = &'p Path> + Clone,
    fans_out: &mut dyn FnMut(usize, usize) -> Result<()>,
    visit: &mut dyn FnMut(&[Option<Value<'a>>]) -> Result<()>,
) -> Result<()> {
    let mut plain = [None; PLAIN_MAX];
    if let Some(count) = plain_key(document, paths.clone(), &mut plain) {
        return visit(plain.get(..count).unwrap_or(&[]));
    }
    let walks = paths.map(|path| Walk::Through(Some(document), path.components())).collect();
    expand(walks, fans_out, visit)
}

/// Number of paths handled without an allocation.
const PLAIN_MAX: usize = 4;

/// Returns the single key of a document without arrays on the paths, and the number of paths. Paths are mostly few and
/// plain. `None` if the general method is needed.
#[inline(always)]
fn plain_key<'a, 'p>(
    document: Document<'a>,
    paths: impl Iterator<Item = &'p Path>,
    key: &mut [Option<Value<'a>>],
) -> Option<usize> {
    let mut count = 0;
    for path in paths {
        *key.get_mut(count)? = plain_value(document, path.components())?;
        count += 1;
    }
    Some(count)
}

/// Returns the value at a path, `Some(None)` if it is missing; `None` if an array is on the path.
fn plain_value<'a>(document: Document<'a>, components: &[PathComponent]) -> Option<Option<Value<'a>>> {
    let mut container = Some(document);
    let mut value = None;
    for component in components {
        value = container.and_then(|inner| inner.get(component.name()));
        container = match value {
            Some(Value::Array(_)) => return None,
            Some(Value::Document(inner)) => Some(inner),
            _ => None,
        };
    }
    Some(value)
}

/// Progress of a walk along one path.
#[derive(Clone, Copy)]
enum Walk<'p, 'a> {
    /// In a document (`None`: in a value without fields), with the remaining components.
    Through(Option<Document<'a>>, &'p [PathComponent]),
    /// At a value selected from an array by position, with the remaining components.
    At(Value<'a>, &'p [PathComponent]),
    /// Stopped at an array, named by the component before it.
    Stopped(Array<'a>, &'p str, &'p [PathComponent]),
    /// At the end of the path.
    Done(Option<Value<'a>>),
}

impl<'p, 'a> Walk<'p, 'a> {
    /// Walks to the end of the path or the next array.
    fn advance(self) -> Walk<'p, 'a> {
        let mut name = "";
        let (mut value, mut rest) = match self {
            Walk::Through(container, [first, rest @ ..]) => {
                name = first.name();
                (container.and_then(|inner| inner.get(name)), rest)
            }
            Walk::At(value, rest) => (Some(value), rest),
            arrived => return arrived,
        };
        loop {
            match (value, rest) {
                (Some(Value::Array(array)), _) => return Walk::Stopped(array, name, rest),
                (_, []) | (None, _) => return Walk::Done(value),
                (Some(Value::Document(inner)), [first, more @ ..]) => {
                    name = first.name();
                    (value, rest) = (inner.get(name), more);
                }
                (Some(_), _) => return Walk::Done(None),
            }
        }
    }

    /// Continues from the current array into one of its elements.
    fn enter(self, element: Value<'a>, positional: Option<Value<'a>>) -> Walk<'p, 'a> {
        match (self, positional) {
            (Walk::Stopped(_, _, []), _) => Walk::Done(Some(element)),
            (Walk::Stopped(_, _, [_, rest @ ..]), Some(picked)) => Walk::At(picked, rest),
            (Walk::Stopped(_, _, rest), None) => Walk::Through(element.as_document(), rest),
            (other, _) => other,
        }
    }

    /// Continues from an empty array: undefined at its end, missing below.
    fn leave_empty(self) -> Walk<'p, 'a> {
        match self {
            Walk::Stopped(_, _, []) => Walk::Done(Some(Value::Undefined)),
            Walk::Stopped(..) => Walk::Done(None),
            other => other,
        }
    }
}

/// Advances all walks to the next array and recurses into each of its elements; emits the key if no walk stopped.
///
/// If all walks select a position of the array, one pass suffices.
fn expand<'p, 'a>(
    mut walks: Vec<Walk<'p, 'a>>,
    fans_out: &mut dyn FnMut(usize, usize) -> Result<()>,
    visit: &mut dyn FnMut(&[Option<Value<'a>>]) -> Result<()>,
) -> Result<()> {
    for walk in &mut walks {
        *walk = walk.advance();
    }
    let Some(array) = common_array(&walks)? else {
        return emit(&walks, visit);
    };
    let mut positional = Vec::with_capacity(walks.len());
    for (index, walk) in walks.iter().enumerate() {
        let picked = picked(walk)?;
        if let (Walk::Stopped(_, _, rest), None) = (walk, &picked) {
            fans_out(index, rest.len())?;
        }
        positional.push(picked);
    }
    if array.is_empty() {
        let left: Vec<_> = walks.into_iter().map(Walk::leave_empty).collect();
        return emit(&left, visit);
    }
    let all_positional =
        walks.iter().zip(&positional).all(|(walk, p)| !matches!(walk, Walk::Stopped(..)) || p.is_some());
    for element in array.iter() {
        let inner = walks.iter().zip(&positional).map(|(walk, p)| walk.enter(element, *p)).collect();
        expand(inner, fans_out, visit)?;
        if all_positional {
            break;
        }
    }
    Ok(())
}

fn emit<'a>(walks: &[Walk<'_, 'a>], visit: &mut dyn FnMut(&[Option<Value<'a>>]) -> Result<()>) -> Result<()> {
    let key: CompoundKey<'a> =
        walks.iter().map(|walk| if let Walk::Done(value) = walk { *value } else { None }).collect();
    visit(&key)
}

/// Returns the array at which walks stopped, if any.
fn common_array<'a>(walks: &[Walk<'_, 'a>]) -> Result<Option<Array<'a>>> {
    let mut common: Option<(Array<'a>, &str)> = None;
    for walk in walks {
        let Walk::Stopped(array, name, _) = *walk else { continue };
        match common {
            None => common = Some((array, name)),
            Some((first, other)) if !std::ptr::eq(first.bytes(), array.bytes()) => {
                bail!(CannotIndexParallelArrays, "cannot index parallel arrays [{name}] [{other}]");
            }
            Some(_) => {}
        }
    }
    Ok(common.map(|(array, _)| array))
}

/// Returns the element that the next component selects by position.
fn picked<'a>(walk: &Walk<'_, 'a>) -> Result<Option<Value<'a>>> {
    let Walk::Stopped(array, _, [first, ..]) = walk else { return Ok(None) };
    let Some(picked) = first.index().and_then(|index| array.get(index)) else { return Ok(None) };
    let name = first.name();
    let is_field = |value: Value<'_>| value.as_document().is_some_and(|inner| inner.find(name).is_some());
    if array.iter().any(is_field) {
        bail!(
            16746,
            "Ambiguous field name found in array (do not use numeric field names in embedded elements in \
             an array), field: '{name}' for array: {}",
            array.as_document()
        );
    }
    Ok(Some(picked))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::{FieldName, extended_json};

    /// Returns the keys as text, with a dash for missing values and a leading star if an array was met.
    fn keys(paths: &[&str], document: &str) -> String {
        let document = extended_json::parse(document).unwrap();
        let paths: Vec<_> = paths.iter().map(|path| Path::new(FieldName::new(path).unwrap())).collect();
        let mut keys = Vec::new();
        let mut multikey = false;
        let mut fans_out = |_, _| {
            multikey = true;
            Ok(())
        };
        let outcome = compound_keys(document.view(), paths.iter(), &mut fans_out, &mut |key| {
            let parts = key.iter().map(|value| value.map_or("-".to_owned(), |value| value.to_string()));
            keys.push(parts.collect::<Vec<_>>().join(","));
            Ok(())
        });
        match outcome {
            Ok(()) => format!("{}{}", if multikey { "*" } else { "" }, keys.join(" ")),
            Err(error) => error.message().to_owned(),
        }
    }

    #[test]
    fn plain_paths_have_one_key() {
        assert_eq!(keys(&["a", "b.c"], "{a: 1, b: {c: 2}}"), "1,2");
        assert_eq!(keys(&["a.b", "x"], "{a: 1}"), "-,-");
    }

    #[test]
    fn arrays_multiply_keys_and_share_their_elements() {
        assert_eq!(keys(&["a"], "{a: [1, [2, 3]]}"), "*1 [ 2, 3 ]");
        assert_eq!(keys(&["a.b", "a.c", "x"], "{a: [{b: 1, c: 2}, {b: 3}, 5], x: 0}"), "*1,2,0 3,-,0 -,-,0");
        assert_eq!(keys(&["a.b"], "{a: [{b: [1, 2]}, {b: 3}]}"), "*1 2 3");
        assert_eq!(keys(&["a", "a.b"], "{a: [{b: 1}]}"), "*{ b: 1 },1");
        assert_eq!(keys(&["a", "a.b"], "{a: []}"), "*undefined,-");
        assert_eq!(keys(&["a", "b"], "{a: [1], b: [2]}"), "cannot index parallel arrays [b] [a]");
        assert_eq!(keys(&["a.b", "a.c"], "{a: [{b: [1], c: [2]}]}"), "cannot index parallel arrays [c] [b]");
    }

    #[test]
    fn numbers_are_positions_where_the_array_reaches() {
        assert_eq!(keys(&["a.0"], "{a: [[1, 2], 3]}"), "*1 2");
        assert_eq!(keys(&["a.1.b"], "{a: [1, {b: 2}]}"), "2");
        assert_eq!(keys(&["a.5"], "{a: [{'5': 1}]}"), "*1");
        assert_eq!(keys(&["a.0.b", "a.c"], "{a: [{b: 1, c: 2}, {c: 3}]}"), "*1,2 1,3");
        assert!(keys(&["a.0"], "{a: [{'0': 1}]}").starts_with("Ambiguous field name"));
    }
}
