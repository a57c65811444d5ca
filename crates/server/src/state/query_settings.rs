//! Query settings: decisions of an administrator about all queries of one shape.
//!
//! `config.clusterParameters` stores them, as in MongoDB. Servers that share a store read them at their start. A new
//! setting is a field of [`Settings`].

use crate::protocol::fields::Fields;
use crate::state::query_knobs::QueryKnobs;
use crate::state::system_collections::SettingLocation;
use base::CompatibleWith;
use base::bson::{Builder, Document, DocumentBuf, Value};
use base::encoding;
use base::namespace::is_internal_database;
use base::{Namespace, Result, bail, err};
use database::language::query_shape;
use database::{Database, Hint, IndexHint, QuerySettings};
use parking_lot::{Mutex, RwLock};
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

const LOCATION: SettingLocation =
    SettingLocation { database: "config", collection: "clusterParameters", id: "querySettings" };

/// The settings of one shape.
pub(crate) struct ShapeSettings {
    /// The shape's hash: 64 hexadecimal digits.
    pub(crate) hash: String,
    /// A query of this shape, if one is known.
    pub(crate) representative: Option<DocumentBuf>,
    /// Whether queries of this shape are refused.
    pub(crate) reject: bool,
    /// The settings for plans and for explain.
    pub(crate) settings: Arc<QuerySettings>,
}

/// The hash of a shape in hexadecimal digits.
pub(crate) fn hash_of(shape: Document<'_>) -> String {
    encoding::hex_upper(&Sha256::digest(shape.bytes()))
}

/// The settings of all shapes.
#[derive(Default)]
pub(crate) struct AllQuerySettings {
    /// The number of shapes. Commands compute their shapes only if it is not zero.
    count: AtomicUsize,
    shapes: RwLock<Vec<Arc<ShapeSettings>>>,
    /// Serializes changes.
    changing: Mutex<()>,
}

impl AllQuerySettings {
    /// The settings for a command.
    pub(crate) fn of_command(&self, database: &str, command: Document<'_>) -> Option<Arc<ShapeSettings>> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        self.find(&hash_of(query_shape::of_command(database, command)?.view()))
    }

    /// The settings for a command, merged with the settings `given` by the command. Settings of the shape take
    /// precedence. Reads by `_id` and reads of internal collections cannot give settings.
    ///
    /// Errors: those of [`Settings::read`].
    pub(crate) fn for_command(
        &self,
        (database, command): (&str, Document<'_>),
        given: Option<Document<'_>>,
    ) -> Result<Option<Arc<ShapeSettings>>> {
        let stored = self.of_command(database, command);
        let Some(given) = given.filter(|_| may_have_settings(database, command)) else { return Ok(stored) };
        let given = Settings::read(given, CompatibleWith::V9_0)?;
        let merged = match &stored {
            Some(stored) => stored.to_settings()?.over(given),
            None => given,
        };
        Ok(merged.effective().map(|settings| Arc::new(settings.into_shape(String::new(), None))))
    }

    fn find(&self, hash: &str) -> Option<Arc<ShapeSettings>> {
        self.shapes.read().iter().find(|shape| shape.hash == hash).cloned()
    }

    /// The documents of `$querySettings`, with the shapes if `shows_shape` is set.
    pub(crate) fn documents(&self, shows_shape: bool) -> Vec<DocumentBuf> {
        let document = |shape: &Arc<ShapeSettings>| {
            let mut out = Builder::new();
            shape.append_to(&mut out);
            if let Some(query) = shape.representative.as_ref().filter(|_| shows_shape) {
                let database = query.view().get("$db").and_then(|name| name.as_str()).unwrap_or("");
                let shape = query_shape::of_command(database, query.view());
                out.append_optional(c"debugQueryShape", shape.as_ref().map(DocumentBuf::view));
            }
            out.finish()
        };
        self.shapes.read().iter().map(document).collect()
    }

    /// Merges settings into the settings of a shape and stores the result.
    ///
    /// Errors: those of [`Settings::read`] and [`Settings::simplified`]; those of the write.
    pub(crate) fn set(
        &self,
        database: &Arc<Database>,
        (hash, representative): (String, Option<DocumentBuf>),
        settings: Document<'_>,
        compatible_with: CompatibleWith,
    ) -> Result<Arc<ShapeSettings>> {
        let _changing = self.changing.lock();
        let new = Settings::read(settings, compatible_with)?;
        let before = self.find(&hash);
        let merged = match &before {
            Some(before) => new.over(before.to_settings()?),
            None => new,
        };
        let merged = merged.simplified()?;
        let representative =
            representative.or_else(|| before.as_ref().and_then(|before| before.representative.clone()));
        let shape = Arc::new(merged.into_shape(hash, representative));
        let mut shapes = self.shapes.read().clone();
        match shapes.iter_mut().find(|other| other.hash == shape.hash) {
            Some(other) => *other = shape.clone(),
            None => shapes.push(shape.clone()),
        }
        self.store(database, shapes)?;
        Ok(shape)
    }

    /// Removes the settings of a shape.
    ///
    /// Errors: those of the write.
    pub(crate) fn remove(&self, database: &Arc<Database>, hash: &str) -> Result<()> {
        let _changing = self.changing.lock();
        let mut shapes = self.shapes.read().clone();
        let before = shapes.len();
        shapes.retain(|shape| shape.hash != hash);
        if shapes.len() == before { Ok(()) } else { self.store(database, shapes) }
    }

    fn store(&self, database: &Arc<Database>, shapes: Vec<Arc<ShapeSettings>>) -> Result<()> {
        let time = database.cluster_time();
        LOCATION.write(database, |document| {
            document.begin_array(c"settingsArray");
            for shape in &shapes {
                shape.append_to(document.push_document());
                document.end();
            }
            document.end().append(c"clusterParameterTime", Value::Timestamp(time));
        })?;
        self.publish(shapes);
        Ok(())
    }

    /// Loads the settings that an earlier process stored. Unreadable settings are logged and ignored.
    pub(crate) fn load(&self, database: &Arc<Database>) {
        let stored = LOCATION.read(database).unwrap_or_else(|error| {
            log::warn!("reading the query settings: {error}");
            None
        });
        let stored = stored.as_ref().and_then(|stored| stored.view().get("settingsArray")?.as_array());
        let shapes =
            stored.into_iter().flat_map(|array| array.iter()).filter_map(|shape| shape.as_document());
        let read = |shape: Document<'_>| {
            let text = |name| shape.get(name).and_then(|value| value.as_str());
            let inner = |name| shape.get(name).and_then(|value| value.as_document());
            let hash = text("queryShapeHash").unwrap_or("").to_string();
            let representative = inner("representativeQuery").map(|query| query.to_owned());
            let settings = inner("settings").unwrap_or(Document::EMPTY);
            let settings = Settings::read(settings, CompatibleWith::V9_0);
            settings.map(|settings| settings.into_shape(hash, representative))
        };
        let valid = shapes.filter_map(|shape| match read(shape) {
            Ok(shape) => Some(Arc::new(shape)),
            Err(error) => {
                log::warn!("reading query settings: {error}");
                None
            }
        });
        self.publish(valid.collect());
    }

    fn publish(&self, shapes: Vec<Arc<ShapeSettings>>) {
        let count = shapes.len();
        *self.shapes.write() = shapes;
        self.count.store(count, Relaxed);
    }
}

/// Whether a command may give settings. MongoDB ignores them for internal collections and for reads by `_id`.
fn may_have_settings(database: &str, command: Document<'_>) -> bool {
    let collection = command.first().and_then(|name| name.value().as_str()).unwrap_or("");
    let filter = command.get("filter").and_then(|filter| filter.as_document()).unwrap_or(Document::EMPTY);
    let is_by_id = filter.iter().count() == 1 && filter.find("_id").is_some();
    !is_by_id && !is_internal_database(database) && !collection.starts_with("system.")
}

impl ShapeSettings {
    /// Appends hash, settings and representative query, as they are stored and shown.
    pub(crate) fn append_to(&self, out: &mut Builder) {
        out.append(c"queryShapeHash", self.hash.as_str());
        out.append(c"settings", self.settings.document.view());
        out.append_optional(c"representativeQuery", self.representative.as_ref().map(DocumentBuf::view));
    }

    fn to_settings(&self) -> Result<Settings> {
        Settings::read(self.settings.document.view(), CompatibleWith::V9_0)
    }
}

/// The fields of settings. `None` leaves a field as it was.
struct Settings {
    index_hints: Option<Vec<IndexHintSpec>>,
    query_framework: Option<String>,
    reject: Option<bool>,
    /// A document with the field `comment`, whose value may have any type.
    comment: Option<DocumentBuf>,
    query_knobs: Option<QueryKnobs>,
    /// Zero removes the limit.
    max_time: Option<Duration>,
}

/// The indexes that one collection's plans may use.
struct IndexHintSpec {
    namespace: Namespace,
    /// The original document, for display.
    allowed_indexes: DocumentBuf,
    hints: Vec<IndexHint>,
}

impl Settings {
    /// Reads settings.
    ///
    /// Errors: TypeMismatch, 40414 and 40415 for wrong fields; BadValue for an unknown framework and for a time out of
    /// range; 8727500 and 8727501 for a namespace without a part; FailedToParse and 9646000 for an index; 7746608 for
    /// a collection with two hints; NotImplemented for the framework sbe; those of [`QueryKnobs::read`].
    fn read(settings: Document<'_>, compatible_with: CompatibleWith) -> Result<Settings> {
        let mut fields = Fields::of_document("setQuerySettings.settings", settings);
        let specs: Option<Vec<Value<'_>>> = match fields.any("indexHints")? {
            None | Some(Value::Null) => None,
            Some(one @ Value::Document(_)) => Some(vec![one]),
            Some(Value::Array(specs)) => Some(specs.iter().collect()),
            Some(other) => return Err(fields.wrong_type("indexHints", other.kind(), "array")),
        };
        let document = |spec: Value<'_>| match spec {
            Value::Document(spec) => IndexHintSpec::read(spec),
            other => Err(fields.wrong_type("indexHints", other.kind(), "object")),
        };
        let index_hints =
            specs.map(|specs| specs.into_iter().map(document).collect::<Result<Vec<_>>>()).transpose()?;
        let query_framework = fields.string("queryFramework")?.map(str::to_string);
        match query_framework.as_deref() {
            None | Some("classic") => {}
            Some("sbe") => bail!(NotImplemented, "the query framework 'sbe' is not supported"),
            Some(other) => bail!(BadValue, "'{other}' is not a query framework: use 'classic' or 'sbe'"),
        }
        let reject = fields.strict_boolean("reject")?;
        let comment = fields.any("comment")?.map(|comment| {
            let mut out = Builder::new();
            out.append(c"comment", comment);
            out.finish()
        });
        let (mut query_knobs, mut max_time) = (None, None);
        if compatible_with >= CompatibleWith::V9_0 {
            query_knobs = fields.document("queryKnobs")?.map(QueryKnobs::read).transpose()?;
            max_time = fields.integer("maxTimeMS")?.map(max_time_of).transpose()?;
        }
        fields.finish()?;
        let hints = index_hints.as_deref().unwrap_or_default();
        for (at, spec) in hints.iter().enumerate() {
            if hints.iter().take(at).any(|other| other.namespace == spec.namespace) {
                bail!(7746608, "Collection '{}' has index hints already", spec.namespace.as_str());
            }
        }
        Ok(Settings { index_hints, query_framework, reject, comment, query_knobs, max_time })
    }

    /// Returns these settings, with the earlier settings for missing fields.
    fn over(self, before: Settings) -> Settings {
        Settings {
            index_hints: self.index_hints.or(before.index_hints),
            query_framework: self.query_framework.or(before.query_framework),
            reject: self.reject.or(before.reject),
            comment: self.comment.or(before.comment),
            query_knobs: match (self.query_knobs, before.query_knobs) {
                (Some(knobs), Some(before)) => Some(knobs.over(&before)),
                (knobs, before) => knobs.or(before),
            },
            max_time: self.max_time.or(before.max_time),
        }
    }

    /// Drops fields that have no effect.
    ///
    /// Errors: 7746604 if no field is left besides the comment.
    fn simplified(self) -> Result<Settings> {
        self.effective().ok_or_else(|| {
            err!(7746604, "the resulting settings cannot be empty or contain only default values")
        })
    }

    /// Drops fields that have no effect. Returns `None` if no field is left besides the comment.
    fn effective(mut self) -> Option<Settings> {
        self.reject = self.reject.filter(|reject| *reject);
        let hints = self.index_hints.map(|mut hints| {
            hints.retain(|spec| !spec.hints.is_empty());
            hints
        });
        self.index_hints = hints.filter(|hints| !hints.is_empty());
        self.query_knobs = self.query_knobs.and_then(QueryKnobs::effective);
        self.max_time = self.max_time.filter(|time| !time.is_zero());
        let has_effect = self.index_hints.is_some()
            || self.query_framework.is_some()
            || self.reject.is_some()
            || self.query_knobs.is_some()
            || self.max_time.is_some();
        has_effect.then_some(self)
    }

    fn into_shape(self, hash: String, representative: Option<DocumentBuf>) -> ShapeSettings {
        let mut out = Builder::new();
        let hints = self.index_hints.unwrap_or_default();
        if !hints.is_empty() {
            out.begin_array(c"indexHints");
            for spec in &hints {
                out.push_document().begin_document(c"ns").append(c"db", spec.namespace.database());
                out.append(c"coll", spec.namespace.collection()).end();
                out.append_all(spec.allowed_indexes.view()).end();
            }
            out.end();
        }
        out.append_optional(c"queryFramework", self.query_framework.as_deref());
        out.append_optional(c"reject", self.reject);
        out.append_all(self.comment.as_ref().map_or(Document::EMPTY, DocumentBuf::view));
        if let Some(knobs) = &self.query_knobs {
            knobs.append_to(&mut out);
        }
        out.append_optional(c"maxTimeMS", self.max_time.map(|time| time.as_millis() as i64));
        let settings = QuerySettings {
            document: out.finish(),
            index_hints: hints.into_iter().map(|spec| (spec.namespace, spec.hints)).collect(),
            no_table_scan: self.query_knobs.as_ref().and_then(QueryKnobs::no_table_scan),
            max_time: self.max_time,
        };
        let settings = Arc::new(settings);
        ShapeSettings { hash, representative, reject: self.reject == Some(true), settings }
    }
}

/// Errors: BadValue for a time that no int of milliseconds holds.
fn max_time_of(millis: i64) -> Result<Duration> {
    match u32::try_from(millis).ok().filter(|millis| *millis <= i32::MAX as u32) {
        Some(millis) => Ok(Duration::from_millis(millis.into())),
        None => Err(err!(BadValue, "{millis} value for maxTimeMS is out of range [0, {}]", i32::MAX)),
    }
}

impl IndexHintSpec {
    fn read(spec: Document<'_>) -> Result<IndexHintSpec> {
        let mut fields = Fields::of_document("indexHintSpec", spec);
        let namespace = fields.required("ns", Fields::document)?;
        let indexes = fields.required("allowedIndexes", Fields::array)?;
        fields.finish()?;
        let mut fields = Fields::of_document("indexHintSpec.ns", namespace);
        let (database, collection) = (fields.string("db")?, fields.string("coll")?);
        fields.finish()?;
        let database =
            database.ok_or_else(|| err!(8727500, "invalid index hint: 'ns.db' field is missing"))?;
        let collection =
            collection.ok_or_else(|| err!(8727501, "invalid index hint: 'ns.coll' field is missing"))?;
        let hint = |index: Value<'_>| match Hint::parse(index)? {
            Some(Hint::Name(name) | Hint::Internal(name)) => Ok(IndexHint::Name(name)),
            Some(Hint::Key(key)) => Ok(IndexHint::Key(key)),
            Some(Hint::Natural { .. }) => Ok(IndexHint::Natural),
            None => Err(err!(9646000, "key pattern index can't be empty")),
        };
        let hints = indexes.iter().map(hint).collect::<Result<_>>()?;
        let mut allowed_indexes = Builder::new();
        allowed_indexes.append(c"allowedIndexes", Value::Array(indexes));
        let namespace = Namespace::new(database, collection)?;
        Ok(IndexHintSpec { namespace, allowed_indexes: allowed_indexes.finish(), hints })
    }
}
