//! Dotted field paths, split once.

use super::{Document, FieldName, FieldNameBuf, Value};
use std::fmt;

/// A dotted path such as `a.b.0.c`, split into its components. Any text is a valid path; each operator applies its own
/// restrictions.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Path {
    text: FieldNameBuf,
    components: Box<[PathComponent]>,
}

/// One component of a path.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct PathComponent {
    name: FieldNameBuf,
    index: Option<u32>,
}

impl Path {
    /// Splits the name at its dots.
    pub fn new<'n>(name: impl Into<FieldName<'n>>) -> Path {
        let name = name.into();
        Path { text: name.to_owned(), components: name.components().map(PathComponent::new).collect() }
    }

    /// The whole path.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The components, at least one.
    pub fn components(&self) -> &[PathComponent] {
        &self.components
    }

    /// The first component's name.
    pub fn first(&self) -> &str {
        self.components.first().map_or("", PathComponent::name)
    }

    /// The first component as a field name.
    pub fn first_name(&self) -> FieldName<'_> {
        self.components.first().map_or(FieldName::literal(""), FieldName::from)
    }

    /// Whether this path is `other` or lies below it.
    pub fn starts_with(&self, other: &Path) -> bool {
        self.components.starts_with(&other.components)
    }

    /// Returns the value at the path through embedded documents only. Arrays are traversed neither implicitly nor by
    /// position.
    pub fn get<'a>(&self, document: Document<'a>) -> Option<Value<'a>> {
        let (last, parents) = self.components.split_last()?;
        let mut inner = document;
        for component in parents {
            inner = inner.get(&component.name)?.as_document()?;
        }
        inner.get(&last.name)
    }
}

impl PathComponent {
    fn new(field_name: FieldName<'_>) -> PathComponent {
        let name = field_name.as_str();
        let digits = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit());
        // A position has no leading zeros; "00" is only a field name.
        let plain = digits && (name.len() == 1 || !name.starts_with('0'));
        PathComponent { name: field_name.to_owned(), index: if plain { name.parse().ok() } else { None } }
    }

    /// The component as a field name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The component as an array position, if it is one.
    pub fn index(&self) -> Option<usize> {
        self.index.map(|index| index as usize)
    }
}

impl<'a> From<&'a Path> for FieldName<'a> {
    fn from(path: &'a Path) -> Self {
        path.text.view()
    }
}

impl<'a> From<&'a PathComponent> for FieldName<'a> {
    fn from(component: &'a PathComponent) -> Self {
        component.name.view()
    }
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl fmt::Debug for PathComponent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn components_know_positions() {
        let path = Path::new(c"a.10.00.x");
        let indexes: Vec<_> = path.components().iter().map(PathComponent::index).collect();
        assert_eq!(indexes, [None, Some(10), None, None]);
        assert!(path.starts_with(&Path::new(c"a.10")));
        assert!(!path.starts_with(&Path::new(c"a.1")));
    }
}
