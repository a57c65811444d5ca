//! Searches in the document before an update, for `$rename`.
//!
//! Each search begins at the front of a document. After some searches the fields are found by hash tables, so the time
//! of n renames is linear.

use crate::matcher::fields_by_name;
use base::bson::{Document, Element, Path, Value};
use base::{Result, bail};
use foldhash::HashMap;
use std::cell::{Cell, RefCell};

/// Number of searches before tables are built.
const LINEAR_SEARCHES_MAX: usize = 32;

/// The document before the update, with tables of its fields.
pub(crate) struct Sources<'c> {
    root: Document<'c>,
    searches: Cell<usize>,
    /// Fields by name, for each searched document by its address.
    tables: RefCell<HashMap<*const u8, HashMap<&'c [u8], Element<'c>>>>,
}

/// The searches of [`Sources`], whose lifetime is invariant.
pub(crate) trait Search<'v> {
    /// Returns the value at a path, and the name of the innermost array on the path. Arrays are entered only by
    /// position.
    ///
    /// Errors: PathNotViable if a value on the path cannot have the next component.
    fn value_at<'p>(&self, path: &'p Path) -> Result<(Option<Value<'v>>, Option<&'p str>)>;

    /// Returns the name of the first array on a path.
    fn array_on_path<'p>(&self, path: &'p Path) -> Option<&'p str>;
}

impl<'c> Sources<'c> {
    pub(super) fn new(root: Document<'c>) -> Sources<'c> {
        Sources { root, searches: Cell::new(0), tables: RefCell::default() }
    }

    /// Returns the first field with this name.
    fn find(&self, document: Document<'c>, name: &str) -> Option<Element<'c>> {
        self.searches.set(self.searches.get().saturating_add(1));
        if self.searches.get() <= LINEAR_SEARCHES_MAX {
            return document.find(name);
        }
        let mut tables = self.tables.borrow_mut();
        let table = tables.entry(document.bytes().as_ptr()).or_insert_with(|| fields_by_name(document));
        table.get(name.as_bytes()).copied()
    }
}

impl<'v, 'c: 'v> Search<'v> for Sources<'c> {
    fn value_at<'p>(&self, path: &'p Path) -> Result<(Option<Value<'v>>, Option<&'p str>)> {
        let mut value = Value::Document(self.root);
        let mut parent = None;
        let mut array = None;
        for component in path.components() {
            let (found, name) = match value {
                Value::Document(document) => (self.find(document, component.name()), component.name()),
                Value::Array(elements) if component.index().is_some() => {
                    array = parent.map(|(_, name)| name);
                    let element = component.index().and_then(|index| elements.elements().nth(index));
                    (element, component.name())
                }
                _ => {
                    let (element, part) = parent.map_or_else(
                        || (String::new(), component.name()),
                        |(element, name): (Element<'_>, _)| (element.to_string(), name),
                    );
                    bail!(
                        PathNotViable,
                        "cannot use the part ({part} of {path}) to traverse the element ({{{element}}})"
                    );
                }
            };
            let Some(element) = found else { return Ok((None, array)) };
            value = element.value();
            parent = Some((element, name));
        }
        Ok((Some(value), array))
    }

    fn array_on_path<'p>(&self, path: &'p Path) -> Option<&'p str> {
        let mut document = self.root;
        let (_, parents) = path.components().split_last()?;
        for component in parents {
            match self.find(document, component.name())?.value() {
                Value::Document(inner) => document = inner,
                Value::Array(_) => return Some(component.name()),
                _ => return None,
            }
        }
        None
    }
}
