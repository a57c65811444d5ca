//! `getClusterParameter` and `setClusterParameter`.

use crate::access::command::Kind;
use crate::access::{Action, Requirements};
use crate::call::row::Row;
use crate::call::{Call, HandlerStatus};
use crate::state::cluster_parameters::{CHANGE_STREAM_OPTIONS, ChangeStreamOptions, PLAIN, PlainParameter};
use base::bson::Value;
use base::{Error, Result, bail, err};

/// The row of `getClusterParameter`.
pub(crate) const GET: Row = Row::new(
    "getClusterParameter",
    Kind::Admin,
    "Returns the values of cluster parameters.",
    get,
    Requirements::Cluster(Action::GetClusterParameter),
)
.admin_only();

fn get(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let names = match fields.command_value() {
        Value::String("*") => {
            let plain = PLAIN.iter().map(|parameter| parameter.name);
            [CHANGE_STREAM_OPTIONS].into_iter().chain(plain).collect()
        }
        Value::String(name) => vec![name],
        Value::Array(names) => {
            let text = |name: Value<'_>| {
                Error::wrong_type("getClusterParameter.getClusterParameter", name.kind(), "string")
            };
            names.iter().map(|name| name.as_str().ok_or_else(|| text(name))).collect::<Result<_>>()?
        }
        other => {
            return Err(Error::wrong_type(
                "getClusterParameter.getClusterParameter",
                other.kind(),
                "[string, array",
            ));
        }
    };
    // All parameters are also in MongoDB's diagnostic data.
    fields.boolean("omitInFTDC")?;
    fields.ignore_rest();
    if names.is_empty() {
        bail!(BadValue, "Must supply at least one cluster server parameter name to getClusterParameter");
    }
    names.iter().try_for_each(|name| check_known(name))?;
    let has_time = call.server.is_replica_set();
    let options = call.server.set_settings.cluster_parameters.change_streams();
    call.reply.begin_array(c"clusterParameters");
    for name in names {
        let out = call.reply.push_document().append(c"_id", name);
        match PlainParameter::named(name) {
            Some(parameter) => {
                call.server.set_settings.cluster_parameters.append_plain(parameter, has_time, out)
            }
            None => options.append_to(has_time, out),
        }
        call.reply.end();
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

/// Checks the name of a parameter.
///
/// Errors: NoSuchKey.
fn check_known(name: &str) -> Result<()> {
    match name == CHANGE_STREAM_OPTIONS || PlainParameter::named(name).is_some() {
        true => Ok(()),
        false => Err(err!(NoSuchKey, "Unknown server parameter: {name}")),
    }
}

/// The row of `setClusterParameter`.
pub(crate) const SET: Row = Row::new(
    "setClusterParameter",
    Kind::Write,
    "Changes a cluster parameter.",
    set,
    Requirements::Cluster(Action::SetClusterParameter),
)
.admin_only();

fn set(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let parameters = match fields.command_value() {
        Value::Document(parameters) => parameters,
        other => {
            return Err(Error::wrong_type("setClusterParameter.setClusterParameter", other.kind(), "object"));
        }
    };
    fields.ignore_rest();
    if !call.server.is_replica_set() {
        bail!(51300, "'{}' is not supported on standalone nodes.", call.command.name);
    }
    let Some(parameter) = parameters.first() else {
        bail!(NoSuchKey, "No cluster parameter provided");
    };
    if parameters.iter().nth(1).is_some() {
        bail!(InvalidOptions, "setClusterParameter only supports setting exactly one parameter");
    }
    check_known(parameter.name())?;
    let Value::Document(value) = parameter.value() else {
        bail!(IllegalOperation, "Cluster parameter value must be an object");
    };
    let parameters = &call.server.set_settings.cluster_parameters;
    match PlainParameter::named(parameter.name()) {
        Some(plain) => parameters.set_plain(&call.server.database, plain, value)?,
        None => parameters.set_change_streams(&call.server.database, ChangeStreamOptions::parse(value)?)?,
    }
    call.acknowledge(None)
}
