//! Scope of a command: its collection or view, on a single view of the data.

use crate::catalog::collection::Collection;
use crate::catalog::history::View;
use crate::database::Database;
use crate::operation::Operation;
use base::bson::{Document, ValueBuf};
use base::{Namespace, Result, bail, err};
use query::expression::{Dependencies, check_name_for_binding};
use query::{Arena, Collation, Context, Expression};
use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

/// A command's namespace, and everything needed to parse, compare and read its values.
#[derive(Clone)]
pub struct Scope {
    /// Interrupts the command. Has its transaction or snapshot.
    pub operation: Arc<Operation>,
    /// The collection or view.
    pub namespace: Namespace,
    /// Collation, time, variables and random numbers.
    pub context: Arc<Context>,
    /// View of a read. A write takes a view for each statement.
    view: OnceLock<View>,
}

impl Scope {
    /// Returns a scope with a complete context, including the collation. A read takes its view when
    /// it begins.
    pub fn new(operation: &Arc<Operation>, namespace: &Namespace, context: &Arc<Context>) -> Scope {
        let (operation, namespace, context) = (operation.clone(), namespace.clone(), context.clone());
        Scope { operation, namespace, context, view: OnceLock::new() }
    }

    /// Returns the scope of a statement of the command, with the statement's collation if it has
    /// one.
    pub fn collated(&self, collation: Option<&Collation>) -> Cow<'_, Scope> {
        let Some(collation) = collation else { return Cow::Borrowed(self) };
        let mut context = self.context.with_collation(collation.clone());
        context.explicit_collation = true;
        Cow::Owned(Scope { context: Arc::new(context), ..self.clone() })
    }

    /// Returns the scope with more variables.
    pub fn with_variables(&self, more: impl Iterator<Item = (String, Option<ValueBuf>)>) -> Scope {
        let more: Vec<_> = more.collect();
        let is_replaced = |name: &str| more.iter().any(|(other, _)| other == name);
        let earlier = self.context.variables.iter().filter(|(name, _)| !is_replaced(name));
        let variables = earlier.cloned().collect::<Vec<_>>().into_iter().chain(more).collect();
        Scope { context: Arc::new(self.context.with_variables(variables)), ..self.clone() }
    }

    /// Returns the scope for `bypassEmptyTsReplacement`: empty timestamps at the top level are
    /// stored unchanged.
    pub fn keep_empty_timestamps(mut self, keeps: bool) -> Scope {
        if keeps {
            let mut context = self.context.with_collation(self.context.collation.clone());
            context.keep_empty_timestamps = true;
            self.context = Arc::new(context);
        }
        self
    }

    /// Returns the view of a read, always the same one.
    pub(crate) fn view(&self, database: &Database) -> &View {
        self.view.get_or_init(|| database.view_for(&self.operation))
    }

    /// Returns the view with a catalog that is confirmed to be the view's.
    ///
    /// Errors: StaleConfig for an old catalog. The command then begins again.
    pub(crate) fn confirmed_view(&self, database: &Database) -> Result<&View> {
        let view = self.view(database);
        database.confirmed(view, Ok(view))
    }
}

impl Database {
    /// Returns the scope of a reading command. Its collation is the command's, or else the default
    /// of the collection in the view that it reads. This also holds in transactions and snapshot
    /// reads.
    ///
    /// `variables` are the variables of `let`. `context` has neither variables nor a collation.
    ///
    /// Errors: OptionNotSupportedOnView for a collation other than the view's; errors of variables,
    /// which must be constant.
    pub fn scope_to_read(
        &self,
        operation: Arc<Operation>,
        namespace: &Namespace,
        collation: Option<&Collation>,
        variables: Option<Document<'_>>,
        mut context: Context,
    ) -> Result<Scope> {
        let view = self.view_for(&operation);
        let collection = view.catalog.get(namespace).cloned();
        in_force(&mut context, collation, collection.as_deref(), variables)?;
        let scope = Scope::new(&operation, namespace, &Arc::new(context));
        scope.view.get_or_init(|| view);
        Ok(scope)
    }

    /// Returns the scope of a writing command, without a view: a held snapshot makes writes slower.
    ///
    /// Errors: as [`scope_to_read`](Self::scope_to_read).
    pub fn scope_to_write(
        &self,
        operation: Arc<Operation>,
        namespace: &Namespace,
        collation: Option<&Collation>,
        variables: Option<Document<'_>>,
        mut context: Context,
    ) -> Result<Scope> {
        let collection = self.known_collection(&operation, namespace);
        in_force(&mut context, collation, collection.as_deref(), variables)?;
        Ok(Scope::new(&operation, namespace, &Arc::new(context)))
    }

    /// Returns the scope of one statement of a command that writes to several namespaces.
    ///
    /// Errors: as [`scope_to_read`](Self::scope_to_read).
    pub fn scope_within(
        &self,
        outer: &Scope,
        namespace: &Namespace,
        collation: Option<&Collation>,
    ) -> Result<Scope> {
        let collection = self.known_collection(&outer.operation, namespace);
        let mut context = outer.context.with_collation(Collation::SIMPLE);
        in_force(&mut context, collation, collection.as_deref(), None)?;
        Ok(Scope::new(&outer.operation, namespace, &Arc::new(context)))
    }

    /// Returns the collection of a writing statement from the known catalog. The statement's reads
    /// verify it later.
    fn known_collection(&self, operation: &Operation, namespace: &Namespace) -> Option<Arc<Collection>> {
        let catalog = match operation.transaction() {
            Some(transaction) => transaction.view().catalog,
            None => self.known_catalog(),
        };
        catalog.get(namespace).cloned()
    }
}

/// Sets the collation and the variables of a command.
fn in_force(
    context: &mut Context,
    requested: Option<&Collation>,
    collection: Option<&Collection>,
    variables: Option<Document<'_>>,
) -> Result<()> {
    if let (Some(requested), Some(collection)) = (requested, collection) {
        check_view(collection, requested)?;
    }
    let default = collection.map(|collection| &collection.options.collation);
    context.explicit_collation = requested.is_some();
    context.collation = requested.or(default).cloned().unwrap_or_default();
    for variable in variables.into_iter().flatten() {
        if matches!(variable.name(), "NOW" | "CLUSTER_TIME" | "JS_SCOPE" | "IS_MR") {
            bail!(4738901, "Attempt to set internal constant: {}", variable.name());
        }
        check_name_for_binding(variable.name())?;
        let expression = Expression::parse(variable.value(), context)?;
        if expression.dependencies() != Dependencies::Paths(Vec::new()) {
            bail!(4890500, "The command's 'let' reads a field, but it is evaluated before all documents");
        }
        let arena = Arena::new();
        let value = expression.evaluate(Document::EMPTY, context, &arena)?.map(|value| value.to_owned());
        context.variables.push((variable.name().to_string(), value));
    }
    Ok(())
}

/// Errors: OptionNotSupportedOnView for a view whose collation differs from its reader's.
pub(crate) fn check_view(collection: &Collection, collation: &Collation) -> Result<()> {
    if !collection.is_view() || collection.options.collation == *collation {
        return Ok(());
    }
    Err(err!(OptionNotSupportedOnView, "Cannot override a view's default collation"))
}
