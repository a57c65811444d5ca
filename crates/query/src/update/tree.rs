//! The tree of an update. Merged paths let one walk over a document apply all operators.
//!
//! `{$set: {"a.b": 1, "a.c": 2}, $inc: {d: 1}}` becomes a node with children `a` (with `b` and `c`) and `d`. Children
//! are in the order in which MongoDB creates missing fields: by name, numbers by value. `$` has its own field until the
//! document determines its position. `$[]` and `$[name]` become a node over the elements of an array.
//!
//! [`operators`](super::operators) parses the leaves and [`apply`](super::apply) walks the tree. A new operator changes
//! neither. A new form of path component needs a case in [`Node`] and in [`check_path`].

use super::operators::Operator;
use base::bson::{FieldName, FieldNameBuf};
use base::{Result, bail, err};
use std::cmp::Ordering;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Maximum number of children for linear search. Hashing is faster for more children.
const LINEAR_SEARCH_MAX: usize = 16;

/// Maximum number of components of a path, as in MongoDB.
const COMPONENTS_MAX: usize = 255;

/// The operators at one path of the document.
#[derive(Debug, Clone)]
pub(crate) enum Node {
    /// An operator on the field itself.
    Leaf(Arc<dyn Operator>),
    /// Operators on fields, or on elements by position.
    Fields(Fields),
    /// Operators on the elements of an array that filters select.
    Elements(Elements),
}

/// Operators below a document, or below an array addressed by position.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields {
    /// In the order of the update, and sorted by [`compare_names`] after [`sort`](Fields::sort).
    pub(crate) children: Vec<Child>,
    /// The position of each child by name. Empty up to [`LINEAR_SEARCH_MAX`] children.
    positions: HashMap<FieldNameBuf, usize>,
    /// Operators at the position of `$`.
    pub(crate) positional: Option<Box<Node>>,
}

/// One named child.
#[derive(Debug, Clone)]
pub(crate) struct Child {
    pub(crate) name: FieldNameBuf,
    /// The name as an array position.
    pub(crate) index: Option<usize>,
    pub(crate) node: Node,
}

/// Operators on the elements of an array, by the identifier of the filter that selects them (empty for `$[]`).
#[derive(Debug, Clone, Default)]
pub(crate) struct Elements {
    pub(crate) children: Vec<(Box<str>, Node)>,
}

/// Returns the identifier of `$[identifier]`.
pub(crate) fn identifier(component: &str) -> Option<&str> {
    component.strip_prefix("$[")?.strip_suffix(']')
}

/// Whether a path contains `$`, `$[]` or `$[identifier]`.
pub(crate) fn is_dynamic(path: &str) -> bool {
    path.split('.').any(|component| component == "$" || identifier(component).is_some())
}

/// Checks that a path can be updated.
///
/// Errors: EmptyFieldName; BadValue for a leading positional component or too many of them; Overflow for too many
/// components.
pub(crate) fn check_path(path: &str) -> Result<()> {
    if path.is_empty() {
        bail!(EmptyFieldName, "An empty update path is not valid.");
    }
    // Most paths are one name.
    if !path.bytes().any(|byte| matches!(byte, b'.' | b'$')) {
        return Ok(());
    }
    if path.split('.').any(str::is_empty) {
        bail!(EmptyFieldName, "The update path '{path}' contains an empty field name, which is not allowed.");
    }
    check_components(path)
}

/// Checks the components of a path of the filter of an upsert. They may be empty.
///
/// Errors: as [`check_path`].
pub(crate) fn check_components(path: &str) -> Result<()> {
    if path.split('.').count() > COMPONENTS_MAX {
        bail!(Overflow, "Field path exceeds the maximum number of components: {COMPONENTS_MAX}");
    }
    let first = path.split('.').next().unwrap_or("");
    if first == "$" {
        bail!(BadValue, "Cannot have positional (i.e. '$') element in the first position in path '{path}'");
    }
    if identifier(first).is_some() {
        bail!(
            BadValue,
            "Cannot have array filter identifier (i.e. '$[<id>]') element in the first position in path '{path}'"
        );
    }
    if path.split('.').filter(|component| *component == "$").count() > 1 {
        bail!(BadValue, "Too many positional (i.e. '$') elements found in path '{path}'");
    }
    Ok(())
}

impl Fields {
    /// Adds an operator at a path that [`check_path`] has accepted.
    ///
    /// Errors: ConflictingUpdateOperators if another operator is at, above or below the path.
    pub(crate) fn add(&mut self, path: &str, operator: Arc<dyn Operator>) -> Result<()> {
        let components: Vec<&str> = path.split('.').collect();
        self.add_at(PathCursor { path, components: &components, done: 0 }, operator)
    }

    /// Adds an operator below these fields, and creates the nodes on its path.
    fn add_at(&mut self, cursor: PathCursor<'_>, operator: Arc<dyn Operator>) -> Result<()> {
        let Some((name, rest)) = cursor.step() else { return Err(cursor.conflict()) };
        if name == "$" {
            if let Some(node) = &mut self.positional {
                return node.add(rest, operator);
            }
            self.positional = Some(Box::new(rest.branch(operator)));
            return Ok(());
        }
        match self.find(name.as_bytes()).and_then(|at| self.children.get_mut(at)) {
            Some(child) => child.node.add(rest, operator),
            None => {
                self.push(Child::new(name, rest.branch(operator)));
                Ok(())
            }
        }
    }

    /// Appends a child whose name is new.
    fn push(&mut self, child: Child) {
        self.children.push(child);
        match self.children.last() {
            Some(child) if self.children.len() > LINEAR_SEARCH_MAX + 1 => {
                self.positions.insert(child.name.clone(), self.children.len() - 1);
            }
            _ => self.index(),
        }
    }

    /// Builds the index of the children if they are many.
    fn index(&mut self) {
        self.positions.clear();
        if self.children.len() > LINEAR_SEARCH_MAX {
            let positions = self.children.iter().enumerate().map(|(at, child)| (child.name.clone(), at));
            self.positions.extend(positions);
        }
    }

    /// The position of a child by name.
    #[inline]
    pub(crate) fn find(&self, name: &[u8]) -> Option<usize> {
        if self.children.len() > LINEAR_SEARCH_MAX {
            return self.find_hashed(name);
        }
        self.children.iter().position(|child| child.name.as_bytes() == name)
    }

    /// The position of the child for an element of an array.
    #[inline]
    pub(crate) fn find_element(&self, index: usize) -> Option<usize> {
        if self.children.len() > LINEAR_SEARCH_MAX {
            return self.find_hashed(FieldNameBuf::of_number(index).as_bytes());
        }
        self.children.iter().position(|child| child.index == Some(index))
    }

    #[cold]
    fn find_hashed(&self, name: &[u8]) -> Option<usize> {
        self.positions.get(std::str::from_utf8(name).ok()?).copied()
    }

    /// Sorts the children here and below.
    pub(crate) fn sort(&mut self) {
        self.children.iter_mut().for_each(|child| child.node.sort());
        if let Some(node) = &mut self.positional {
            node.sort();
        }
        self.sort_children();
    }

    fn sort_children(&mut self) {
        if self.children.is_sorted_by(|a, b| compare_names(&a.name, &b.name).is_le()) {
            return;
        }
        // The order is not transitive for names such as `5x` among numbers. The standard sort may panic then.
        let mut sorted = BTreeMap::new();
        for child in std::mem::take(&mut self.children) {
            sorted.insert(ByName(child.name.clone()), child);
        }
        self.children = sorted.into_values().collect();
        self.index();
    }

    /// Returns the fields with the node of `$` moved to its position.
    ///
    /// Errors: ConflictingUpdateOperators if that position is also updated by number.
    pub(crate) fn with_position(&self, position: usize, path: &str) -> Result<Fields> {
        let mut fields = Fields { positional: None, ..self.clone() };
        if let Some(node) = &self.positional {
            fields.merge_child(&Child::new(&position.to_string(), (**node).clone()), path)?;
        }
        fields.sort_children();
        Ok(fields)
    }

    /// Merges one child into these fields. The caller sorts them afterwards.
    fn merge_child(&mut self, other: &Child, path: &str) -> Result<()> {
        match self.find(other.name.as_bytes()).and_then(|at| self.children.get_mut(at)) {
            Some(child) => child.node = child.node.merge(&other.node, &join(path, &other.name))?,
            None => self.push(other.clone()),
        }
        Ok(())
    }

    /// Merges the fields of two nodes.
    fn merge(&self, other: &Fields, path: &str) -> Result<Fields> {
        let mut merged = self.clone();
        for child in &other.children {
            merged.merge_child(child, path)?;
        }
        merged.sort_children();
        merged.positional = match (&self.positional, &other.positional) {
            (Some(a), Some(b)) => Some(Box::new(a.merge(b, &join(path, "$"))?)),
            (a, b) => a.clone().or_else(|| b.clone()),
        };
        Ok(merged)
    }
}

impl Elements {
    fn add_at(&mut self, name: &str, rest: PathCursor<'_>, operator: Arc<dyn Operator>) -> Result<()> {
        match self.children.iter_mut().find(|(known, _)| &**known == name) {
            Some((_, node)) => node.add(rest, operator),
            None => {
                self.children.push((name.into(), rest.branch(operator)));
                Ok(())
            }
        }
    }

    /// Merges operators on elements, filter by filter.
    fn merge(&self, other: &Elements, path: &str) -> Result<Elements> {
        let mut merged = self.clone();
        for (name, node) in &other.children {
            match merged.children.iter_mut().find(|(known, _)| known == name) {
                Some((_, existing)) => {
                    *existing = existing.merge(node, &join(path, &format!("$[{name}]")))?
                }
                None => merged.children.push((name.clone(), node.clone())),
            }
        }
        Ok(merged)
    }
}

impl Node {
    fn add(&mut self, cursor: PathCursor<'_>, operator: Arc<dyn Operator>) -> Result<()> {
        let Some((first, rest)) = cursor.step() else { return Err(cursor.conflict()) };
        match (self, identifier(first)) {
            (Node::Fields(fields), None) => fields.add_at(cursor, operator),
            (Node::Elements(elements), Some(name)) => elements.add_at(name, rest, operator),
            _ => Err(cursor.conflict()),
        }
    }

    fn sort(&mut self) {
        match self {
            Node::Leaf(_) => {}
            Node::Fields(fields) => fields.sort(),
            Node::Elements(elements) => elements.children.iter_mut().for_each(|(_, node)| node.sort()),
        }
    }

    /// Merges two nodes of one path. Parsing cannot detect their conflict, because the document determines the path:
    /// the position of `$`, or an element that two filters match.
    ///
    /// Errors: ConflictingUpdateOperators if one operator blocks the other.
    pub(crate) fn merge(&self, other: &Node, path: &str) -> Result<Node> {
        match (self, other) {
            (Node::Fields(a), Node::Fields(b)) => Ok(Node::Fields(a.merge(b, path)?)),
            (Node::Elements(a), Node::Elements(b)) => Ok(Node::Elements(a.merge(b, path)?)),
            _ => Err(err!(ConflictingUpdateOperators, "Update created a conflict at '{path}'")),
        }
    }

    /// Whether a positional `$` occurs here or below.
    pub(crate) fn needs_position(&self) -> bool {
        match self {
            Node::Leaf(_) => false,
            Node::Fields(fields) => fields.needs_position(),
            Node::Elements(elements) => elements.children.iter().any(|(_, node)| node.needs_position()),
        }
    }

    /// Maximum depth of the written values below the field, in levels. `None` if it depends on the document.
    pub(crate) fn depth(&self) -> Option<usize> {
        match self {
            Node::Leaf(operator) => operator.depth(),
            Node::Fields(fields) => fields.depth(),
            Node::Elements(elements) => deepest(elements.children.iter().map(|(_, node)| node)),
        }
    }

    /// Calls `each` with every operator and its remaining path.
    pub(crate) fn for_each_operator(&self, path: &str, each: &mut dyn FnMut(&str, &Arc<dyn Operator>)) {
        match self {
            Node::Leaf(operator) => each(path, operator),
            Node::Fields(fields) => fields.for_each_operator(path, each),
            Node::Elements(elements) => {
                for (name, node) in &elements.children {
                    node.for_each_operator(&join(path, &format!("$[{name}]")), each);
                }
            }
        }
    }
}

impl Fields {
    /// Whether a positional `$` occurs below.
    pub(crate) fn needs_position(&self) -> bool {
        self.positional.is_some() || self.children.iter().any(|child| child.node.needs_position())
    }

    /// Calls `each` with every operator below and its whole path.
    pub(crate) fn for_each_operator(&self, path: &str, each: &mut dyn FnMut(&str, &Arc<dyn Operator>)) {
        for child in &self.children {
            child.node.for_each_operator(&join(path, &child.name), each);
        }
        if let Some(node) = &self.positional {
            node.for_each_operator(&join(path, "$"), each);
        }
    }

    /// Maximum depth of the written values below the document, in levels. `None` if it depends on the document.
    pub(crate) fn depth(&self) -> Option<usize> {
        deepest(self.children.iter().map(|child| &child.node).chain(self.positional.as_deref()))
    }
}

fn deepest<'n>(nodes: impl Iterator<Item = &'n Node>) -> Option<usize> {
    nodes
        .map(Node::depth)
        .try_fold(0, |deepest: usize, depth| Some(deepest.max(depth?)))
        .map(|below| below + 1)
}

impl Child {
    fn new(name: &str, node: Node) -> Child {
        Child {
            name: FieldName::trusted(name).to_owned(),
            index: if is_number(name) { name.parse().ok() } else { None },
            node,
        }
    }
}

/// A name in the order of [`compare_names`].
#[derive(PartialEq, Eq)]
struct ByName(FieldNameBuf);

impl PartialOrd for ByName {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByName {
    fn cmp(&self, other: &Self) -> Ordering {
        compare_names(&self.0, &other.0)
    }
}

/// A path during its insertion into the tree: the inserted length and the remaining components.
#[derive(Clone, Copy)]
struct PathCursor<'p> {
    path: &'p str,
    components: &'p [&'p str],
    /// Bytes of the path that are in the tree, for the message of a conflict.
    done: usize,
}

impl<'p> PathCursor<'p> {
    fn step(self) -> Option<(&'p str, PathCursor<'p>)> {
        let (first, components) = self.components.split_first()?;
        let dot = usize::from(self.done > 0);
        Some((*first, PathCursor { components, done: self.done + dot + first.len(), ..self }))
    }

    /// Builds the nodes that lead to an operator along the remaining components.
    fn branch(self, operator: Arc<dyn Operator>) -> Node {
        let mut node = Node::Leaf(operator);
        for component in self.components.iter().rev() {
            node = match identifier(component) {
                Some(name) => Node::Elements(Elements { children: vec![(name.into(), node)] }),
                None if *component == "$" => {
                    Node::Fields(Fields { positional: Some(Box::new(node)), ..Fields::default() })
                }
                None => {
                    Node::Fields(Fields { children: vec![Child::new(component, node)], ..Fields::default() })
                }
            };
        }
        node
    }

    fn conflict(self) -> base::Error {
        let at = self.path.get(..self.done).unwrap_or(self.path);
        err!(
            ConflictingUpdateOperators,
            "Updating the path '{}' would create a conflict at '{at}'",
            self.path
        )
    }
}

/// Appends a component to a path.
pub(crate) fn join(path: &str, component: &str) -> String {
    if path.is_empty() { component.to_owned() } else { format!("{path}.{component}") }
}

/// Whether a name is an array position: digits without leading zeros.
fn is_number(name: &str) -> bool {
    let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
    digits && (name == "0" || !name.starts_with('0'))
}

/// Compares names in MongoDB's order of created fields: bytewise, but numbers by value.
fn compare_names(a: &str, b: &str) -> Ordering {
    if is_number(a) && is_number(b) {
        return a.len().cmp(&b.len()).then_with(|| a.cmp(b));
    }
    a.cmp(b)
}

#[cfg(test)]
mod tests {
    use super::super::operators;
    use super::*;
    use crate::Context;
    use base::bson::extended_json::parse;

    #[test]
    fn names_order_as_mongodb_creates_fields() {
        let mut names = ["b", "10", "a", "9", "010", ""];
        names.sort_by(|a, b| compare_names(a, b));
        assert_eq!(names, ["", "010", "9", "10", "a", "b"]);
    }

    #[test]
    fn many_children_are_found_and_sorted() {
        let mut names: Vec<String> = (0..100).map(|number| (number * 37 % 100).to_string()).collect();
        names.extend(["5x", "b", "a", "010"].map(String::from));
        let set = names.iter().map(|name| format!("'x.{name}': 1")).collect::<Vec<_>>().join(", ");
        let parsed = |unset: &str| {
            let update = parse(&format!("{{$set: {{{set}}}, $unset: {{{unset}}}}}")).unwrap();
            operators::parse(update.view(), &Context::for_tests())
        };
        for name in &names {
            let error = parsed(&format!("'x.{name}': 1")).unwrap_err();
            assert_eq!(error.code().number(), 40, "{name} twice");
        }
        let fields = parsed("y: 1").unwrap();
        let Some(Child { node: Node::Fields(inner), .. }) = fields.children.first() else { panic!("no x") };
        assert_eq!(inner.children.len(), names.len());
        for (at, child) in inner.children.iter().enumerate() {
            assert_eq!(inner.find(child.name.as_bytes()), Some(at));
            assert_eq!(child.index.and_then(|index| inner.find_element(index)), child.index.map(|_| at));
        }
        assert_eq!((inner.find(b"c"), inner.find_element(100)), (None, None));
    }

    #[test]
    fn paths_are_checked() {
        assert!(check_path("a.$.b").is_ok());
        for (path, code) in [("", 56), ("a..b", 56), ("$", 2), ("$[x].a", 2), ("a.$.b.$", 2)] {
            assert_eq!(check_path(path).unwrap_err().code().number(), code, "{path}");
        }
        assert!(check_path(&["a"; 256].join(".")).is_err());
    }
}
