//! `getParameter`, `setParameter`, and the same for parameters of the cluster.

use crate::access::{Action, Requirements};
use crate::call::{Call, HandlerStatus, Row};
use crate::process::logging::components;
use crate::state::cluster_parameters::{CHANGE_STREAM_OPTIONS, ChangeStreamOptions, PLAIN, PlainParameter};
use crate::state::parameters::{HISTORY_AGE, HISTORY_BYTES, SYNC_DELAY, SYNC_EVERY, Setting, elsewhere};
use crate::state::set_settings::feature_version;
use crate::state::tls::TlsMode;
use base::bson::{Builder, FieldName, Value};
use base::{Error, Result, bail, err};
use std::time::Duration;

/// Log level: 0 for important messages, up to 5 for debugging.
const LOG_LEVEL: &str = "logLevel";

/// The feature compatibility version.
const FEATURE_VERSION: &str = "featureCompatibilityVersion";

/// Log level of each component.
const VERBOSITY: &str = "logComponentVerbosity";

/// Parameters of the TLS mode, in the older and the current name. The values lead from plain
/// connections only to TLS only.
const TLS_MODES: [(&str, [&str; 4]); 2] = [
    ("sslMode", ["disabled", "allowSSL", "preferSSL", "requireSSL"]),
    ("tlsMode", ["disabled", "allowTLS", "preferTLS", "requireTLS"]),
];

/// The row of `getParameter`.
pub(crate) const GET_PARAMETER: Row =
    Row::admin("getParameter", get_parameter, Requirements::Cluster(Action::GetParameter))
        .help("Returns the values of server parameters.")
        .admin_only();

fn get_parameter(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let mut set_at = None;
    let (all, details) = match fields.command_value() {
        Value::String("*") => (true, false),
        Value::Document(options) => {
            let mut options = crate::protocol::fields::Fields::of_document("getParameter", options);
            let details = options.flag("showDetails")?.unwrap_or(false);
            let all = options.flag("allParameters")?.unwrap_or(false);
            set_at = options.string("setAt")?.map(parse_set_at).transpose()?;
            options.finish()?;
            (all, details)
        }
        _ => (false, false),
    };
    let names: Vec<&str> = fields.rest().iter().map(|element| element.name()).collect();
    let parameters = all_parameters(call);
    let before = call.reply.len();
    for (name, value, changeable) in &parameters {
        let settable = SettableAt { runtime: *changeable, startup: !NOT_AT_STARTUP.contains(name) };
        if set_at.is_none_or(|is_meant| is_meant(settable)) && (all || names.contains(name)) {
            append(call.reply, name, value, details.then_some(settable));
        }
    }
    if call.reply.len() == before && set_at.is_none() {
        let known = names.iter().find_map(|name| elsewhere::unreadable_parameter(name));
        return Err(known.unwrap_or_else(|| err!(InvalidOptions, "no option found to get")));
    }
    Ok(HandlerStatus::Done)
}

/// When clients can set a parameter.
#[derive(Clone, Copy)]
struct SettableAt {
    runtime: bool,
    startup: bool,
}

/// Parameters that MongoDB does not take at startup.
const NOT_AT_STARTUP: [&str; 4] = ["authSchemaVersion", FEATURE_VERSION, "sslMode", "tlsMode"];

/// Parses `setAt`.
///
/// Errors: BadValue.
fn parse_set_at(set_at: &str) -> Result<fn(SettableAt) -> bool> {
    match set_at {
        "runtime" => Ok(|settable| settable.runtime),
        "startup" => Ok(|settable| settable.startup),
        other => Err(Error::unknown_value("getParameter.setAt", other)),
    }
}

/// Value of a parameter, including parameters that only this command has.
enum ParameterValue {
    Setting(Setting),
    Version(&'static str),
    Mechanisms(Vec<String>),
    Verbosity,
}

/// Returns each parameter with its value, and true if it can change at run time.
fn all_parameters(call: &Call<'_>) -> Vec<(&'static str, ParameterValue, bool)> {
    let bypass = Setting::Boolean(call.server.settings.localhost_exception);
    let test_commands = Setting::Boolean(call.server.fail_points.allowed());
    let mut parameters = vec![
        (
            "authenticationMechanisms",
            ParameterValue::Mechanisms(call.server.auth.mechanisms().to_vec()),
            false,
        ),
        ("enableLocalhostAuthBypass", ParameterValue::Setting(bypass), false),
        ("enableTestCommands", ParameterValue::Setting(test_commands), false),
        (
            FEATURE_VERSION,
            ParameterValue::Version(feature_version(
                &call.server.database,
                call.server.settings.compatible_with,
            )),
            false,
        ),
        (VERBOSITY, ParameterValue::Verbosity, true),
        (LOG_LEVEL, ParameterValue::Setting(Setting::Integer(components::level())), true),
    ];
    for (name, words) in TLS_MODES {
        parameters.push((name, ParameterValue::Setting(Setting::Word(tls_word(call, words))), true));
    }
    let settings = call.server.parameters.all();
    parameters.extend(
        settings
            .into_iter()
            .map(|(name, value, changeable)| (name, ParameterValue::Setting(value), changeable)),
    );
    parameters.sort_by_key(|parameter| parameter.0);
    parameters
}

fn append(reply: &mut Builder, name: &str, value: &ParameterValue, details: Option<SettableAt>) {
    let Some(settable) = details else { return append_value(reply, name, value) };
    reply.begin_document(FieldName::trusted(name));
    append_value(reply, "value", value);
    reply.append(c"settableAtRuntime", settable.runtime);
    reply.append(c"settableAtStartup", settable.startup).end();
}

fn append_value(reply: &mut Builder, name: &str, value: &ParameterValue) {
    match value {
        ParameterValue::Setting(setting) => setting.append_to(reply, name),
        ParameterValue::Version(version) => {
            reply.begin_document(FieldName::trusted(name)).append(c"version", *version).end();
        }
        ParameterValue::Verbosity => components::append_to(reply, name),
        ParameterValue::Mechanisms(mechanisms) => {
            reply.begin_array(FieldName::trusted(name));
            for mechanism in mechanisms {
                reply.push(mechanism);
            }
            reply.end();
        }
    }
}

/// The row of `setParameter`.
pub(crate) const SET_PARAMETER: Row =
    Row::admin("setParameter", set_parameter, Requirements::Cluster(Action::SetParameter))
        .help("Changes a server parameter.")
        .admin_only();

fn set_parameter(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let fields = call.fields().after_name();
    let assignments = fields.rest();
    let first = assignments
        .first()
        .ok_or_else(|| err!(InvalidOptions, "no option found to set, use help:true to see options "))?;
    if let Some(second) = assignments.get(1) {
        bail!(InvalidOptions, "setParameter takes one parameter at a time, also got '{}'", second.name());
    }
    match first.name() {
        LOG_LEVEL => {
            let number = first.value().as_number().filter(|level| !level.is_nan());
            let level = number.map(|level| level.to_i64_clamped()).or(first.value().as_bool().map(i64::from));
            let level = level.and_then(|level| i32::try_from(level).ok()).filter(|level| *level >= 0);
            let level =
                level.ok_or_else(|| err!(BadValue, "Invalid value for {LOG_LEVEL}: {}", first.value()))?;
            call.reply.append(c"was", components::set_level(level));
        }
        VERBOSITY => {
            let Value::Document(requested) = first.value() else {
                bail!(TypeMismatch, "{VERBOSITY} is not an object: {}", first.value().kind().alias());
            };
            components::append_to(call.reply, "was");
            components::set(requested)?;
        }
        FEATURE_VERSION => {
            bail!(
                IllegalOperation,
                "{FEATURE_VERSION} is changed by the command setFeatureCompatibilityVersion"
            );
        }
        name if TLS_MODES.iter().any(|(known, _)| *known == name) => set_tls_mode(call, name, first.value())?,
        name => {
            let was = call.server.parameters.set(name, first.value())?;
            was.append_to(call.reply, "was");
            match (name, call.server.parameters.get(name)) {
                (SYNC_DELAY, Some(Setting::Double(seconds))) => {
                    let longest = (seconds > 0.0).then(|| Duration::from_secs_f64(seconds));
                    call.server.database.checkpoint_after(longest);
                }
                (SYNC_EVERY, Some(Setting::Integer(millis))) => {
                    let interval = Duration::from_millis(u64::try_from(millis).unwrap_or(1));
                    call.server.database.sync_every(interval);
                }
                (HISTORY_BYTES, Some(Setting::Long(bytes))) => {
                    call.server.database.set_history_bytes(bytes.unsigned_abs());
                }
                (HISTORY_AGE, Some(Setting::Integer(seconds))) => {
                    call.server.database.set_history_age(Duration::from_secs(seconds.unsigned_abs().into()));
                }
                _ => {}
            }
        }
    }
    Ok(HandlerStatus::Done)
}

/// Returns the word for the current TLS mode.
fn tls_word(call: &Call<'_>, words: [&'static str; 4]) -> &'static str {
    let [off, allow, prefer, require] = words;
    match call.server.settings.tls.as_ref().map(|tls| tls.mode()) {
        None => off,
        Some(TlsMode::Allow) => allow,
        Some(TlsMode::Prefer) => prefer,
        Some(TlsMode::Require) => require,
    }
}

/// Restricts plain connections by one step.
///
/// Errors: BadValue for any other step and for an unknown word.
fn set_tls_mode(call: &mut Call<'_>, name: &str, value: Value<'_>) -> Result<()> {
    let words = TLS_MODES.iter().find(|(known, _)| *known == name).map_or([""; 4], |(_, words)| *words);
    let requested = value.as_str().filter(|requested| words.contains(requested));
    let requested = requested.ok_or_else(|| {
        let shown = value.as_str().unwrap_or(value.kind().alias());
        err!(BadValue, "Invalid value for {name} via setParameter command: {shown}")
    })?;
    let was = tls_word(call, words);
    let tls = call.server.settings.tls.as_ref();
    let next = tls.and_then(|tls| tls.mode().next());
    let at = words.iter().position(|word| *word == was);
    let is_next = at.and_then(|at| words.get(at + 1)) == Some(&requested);
    match (tls, next) {
        (Some(tls), Some(next)) if is_next => tls.set_mode(next),
        _ => {
            bail!(
                BadValue,
                "Illegal state transition for {name}, attempt to change from {was} to {requested}"
            );
        }
    }
    call.reply.append(c"was", was);
    Ok(())
}

/// The row of `getClusterParameter`.
pub(crate) const GET: Row =
    Row::admin("getClusterParameter", get, Requirements::Cluster(Action::GetClusterParameter))
        .help("Returns the values of cluster parameters.")
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
pub(crate) const SET: Row =
    Row::write("setClusterParameter", set, Requirements::Cluster(Action::SetClusterParameter))
        .help("Changes a cluster parameter.")
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
