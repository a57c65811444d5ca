//! collMod: changes of a collection, of a view and of one index.
//!
//! All options are one commit. An index becomes unique in two steps. First, `prepareUnique` refuses writes that add
//! duplicates but keeps existing duplicates. Then `unique` converts the index if no duplicates remain, or lists them.
//! Unique indexes have another entry format, so the conversion builds the index again before that commit. So does
//! `forceNonUnique`, the opposite conversion.

use super::build::IndexBuild;
use super::build_state::BuildProgress;
use super::indexes::{Registered, Registration, name_of_index};
use super::views::check_pipeline;
use crate::catalog::collection::{Collection, View, checked_age};
use crate::catalog::options;
use crate::changes::logged::LoggedCommand;
use crate::commit::catalog_change::CatalogChange;
use crate::database::Database;
use crate::index::IndexSpec;
use crate::option_field;
use crate::scope::Scope;
use crate::validator::ValidatorChange;
use base::bson::{Array, Builder, Document, DocumentBuf, Value, compare_documents};
use base::{Result, bail, err};
use query::{Context, Interrupt};
use std::sync::Arc;
use storage::store::Committed;

/// The options of a collMod. Options that are `None` keep their value.
#[derive(Clone, Copy, Default)]
pub struct CollectionChange<'a> {
    /// The collection that a view reads.
    pub view_on: Option<&'a str>,
    /// The pipeline of a view.
    pub pipeline: Option<Array<'a>>,
    /// The validator.
    pub validator: ValidatorChange<'a>,
    /// Size of a capped collection in bytes.
    pub capped_size: Option<i64>,
    /// Number of documents of a capped collection; zero is unlimited.
    pub capped_max: Option<i64>,
    /// Age in seconds at which documents of a clustered collection expire; `Some(None)` disables expiration.
    pub expire_after_seconds: Option<Option<i64>>,
    /// `changeStreamPreAndPostImages`.
    pub pre_images: Option<Document<'a>>,
    /// The change of an index.
    pub index: Option<IndexChange<'a>>,
}

/// The change of an index.
#[derive(Clone, Copy)]
pub struct IndexChange<'a> {
    /// Name or key pattern of the index.
    pub index: Value<'a>,
    /// Age in seconds at which documents expire.
    pub expire_after_seconds: Option<f64>,
    /// Hides the index from plans.
    pub hidden: Option<bool>,
    /// Refuses writes that add duplicates.
    pub prepare_unique: Option<bool>,
    /// Converts the index to a unique index.
    pub unique: bool,
    /// Converts the index to a non-unique index.
    pub force_non_unique: bool,
    /// Only checks that the index can become unique.
    pub dry_run: bool,
}

/// Specification of an index before and after its change.
pub type ChangedIndex = (Arc<IndexSpec>, Arc<IndexSpec>);

/// Result of a collMod.
#[derive(Default)]
pub struct CollectionChanged {
    /// The changed index.
    pub index: Option<ChangedIndex>,
    /// `None` after a dry run.
    pub committed: Option<Committed>,
}

impl Database {
    /// Changes a collection, a view or an index. A call after LockBusy continues.
    ///
    /// Errors: NamespaceNotFound, IndexNotFound, InvalidOptions, errors of the options; CannotConvertIndexToUnique with
    /// the ids of documents that share a key; interruption; LockBusy for a statement that its caller suspends.
    pub fn modify_collection(
        &self,
        scope: &Scope,
        request: &CollectionChange<'_>,
        progress: &mut BuildProgress,
    ) -> Result<CollectionChanged> {
        let Scope { operation, namespace, context, .. } = scope;
        // A pipeline is parsed before the commit lock is taken, if the name is a view.
        let known = self.known_catalog().get(namespace).filter(|known| known.is_view()).cloned();
        let checked = known.and_then(|known| request.view(&known));
        if let Some(view) = &checked {
            check_pipeline(namespace, view, context)?;
        }
        let is_dry_run = request.index.is_some_and(|index| index.dry_run);
        let mut index = None;
        let mut apply = |change: &mut CatalogChange<'_>, collection: &mut Collection| {
            if let Some(view) = request.view(collection) {
                change.change_view(collection, view, checked.as_ref(), context)?;
            }
            index = request.apply(collection, context)?;
            Result::Ok(index.clone())
        };
        let state = match progress.state.take() {
            Some(state) => state,
            None => {
                let begun = self.begin_builds(operation, namespace, |change| {
                    let before = Collection::clone(change.catalog().require(namespace)?);
                    let mut after = before.clone();
                    let changed = apply(change, &mut after)?;
                    match changed.as_ref().filter(|(before, after)| after.unique != before.unique) {
                        Some((_, converted)) => change.register_again(before, |index| {
                            (index.spec.name == converted.name).then(|| converted.clone())
                        }),
                        None if is_dry_run => Ok(Registered::Nothing),
                        None => {
                            change.log(|| request.entry(&before, &after, changed.as_ref()));
                            let uuid = change.put_changed(after)?.uuid;
                            Ok(Registered::New(Vec::new(), uuid))
                        }
                    }
                })?;
                let Some(Registration { builds, committed }) = begun else { return Ok(Default::default()) };
                let Some(state) = builds else {
                    return Ok(CollectionChanged { index, committed: Some(committed) });
                };
                let build = IndexBuild { database: self, operation, context, state };
                let checked = match request.index.is_some_and(|index| index.unique) {
                    true => operation.run_long(|| self.check_violations(namespace, &build)),
                    false => Ok(()),
                };
                if checked.is_err() || is_dry_run {
                    build.abort();
                    return checked.map(|()| CollectionChanged::default());
                }
                build.state
            }
        };
        let build = IndexBuild { database: self, operation, context, state };
        let committed = progress.run(build, &mut |change, collection, builds| {
            let before = collection.clone();
            let changed = apply(change, collection)?;
            change.replace_indexes(collection, builds);
            change.log(|| request.entry(&before, collection, changed.as_ref()));
            Ok(())
        })?;
        Ok(CollectionChanged { index, committed: Some(committed) })
    }

    /// Changes the options of a collection other than those of its indexes.
    pub(crate) fn change_collection(
        &self,
        interrupt: &dyn Interrupt,
        scope: &Scope,
        request: &CollectionChange<'_>,
    ) -> Result<Committed> {
        self.must_change_catalog(interrupt, |change| {
            let before = change.catalog().require(&scope.namespace)?.clone();
            let mut collection = Collection::clone(&before);
            request.apply(&mut collection, &scope.context)?;
            change.log(|| request.entry(&before, &collection, None));
            change.put_changed(collection).map(drop)
        })
    }
}

impl CollectionChange<'_> {
    /// Returns the definition of a view that the request changes.
    fn view(&self, collection: &Collection) -> Option<View> {
        if self.view_on.is_none() && self.pipeline.is_none() {
            return None;
        }
        // A missing option keeps its value.
        let now = collection.options.view.as_ref();
        let on = self.view_on.or(now.map(|view| view.on.as_str())).unwrap_or_default().to_string();
        let pipeline = self.pipeline.map(Value::Array).or(now.map(|view| view.pipeline.view()));
        Some(View { on, pipeline: pipeline.unwrap_or(Value::Array(Array::EMPTY)).to_owned() })
    }

    /// Returns the log entry of the request. `index` is the change of its index.
    fn entry(&self, before: &Collection, after: &Collection, index: Option<&ChangedIndex>) -> LoggedCommand {
        let mut request = Builder::new();
        let ValidatorChange { filter, level, action, prepares } = self.validator;
        request.append_optional(c"validator", filter);
        request.append_optional(c"validationLevel", level);
        request.append_optional(c"validationAction", action);
        request.append_optional(c"prepareConstraintValidationLevel", prepares);
        request.append_optional(c"cappedSize", self.capped_size);
        request.append_optional(c"cappedMax", self.capped_max);
        let age = |seconds: Option<i64>| seconds.map_or(Value::String("off"), Value::Int64);
        request.append_optional(c"expireAfterSeconds", self.expire_after_seconds.map(age));
        request.append_optional(c"changeStreamPreAndPostImages", self.pre_images);
        let changed = self.index.as_ref().zip(index);
        let old = changed.and_then(|(change, specs)| change.append_to_entry(specs, &mut request));
        let old = old.as_ref().map(DocumentBuf::view);
        LoggedCommand::modify(before, after, request.finish().view(), old)
    }

    /// Applies the other options. Returns the specification of the changed index, before and after.
    fn apply(&self, collection: &mut Collection, context: &Context) -> Result<Option<ChangedIndex>> {
        if collection.is_view() && (self.validator.is_any() || self.index.is_some()) {
            bail!(InvalidOptions, "option not supported on a view");
        }
        let options = &mut collection.options;
        if self.validator.is_any() {
            let context = context.with_collation(options.collation.clone());
            options.validator = self.validator.apply(options.validator.as_deref(), &context)?.map(Arc::new);
        }
        if self.capped_size.is_some() || self.capped_max.is_some() {
            let Some(capped) = &mut options.capped else {
                bail!(InvalidOptions, "Collection must be capped.");
            };
            capped.size = self.capped_size.map_or(Ok(capped.size), option_field::capped_size)?;
            capped.max = self.capped_max.map_or(Ok(capped.max), option_field::capped_max)?;
        }
        if let Some(seconds) = self.expire_after_seconds {
            if options.clustered.is_none() {
                bail!(
                    InvalidOptions,
                    "'expireAfterSeconds' option is only supported on collections clustered by _id"
                );
            }
            options.expire_after_seconds = seconds.map(checked_age).transpose()?;
        }
        if let Some(option) = self.pre_images {
            options.pre_images = options::images(option, "collMod")?;
            options::check_images(&collection.namespace, collection.data.is_none())?;
        }
        let others =
            self.validator.is_any() || self.pre_images.is_some() || self.expire_after_seconds.is_some();
        self.index.map(|index| index.apply(collection, others)).transpose()
    }
}

impl IndexChange<'_> {
    /// Applies the change. Returns the index's specification before and after. `others` is true if the collMod changes
    /// other options too.
    fn apply(&self, collection: &mut Collection, others: bool) -> Result<ChangedIndex> {
        let name = self.name(collection)?;
        let namespace = &collection.namespace;
        if collection.options.clustered.as_deref() == Some(&*name) {
            if self.hidden.is_some() {
                bail!(6011800, "The 'hidden' option is not supported for a clusteredIndex");
            }
            bail!(IndexNotFound, "cannot find index {name} for ns {namespace}");
        }
        if self.hidden.is_some() && namespace.collection().starts_with("system.") {
            bail!(BadValue, "Can't hide index on system collection");
        }
        let mut indexes = collection.data.iter_mut().flat_map(|data| &mut data.indexes);
        let index = indexes.find(|index| index.spec.name == name);
        let index =
            index.ok_or_else(|| err!(IndexNotFound, "cannot find index {name} for ns {namespace}"))?;
        let before = index.spec.clone();
        let after = Arc::new(self.applied(&before, others)?);
        *index = Arc::new(index.with(after.clone(), index.ident, &index.multikey_bits()));
        Ok((before, after))
    }

    /// Appends the requested change to a log entry. Returns the earlier values. As in MongoDB, flags that keep their
    /// values are absent, and an age is present. Returns `None` if nothing remains.
    fn append_to_entry(&self, (before, after): &ChangedIndex, entry: &mut Builder) -> Option<DocumentBuf> {
        let hidden = self.hidden.filter(|hidden| *hidden != before.hidden);
        let prepare_unique = self.prepare_unique.filter(|_| after.prepare_unique != before.prepare_unique);
        let unique = (after.unique && !before.unique).then_some(true);
        let force_non_unique = self.force_non_unique.then_some(true);
        let flags = [hidden, unique, prepare_unique, force_non_unique];
        if self.expire_after_seconds.is_none() && flags == [None; 4] {
            return None;
        }
        let age = |spec: &IndexSpec| {
            let seconds = spec.expire_after_seconds.filter(|_| self.expire_after_seconds.is_some());
            seconds.map(|seconds| seconds as i64)
        };
        entry.begin_document(c"index").append(c"name", &*after.name);
        entry.append_optional(c"expireAfterSeconds", age(after));
        entry.append_optional(c"hidden", hidden).append_optional(c"unique", unique);
        entry.append_optional(c"prepareUnique", prepare_unique);
        entry.append_optional(c"forceNonUnique", force_non_unique).end();
        let mut old = Builder::new();
        old.append_optional(c"expireAfterSeconds", age(before));
        old.append_optional(c"hidden", hidden.map(|hidden| !hidden));
        old.append_optional(c"prepareUnique", prepare_unique.map(|prepare| !prepare));
        Some(old.finish())
    }

    /// Returns the name of the index.
    ///
    /// Errors: IndexNotFound, AmbiguousIndexKeyPattern.
    fn name(&self, collection: &Collection) -> Result<String> {
        let data = collection.data()?;
        let Value::Document(key) = self.index else { return name_of_index(data, self.index) };
        let specs = data.indexes.iter().map(|index| &index.spec);
        let same: Vec<_> = specs.filter(|spec| compare_documents(spec.key.view(), key).is_eq()).collect();
        match same.as_slice() {
            [] => Err(err!(IndexNotFound, "cannot find index {key} for ns {}", collection.namespace)),
            [spec] => Ok(spec.name.clone()),
            [first, second, ..] => Err(err!(
                AmbiguousIndexKeyPattern,
                "index keyPattern {key} matches {} indexes, must use index name. Conflicting indexes:{}, {}",
                same.len(),
                first.to_document(),
                second.to_document()
            )),
        }
    }

    /// Returns the changed specification. Errors: BadValue, InvalidOptions.
    fn applied(&self, before: &IndexSpec, others: bool) -> Result<IndexSpec> {
        let mut spec = before.clone();
        // Both options have no effect on a unique index.
        let is_unique = spec.unique || spec.is_id_pattern();
        let prepare = self.prepare_unique.filter(|prepare| !is_unique && *prepare != spec.prepare_unique);
        if self.unique && !is_unique {
            if !spec.prepare_unique {
                bail!(
                    InvalidOptions,
                    "Cannot make index unique with 'prepareUnique=false'. Run collMod to set it first."
                );
            }
            spec.set_unique(true);
        }
        if self.force_non_unique && is_unique {
            if spec.is_id_pattern() {
                bail!(InvalidOptions, "can't make _id index non-unique");
            }
            spec.set_unique(false);
        }
        if let Some(seconds) = self.expire_after_seconds {
            if spec.is_id_pattern() {
                bail!(InvalidOptions, "the _id field does not support TTL indexes");
            }
            if spec.expire_after_seconds.is_none() && spec.parts.len() > 1 {
                bail!(
                    InvalidOptions,
                    "TTL indexes are single-field indexes, compound indexes do not support TTL"
                );
            }
            if spec.wildcard.is_some() {
                bail!(InvalidOptions, "Index type 'wildcard' cannot be a TTL index");
            }
            spec.expire_after_seconds = Some(checked_age(seconds as i64)? as f64);
        }
        if spec.is_id_pattern() && self.hidden.is_some() {
            bail!(BadValue, "can't hide _id index");
        }
        spec.hidden = self.hidden.unwrap_or(spec.hidden);
        if let Some(prepare) = prepare {
            let others = others || self.hidden.is_some() || self.force_non_unique;
            if others || self.expire_after_seconds.is_some() {
                bail!(InvalidOptions, "prepareUnique cannot be combined with any other modification.");
            }
            if spec.is_hashed() || spec.wildcard.is_some() {
                bail!(InvalidOptions, "Cannot prepare index {} to become unique", spec.name);
            }
            spec.prepare_unique = prepare;
        }
        Ok(spec)
    }
}
