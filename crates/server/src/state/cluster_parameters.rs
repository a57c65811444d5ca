//! Cluster parameters, of which Vellum has one: `changeStreamOptions`, the retention of pre-images.
//!
//! The stored form is `config.clusterParameters`, as in MongoDB. Persistent engines keep it over
//! restarts.

use crate::protocol::fields::Fields;
use crate::state::system_collections::SettingLocation;
use base::bson::{Builder, Document, Value};
use base::{Error, Result, err};
use database::Database;
use parking_lot::RwLock;
use std::sync::Arc;

/// Name of the only parameter.
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

/// Cluster parameters in use.
#[derive(Default)]
pub(crate) struct ClusterParameters {
    change_streams: RwLock<ChangeStreamOptions>,
}

impl ClusterParameters {
    /// Returns the value of `changeStreamOptions`.
    pub(crate) fn change_streams(&self) -> ChangeStreamOptions {
        *self.change_streams.read()
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
                return Err(err!(BadValue, "Numeric value of 'expireAfterSeconds' should be positive"));
            }
            Expiry::Other => {
                return Err(err!(BadValue, "Non-numeric value of 'expireAfterSeconds' should be 'off'"));
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
    err!(
        TypeMismatch,
        "BSON field 'changeStreamOptions.preAndPostImages.expireAfterSeconds' is the wrong type '{}', expected types \
         '[string, long, int, decimal, double']",
        found.kind().alias()
    )
}

impl ClusterParameters {
    /// Loads the stored value. An unreadable value is logged and counts as unset.
    pub(crate) fn load(&self, database: &Arc<Database>) {
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
