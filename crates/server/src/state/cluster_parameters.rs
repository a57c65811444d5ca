//! Cluster parameters: `changeStreamOptions`, the retention of pre-images, and parameters without an effect here.
//!
//! The stored form is `config.clusterParameters`, as in MongoDB. Persistent engines keep it over
//! restarts.

use crate::protocol::fields::Fields;
use crate::state::system_collections::SettingLocation;
use base::bson::{Builder, Document, FieldName, Value};
use base::{Error, Result, bail, err};
use database::Database;
use parking_lot::RwLock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Name of the parameter with an effect.
pub(crate) const CHANGE_STREAM_OPTIONS: &str = "changeStreamOptions";

const LOCATION: SettingLocation =
    SettingLocation { database: "config", collection: "clusterParameters", id: CHANGE_STREAM_OPTIONS };

/// Value of `changeStreamOptions`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeStreamOptions {
    /// Retention of pre-images in seconds; `None` keeps them as long as their oplog entries.
    pub(crate) expire_after_seconds: Option<i64>,
    /// Cluster time of the latest change; zero without a change.
    pub(crate) time: u64,
}

/// A parameter with one field, which has no effect on this server: it has no shards, no change collections, and refuses
/// a default for `maxTimeMS`.
pub(crate) struct PlainParameter {
    /// The name.
    pub(crate) name: &'static str,
    field: &'static str,
    initial: PlainValue,
}

/// All parameters of this kind, sorted by name.
pub(crate) const PLAIN: [PlainParameter; 3] = [
    PlainParameter { name: "changeStreams", field: "expireAfterSeconds", initial: PlainValue::Long(3600) },
    PlainParameter { name: "defaultMaxTimeMS", field: "readOperations", initial: PlainValue::Long(0) },
    PlainParameter {
        name: "pauseMigrationsDuringMultiUpdates",
        field: "enabled",
        initial: PlainValue::Boolean(false),
    },
];

#[derive(Clone, Copy, Debug)]
enum PlainValue {
    Boolean(bool),
    Long(i64),
}

impl PlainParameter {
    /// Returns the parameter of this name.
    pub(crate) fn named(name: &str) -> Option<&'static PlainParameter> {
        PLAIN.iter().find(|parameter| parameter.name == name)
    }

    fn location(&self) -> SettingLocation {
        SettingLocation { database: "config", collection: "clusterParameters", id: self.name }
    }

    /// Reads a value. An absent or null field means the initial value.
    ///
    /// Errors: TypeMismatch, 40415, BadValue for a negative number, NotImplemented for a default of `maxTimeMS`.
    fn parse(&self, value: Document<'_>) -> Result<PlainValue> {
        let mut fields = Fields::of_document(self.name, value);
        fields.any("_id")?;
        fields.any("clusterParameterTime")?;
        let given = match self.initial {
            PlainValue::Boolean(_) => fields.boolean(self.field)?.map(PlainValue::Boolean),
            PlainValue::Long(_) => fields.integer(self.field)?.map(PlainValue::Long),
        };
        fields.finish()?;
        match given {
            Some(PlainValue::Long(number)) if number < 0 => {
                Err(err!(BadValue, "'{}' of {} must not be negative", self.field, self.name))
            }
            Some(PlainValue::Long(1..)) if self.name == "defaultMaxTimeMS" => {
                Err(err!(NotImplemented, "the cluster parameter {} is not implemented", self.name))
            }
            given => Ok(given.unwrap_or(self.initial)),
        }
    }
}

/// Cluster parameters in use.
#[derive(Default)]
pub(crate) struct ClusterParameters {
    change_streams: RwLock<ChangeStreamOptions>,
    /// Values other than the initial ones, with their cluster times.
    plain: RwLock<BTreeMap<&'static str, (PlainValue, u64)>>,
}

impl ClusterParameters {
    /// Returns the value of `changeStreamOptions`.
    pub(crate) fn change_streams(&self) -> ChangeStreamOptions {
        *self.change_streams.read()
    }

    /// Appends the value of a parameter without `_id`. A standalone has no cluster time.
    pub(crate) fn append_plain(&self, parameter: &PlainParameter, has_time: bool, out: &mut Builder) {
        let set = self.plain.read().get(parameter.name).copied();
        let (value, time) = set.unwrap_or((parameter.initial, 0));
        if has_time {
            out.append(c"clusterParameterTime", Value::Timestamp(time));
        }
        match value {
            PlainValue::Boolean(value) => out.append(FieldName::trusted(parameter.field), value),
            PlainValue::Long(value) => out.append(FieldName::trusted(parameter.field), value),
        };
    }

    /// Stores a parameter.
    ///
    /// Errors: errors of the value and of the write.
    pub(crate) fn set_plain(
        &self,
        database: &Arc<Database>,
        parameter: &'static PlainParameter,
        value: Document<'_>,
    ) -> Result<()> {
        let value = parameter.parse(value)?;
        let before = self.plain.write().insert(parameter.name, (value, database.cluster_time()));
        let stored =
            parameter.location().write(database, |document| self.append_plain(parameter, true, document));
        if stored.is_err() {
            match before {
                Some(before) => self.plain.write().insert(parameter.name, before),
                None => self.plain.write().remove(parameter.name),
            };
        }
        stored
    }

    /// Loads a stored value. An unreadable value is logged and counts as unset.
    fn load_plain(&self, database: &Arc<Database>, parameter: &'static PlainParameter) {
        let read = parameter.location().read(database).and_then(|stored| {
            let Some(stored) = stored else { return Ok(None) };
            let time = match stored.view().get("clusterParameterTime") {
                Some(Value::Timestamp(time)) => time,
                _ => 0,
            };
            Ok(Some((parameter.parse(stored.view())?, time)))
        });
        match read {
            Ok(None) => {}
            Ok(Some(value)) => _ = self.plain.write().insert(parameter.name, value),
            Err(error) => log::warn!("reading the parameter {}: {error}", parameter.name),
        }
    }
}

impl ChangeStreamOptions {
    /// Parses a value of the parameter.
    ///
    /// Errors: BadValue for all mistakes, as in MongoDB.
    pub(crate) fn parse(value: Document<'_>) -> Result<ChangeStreamOptions> {
        let expiry = read(value).map_err(|error| {
            err!(BadValue, "Failed parsing new changeStreamOptions value{}", error.message())
        })?;
        let expire_after_seconds = match expiry {
            Expiry::Off => None,
            Expiry::Seconds(seconds @ 1..) => Some(seconds),
            Expiry::Seconds(_) => {
                bail!(BadValue, "Numeric value of 'expireAfterSeconds' should be positive");
            }
            Expiry::Other => {
                bail!(BadValue, "Non-numeric value of 'expireAfterSeconds' should be 'off'");
            }
        };
        Ok(ChangeStreamOptions { expire_after_seconds, time: 0 })
    }

    /// Appends the stored form without `_id`. A standalone has no cluster time.
    pub(crate) fn append_to(&self, has_time: bool, out: &mut Builder) {
        if has_time {
            out.append(c"clusterParameterTime", Value::Timestamp(self.time));
        }
        out.begin_document(c"preAndPostImages");
        match self.expire_after_seconds {
            Some(seconds) => out.append(c"expireAfterSeconds", seconds),
            None => out.append(c"expireAfterSeconds", "off"),
        };
        out.end();
    }
}

enum Expiry {
    Off,
    Seconds(i64),
    Other,
}

fn read(value: Document<'_>) -> Result<Expiry> {
    let mut fields = Fields::of_document(CHANGE_STREAM_OPTIONS, value);
    fields.any("_id")?;
    fields.any("clusterParameterTime")?;
    let images = fields.required("preAndPostImages", Fields::document)?;
    fields.finish()?;
    let mut fields = Fields::of_document(format!("{CHANGE_STREAM_OPTIONS}.preAndPostImages"), images);
    let expiry = fields.required("expireAfterSeconds", Fields::any)?;
    fields.finish()?;
    match expiry {
        Value::String("off") => Ok(Expiry::Off),
        Value::String(_) => Ok(Expiry::Other),
        value => match value.as_number() {
            Some(number) => Ok(Expiry::Seconds(number.to_i64_clamped())),
            None => Err(wrong_type(value)),
        },
    }
}

fn wrong_type(found: Value<'_>) -> Error {
    Error::wrong_type(
        "changeStreamOptions.preAndPostImages.expireAfterSeconds",
        found.kind(),
        "[string, long, int, decimal, double",
    )
}

impl ClusterParameters {
    /// Loads the stored values. An unreadable value is logged and counts as unset.
    pub(crate) fn load(&self, database: &Arc<Database>) {
        PLAIN.iter().for_each(|parameter| self.load_plain(database, parameter));
        let loaded = LOCATION.read(database).and_then(|stored| {
            let Some(stored) = &stored else { return Ok(ChangeStreamOptions::default()) };
            let stored = stored.view();
            let time = match stored.get("clusterParameterTime") {
                Some(Value::Timestamp(time)) => time,
                _ => 0,
            };
            Ok(ChangeStreamOptions { time, ..ChangeStreamOptions::parse(stored)? })
        });
        match loaded {
            Ok(options) => self.publish(database, options),
            Err(error) => log::warn!("reading the parameter {CHANGE_STREAM_OPTIONS}: {error}"),
        }
    }

    /// Stores the parameter, then applies it.
    ///
    /// Errors: errors of the write.
    pub(crate) fn set_change_streams(
        &self,
        database: &Arc<Database>,
        options: ChangeStreamOptions,
    ) -> Result<()> {
        let options = ChangeStreamOptions { time: database.cluster_time(), ..options };
        LOCATION.write(database, |document| options.append_to(true, document))?;
        self.publish(database, options);
        Ok(())
    }

    fn publish(&self, database: &Arc<Database>, options: ChangeStreamOptions) {
        *self.change_streams.write() = options;
        database.keep_images_for(options.expire_after_seconds);
    }
}
