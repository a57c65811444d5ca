//! `getParameter` and `setParameter`.

use crate::access::{Action, Needs};
use crate::call::{Answer, Call};
use crate::command::{Command, Kind};
use crate::parameters::Setting;
use base::bson::{Builder, Value};
use base::{Result, err};

/// The version whose features are on, as featureCompatibilityVersion.
pub(crate) const FEATURE_VERSION: &str = "8.0";

/// The row of `getParameter`.
pub(crate) const GET_PARAMETER: Command = Command::new(
    "getParameter",
    Kind::Admin,
    "Tells the value of server parameters.",
    get_parameter,
    Needs::Cluster(Action::GetParameter),
)
.admin_only();

fn get_parameter(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    let (all, details) = match fields.command_value() {
        Value::String("*") => (true, false),
        Value::Document(options) => {
            let mut options = crate::fields::Fields::of_document("getParameter", options);
            let details = options.flag("showDetails")?.unwrap_or(false);
            let all = options.flag("allParameters")?.unwrap_or(false);
            options.finish()?;
            (all, details)
        }
        _ => (false, false),
    };
    let wanted: Vec<&str> = fields.rest().iter().map(|element| element.name()).collect();
    let parameters = all_parameters(call);
    let before = call.reply.len();
    for (name, value, changeable) in &parameters {
        if all || wanted.contains(name) {
            append(call.reply, name, value, details.then_some(*changeable));
        }
    }
    if call.reply.len() == before {
        return Err(err!(InvalidOptions, "no option found to get"));
    }
    Ok(Answer::Done)
}

/// The value of a parameter, also of those that only this command knows.
enum Shown {
    Setting(Setting),
    Version,
    Mechanisms(Vec<String>),
}

/// Every parameter, its value, and whether it can be changed at run time.
fn all_parameters(call: &Call<'_>) -> Vec<(&'static str, Shown, bool)> {
    let bypass = Setting::Boolean(call.server.settings.localhost_exception);
    let test_commands = Setting::Boolean(call.server.fail_points.allowed());
    let mut parameters = vec![
        ("authenticationMechanisms", Shown::Mechanisms(call.server.auth.mechanisms().to_vec()), false),
        ("enableLocalhostAuthBypass", Shown::Setting(bypass), false),
        ("enableTestCommands", Shown::Setting(test_commands), false),
        ("featureCompatibilityVersion", Shown::Version, false),
    ];
    let held = call.server.parameters.all();
    parameters
        .extend(held.into_iter().map(|(name, value, changeable)| (name, Shown::Setting(value), changeable)));
    parameters.sort_by_key(|parameter| parameter.0);
    parameters
}

fn append(reply: &mut Builder, name: &str, value: &Shown, details: Option<bool>) {
    let Some(changeable) = details else { return append_value(reply, name, value) };
    reply.begin_document(name);
    append_value(reply, "value", value);
    reply.append("settableAtRuntime", changeable).append("settableAtStartup", false).end();
}

fn append_value(reply: &mut Builder, name: &str, value: &Shown) {
    match value {
        Shown::Setting(setting) => setting.append_to(reply, name),
        Shown::Version => {
            reply.begin_document(name).append("version", FEATURE_VERSION).end();
        }
        Shown::Mechanisms(mechanisms) => {
            reply.begin_array(name);
            for mechanism in mechanisms {
                reply.push(mechanism);
            }
            reply.end();
        }
    }
}

/// The row of `setParameter`.
pub(crate) const SET_PARAMETER: Command = Command::new(
    "setParameter",
    Kind::Admin,
    "Changes a server parameter.",
    set_parameter,
    Needs::Cluster(Action::SetParameter),
)
.admin_only();

fn set_parameter(call: &mut Call<'_>) -> Result<Answer> {
    let mut fields = call.fields();
    fields.command_value();
    let wanted = fields.rest();
    let first = wanted
        .first()
        .ok_or_else(|| err!(InvalidOptions, "no option found to set, use help:true to see options "))?;
    if let Some(second) = wanted.get(1) {
        return Err(err!(
            InvalidOptions,
            "setParameter takes one parameter at a time, also got '{}'",
            second.name()
        ));
    }
    let was = call.server.parameters.set(first.name(), first.value())?;
    was.append_to(call.reply, "was");
    Ok(Answer::Done)
}
