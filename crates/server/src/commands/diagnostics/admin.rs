//! Commands for operators: log, profiler, feature version, shutdown.

use crate::access::{Action, Requirements, requirements};
use crate::call::{Call, HandlerStatus, Row, finished};
use crate::observe::profiler::{Filter, Setting};
use crate::process::logging;
use crate::state::set_settings::feature_version_update;
use base::bson::Value;
use base::{Error, Result, bail, err};
use database::language::Matcher;
use std::sync::Arc;

/// The row of `getLog`.
pub(crate) const GET_LOG: Row = Row::admin("getLog", get_log, Requirements::Cluster(Action::GetLog))
    .help("Shows the last lines of the log.")
    .admin_only();

fn get_log(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let which = match fields.command_value() {
        Value::String(which) => which,
        other if other.is_nullish() => {
            return Err(Error::missing_field("getLog.getLog"));
        }
        other => return Err(fields.wrong_type("getLog", other.kind(), "string")),
    };
    fields.finish()?;
    let (lines, written) = match which {
        "*" => {
            call.reply.begin_array(c"names").push("global").push("startupWarnings").end();
            return Ok(HandlerStatus::Done);
        }
        "global" => logging::recent(),
        // mongosh prints these warnings when it connects.
        "startupWarnings" => logging::startup_warnings(),
        other => bail!(OperationFailed, "No log named '{other}'"),
    };
    call.reply.append_number(c"totalLinesWritten", written as i64).begin_array(c"log");
    for line in &lines {
        call.reply.push(line);
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}

/// The row of `rotateCertificates`.
pub(crate) const ROTATE_CERTIFICATES: Row =
    Row::admin("rotateCertificates", rotate_certificates, Requirements::Cluster(Action::RotateCertificates))
        .help("Reloads certificates and keys for new connections.")
        .admin_only();

fn rotate_certificates(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let message = fields.string("message")?.unwrap_or_default();
    fields.finish()?;
    let Some(tls) = &call.server.settings.tls else {
        // MongoDB also has nothing to rotate without TLS, and reports success.
        log::info!(c = "NETWORK", message = message; "rotateCertificates: TLS is off, nothing to rotate");
        return Ok(HandlerStatus::Done);
    };
    crate::process::blocking::in_place(|| tls.rotate())
        .map_err(|why| err!(InvalidSSLConfiguration, "{why}"))?;
    log::info!(id = 4988500, c = "COMMAND", message = message; "Certificate rotation completed successfully");
    Ok(HandlerStatus::Done)
}

/// The row of `logRotate`.
pub(crate) const LOG_ROTATE: Row =
    Row::admin("logRotate", log_rotate, Requirements::Cluster(Action::LogRotate))
        .help("Starts a new log file if the log is a file.")
        .admin_only();

fn log_rotate(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    match fields.command_value() {
        Value::String(_) => {}
        value if value.as_number().is_some() || value.as_bool().is_some() => {}
        value => {
            return Err(fields.wrong_type(
                "logRotate",
                value.kind(),
                "[string, bool, long, int, decimal, double']",
            ));
        }
    }
    fields.finish()?;
    let rotated =
        logging::rotate().map_err(|error| err!(FileRenameFailed, "Failed to rotate the log: {error}"))?;
    match rotated {
        Some(old) => {
            log::info!(id = 23166, c = "CONTROL"; "Log rotated; earlier lines are in {}", old.display())
        }
        None => log::info!("logRotate: no log file to rotate"),
    }
    Ok(HandlerStatus::Done)
}

/// The row of `profile`.
pub(crate) const PROFILE: Row = Row::admin("profile", profile, Requirements::By(requirements::profile))
    .help("Sets which operations system.profile and the log contain.");

fn profile(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    // Fractions are truncated.
    let level = fields.command_value().as_number().map(|level| level.to_i64_coerced());
    let threshold = fields.integer("slowms")?;
    let sample_rate = fields.number("sampleRate")?;
    let filter = fields.any("filter")?;
    fields.finish()?;
    let Some(level) =
        level.and_then(|level| i32::try_from(level).ok()).filter(|level| (-1..=2).contains(level))
    else {
        bail!(BadValue, "Profiling level must be between -1 and 2");
    };
    if sample_rate.is_some_and(|rate| !(0.0..=1.0).contains(&rate)) {
        bail!(BadValue, "'sampleRate' must be between 0.0 and 1.0 inclusive");
    }
    if level > 0 && call.server.settings.shared {
        bail!(
            BadValue,
            "Profiling is not permitted where several servers share their data: the 'profile' field should be 0 to \
             change 'slowms', 'sampleRate' or 'filter' settings for logging, or -1 to view current values"
        );
    }
    let database = call.request.database;
    let before = call.server.profiler.setting(database).as_deref().cloned().unwrap_or_default();
    let filter = match filter {
        None => before.filter.clone(),
        Some(Value::String("unset")) => None,
        Some(Value::Document(document)) => {
            let matcher = Matcher::parse_query(document, &finished::context(call.server))?;
            Some(Filter { document: document.to_owned(), matcher: Arc::new(matcher) })
        }
        Some(_) => bail!(BadValue, "Expected an object, or the string 'unset'."),
    };
    let slow = &call.server.profiler.slow;
    call.reply.append(c"was", before.level).append_number(c"slowms", slow.threshold());
    call.reply.append(c"sampleRate", slow.sample_rate());
    if let Some(filter) = &before.filter {
        call.reply.append(c"filter", &filter.document);
        call.reply.append(
            c"note",
            "When a filter expression is set, slowms and sampleRate are not used for profiling and slow-query log lines.",
        );
    }
    if level > 0 {
        let operation = call.operation();
        call.server.database.create_profile(&operation, database, &finished::context(call.server))?;
    }
    slow.set(threshold, sample_rate);
    let level = if level < 0 { before.level } else { level };
    call.server.profiler.set(database, Setting { level, filter });
    Ok(HandlerStatus::Done)
}

/// The row of `setFeatureCompatibilityVersion`.
pub(crate) const SET_FEATURE_COMPATIBILITY_VERSION: Row = Row::admin(
    "setFeatureCompatibilityVersion",
    set_feature_compatibility_version,
    Requirements::Cluster(Action::SetFeatureCompatibilityVersion),
)
.help("Sets the feature compatibility version. Data formats do not depend on it.")
.admin_only()
.takes_write_concern();

fn set_feature_compatibility_version(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields();
    let version = match fields.command_value() {
        Value::String(version) => version,
        other => return Err(fields.wrong_type("setFeatureCompatibilityVersion", other.kind(), "string")),
    };
    let confirmed = fields.flag("confirm")?.unwrap_or(false);
    fields.flag("fromConfigServer")?;
    fields.finish()?;
    if !confirmed {
        bail!(
            7369100,
            "setFeatureCompatibilityVersion needs confirm: true, since a change cannot always be undone"
        );
    }
    let own = call.server.settings.compatible_with;
    own.check_feature_version(version)?;
    if own.feature_versions().last() != Some(&version)
        && let Some(constrained) = call.server.database.constrained_collection()
    {
        bail!(
            CannotDowngrade,
            "Cannot downgrade while a collection has the validation level 'constraint'. First detected collection: \
             {constrained}."
        );
    }
    call.run_inner(feature_version_update(version).view())?;
    call.acknowledge(None)
}

/// The row of `shutdown`.
pub(crate) const SHUTDOWN: Row = Row::admin("shutdown", shutdown, Requirements::Cluster(Action::Shutdown))
    .help("Stops the server.")
    .admin_only();

fn shutdown(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    fields.flag("force")?;
    fields.natural("timeoutSecs")?;
    fields.finish()?;
    log::info!("shutdown requested by {}", call.connection.activity.client);
    call.server.stop();
    Ok(HandlerStatus::Close)
}
