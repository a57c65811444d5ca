//! The paths that an expression reads.

use super::node::{Node, Source};
use base::bson::Path;

/// The paths that an expression reads, or the whole document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependencies {
    /// Only these paths.
    Paths(Vec<Path>),
    /// Possibly anything (`$$ROOT`).
    Whole,
}

/// Collects the paths below `node`.
pub(super) fn of(node: &Node) -> Dependencies {
    let mut paths = Vec::new();
    if collect(node, &mut paths) { Dependencies::Paths(paths) } else { Dependencies::Whole }
}

/// Collects paths; returns false if the whole document is read.
fn collect(node: &Node, paths: &mut Vec<Path>) -> bool {
    if let Node::Field(field) = node
        && field.source == Source::Whole
    {
        return false;
    }
    if let Node::Field(field) = node
        && field.source == Source::Root
    {
        let Some(path) = &field.path else { return false };
        if !paths.contains(path) {
            paths.push(path.clone());
        }
    }
    node.children().all(|child| collect(child, paths))
}

#[cfg(test)]
mod tests {
    use super::super::testing::parse;
    use super::*;

    #[test]
    fn paths_are_listed_once() {
        let expression = parse("{$add: ['$a.b', '$c', {$let: {vars: {x: '$a.b'}, in: '$$x.d'}}]}");
        let expected = vec![Path::new(c"a.b"), Path::new(c"c")];
        assert_eq!(expression.dependencies(), Dependencies::Paths(expected));
        assert_eq!(parse("{$add: ['$a', '$$ROOT.b']}").dependencies(), {
            Dependencies::Paths(vec![Path::new(c"a"), Path::new(c"b")])
        });
        assert_eq!(parse("['$$ROOT']").dependencies(), Dependencies::Whole);
    }
}
