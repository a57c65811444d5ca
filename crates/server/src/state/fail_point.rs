//! Fail points for the test suites of drivers.
//!
//! `failCommand` makes commands fail, hang or lose their connection. `maxTimeAlwaysTimeOut` expires
//! every time limit. `onPrimaryTransactionalWrite` breaks the connection around a retryable write.
//! `failGetMoreAfterCursorCheckout` fails a getMore that has its cursor.
//!
//! Fail points require test commands. By default these are allowed only if the server listens on
//! the loopback interface alone.

use base::bson::{Document, DocumentBuf, Value};
use base::random::Random;
use base::{Error, ErrorCode, Result, bail, err};
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::protocol::fields::Fields;

/// Names of the fail points, by number.
const NAMES: [&str; 4] =
    ["failCommand", "failGetMoreAfterCursorCheckout", "maxTimeAlwaysTimeOut", "onPrimaryTransactionalWrite"];
const FAIL_COMMAND: usize = 0;
const FAIL_GET_MORE: usize = 1;
const TRANSACTIONAL_WRITE: usize = 3;

/// Commands without fail points, so that a test can always clean up.
const NEVER_FAILING: [&str; 2] = ["configureFailPoint", "endSessions"];

/// Condition for firing.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Off,
    AlwaysOn,
    /// Fires this many times.
    Times(i64),
    /// Fires always, after this many skipped times.
    Skip(i64),
    /// Fires with this probability.
    Sometimes(f64),
}

/// A fail point: its mode, its action and its number of hits.
struct FailPoint {
    mode: Mode,
    selection: Selection,
    failure: Failure,
    entered: i64,
}

/// The commands and clients of a fail point. `None` selects all clients.
#[derive(Default)]
struct Selection {
    commands: Vec<String>,
    all_commands: bool,
    app_name: Option<String>,
    namespace: Option<String>,
    thread_name: Option<String>,
}

/// All fail points.
pub(crate) struct FailPoints {
    /// True if clients may set fail points.
    allowed: bool,
    /// True if any fail point is on. Commands need no lock while all are off.
    active: AtomicBool,
    points: Mutex<[FailPoint; NAMES.len()]>,
    random: Random,
}

/// A command that is checked for fail points.
pub(crate) struct Target<'a> {
    /// The client's name for the command and its canonical name.
    pub(crate) names: [&'a str; 2],
    /// The client's application name.
    pub(crate) app_name: &'a str,
    /// Number of the connection, which names MongoDB's threads.
    pub(crate) connection_id: i32,
    /// `database.collection`.
    pub(crate) namespace: String,
    /// True if the command has maxTimeMS.
    pub(crate) has_max_time: bool,
}

/// Effect of a fail point on a command.
#[derive(Clone, Debug, Default)]
pub(crate) struct Failure {
    /// First wait this long.
    pub(crate) delay: Option<Duration>,
    /// Close the connection without a reply.
    pub(crate) close: bool,
    /// Run the command, then close the connection without a reply.
    pub(crate) close_after: bool,
    /// Fail with this error.
    pub(crate) error: Option<Error>,
    /// Error labels that replace the labels of the code.
    pub(crate) labels: Option<Vec<String>>,
    /// Run the command and append this writeConcernError.
    pub(crate) write_concern_error: Option<DocumentBuf>,
}

impl FailPoints {
    /// Creates fail points that are all off. `seed` starts the random numbers of probabilities.
    pub(crate) fn new(allowed: bool, seed: u64) -> FailPoints {
        let off = || FailPoint {
            mode: Mode::Off,
            selection: Selection::default(),
            failure: Failure::default(),
            entered: 0,
        };
        FailPoints {
            allowed,
            active: AtomicBool::new(false),
            points: Mutex::new([off(), off(), off(), off()]),
            random: Random::new(seed),
        }
    }

    /// Returns true if clients may set fail points.
    pub(crate) fn allowed(&self) -> bool {
        self.allowed
    }

    /// Sets a fail point. Returns its number of hits so far.
    ///
    /// Errors: CommandNotFound if fail points are not allowed; FailPointSetFailed for an unknown
    /// name; invalid `mode` or `data`.
    pub(crate) fn configure(&self, name: &str, mode: Value<'_>, data: Document<'_>) -> Result<i64> {
        let at = NAMES
            .iter()
            .position(|known| *known == name)
            .ok_or_else(|| err!(FailPointSetFailed, "{name} not found"))?;
        let mode = parse_mode(mode)?;
        let mut fields = Fields::of_document("configureFailPoint.data", data);
        let (selection, failure) = match at {
            FAIL_COMMAND => parse_fail_command(&mut fields)?,
            FAIL_GET_MORE => parse_fail_get_more(&mut fields)?,
            TRANSACTIONAL_WRITE => parse_transactional_write(&mut fields)?,
            _ => (Selection::default(), Failure::of(err!(MaxTimeMSExpired, "operation exceeded time limit"))),
        };
        fields.finish()?;
        let mut points = self.points.lock();
        let Some(point) = points.get_mut(at) else { return Ok(0) };
        let entered = point.entered;
        *point = FailPoint { mode, selection, failure, entered };
        let active = points.iter().any(|point| point.mode != Mode::Off);
        self.active.store(active, Ordering::Release);
        Ok(entered)
    }

    /// Returns true if any fail point is on.
    pub(crate) fn active(&self) -> bool {
        self.active.load(Ordering::Acquire)
    }

    /// Returns the effect on a command; `None` without an effect.
    pub(crate) fn check(&self, target: &Target<'_>) -> Option<Failure> {
        if !self.active() || target.names.iter().any(|name| NEVER_FAILING.contains(name)) {
            return None;
        }
        let [fail_command, _, max_time, _] = &mut *self.points.lock();
        let selection = &fail_command.selection;
        if selection.has_command(target) && selection.has_client(target) && fail_command.fires(&self.random) {
            return Some(fail_command.failure.clone());
        }
        (target.has_max_time && max_time.fires(&self.random)).then(|| max_time.failure.clone())
    }

    /// Returns the effect on a retryable write at its turn. `statements` counts statements that
    /// have not run before.
    pub(crate) fn check_retryable_write(&self, statements: i64) -> Option<Failure> {
        if !self.active() || statements == 0 {
            return None;
        }
        let [.., write] = &mut *self.points.lock();
        write.fires_within(statements, &self.random).then(|| write.failure.clone())
    }
}

impl FailPoints {
    /// Expires the time limit of a command whose limit comes from elsewhere, such as getMore.
    ///
    /// Errors: MaxTimeMSExpired.
    pub(crate) fn check_max_time(&self) -> Result<()> {
        if !self.active() {
            return Ok(());
        }
        let [_, _, max_time, _] = &mut *self.points.lock();
        max_time.fail(&self.random)
    }

    /// Fails a getMore that has its cursor.
    ///
    /// Errors: the fail point's error.
    pub(crate) fn check_get_more(&self, target: &Target<'_>) -> Result<()> {
        let [_, get_more, ..] = &mut *self.points.lock();
        if get_more.selection.has_client(target) { get_more.fail(&self.random) } else { Ok(()) }
    }
}

impl FailPoint {
    /// Returns true if the fail point fires this time.
    fn fires(&mut self, random: &Random) -> bool {
        self.fires_within(1, random)
    }

    /// Returns its error if the fail point fires this time.
    fn fail(&mut self, random: &Random) -> Result<()> {
        let fires = self.fires(random);
        self.failure.error.clone().filter(|_| fires).map_or(Ok(()), Err)
    }

    /// Returns true if the fail point fires at one of these statements. `skip` counts each
    /// statement. The fail point then fires before the first of them.
    fn fires_within(&mut self, statements: i64, random: &Random) -> bool {
        let fires = match &mut self.mode {
            Mode::Off => false,
            Mode::AlwaysOn => true,
            Mode::Skip(left) => {
                let fires = *left < statements;
                *left = (*left - statements).max(0);
                fires
            }
            Mode::Times(left) => {
                *left -= 1;
                if *left <= 0 {
                    self.mode = Mode::Off;
                }
                true
            }
            Mode::Sometimes(probability) => {
                let drawn = random.draw() >> 11;
                (drawn as f64) < *probability * (1u64 << 53) as f64
            }
        };
        self.entered += i64::from(fires);
        fires
    }
}

fn parse_mode(mode: Value<'_>) -> Result<Mode> {
    let number = |name: &str, value: Value<'_>| {
        value
            .as_number()
            .map(|number| number.to_i64_clamped())
            .filter(|number| *number >= 0)
            .ok_or_else(|| err!(BadValue, "'{name}' option to 'mode' must be a non-negative number"))
    };
    match mode {
        Value::String("off") => Ok(Mode::Off),
        Value::String("alwaysOn") => Ok(Mode::AlwaysOn),
        Value::String(other) => Err(err!(BadValue, "unknown mode: {other}")),
        Value::Document(document) => match document.first().map(|field| (field.name(), field.value())) {
            Some(("times", value)) => Ok(match number("times", value)? {
                0 => Mode::Off,
                times => Mode::Times(times),
            }),
            Some(("skip", value)) => Ok(Mode::Skip(number("skip", value)?)),
            Some(("activationProbability", value)) => match value.as_number().map(|number| number.to_f64()) {
                Some(probability) if (0.0..=1.0).contains(&probability) => Ok(Mode::Sometimes(probability)),
                Some(probability) => Err(err!(
                    BadValue,
                    "activationProbability must be between 0.0 and 1.0; found {probability}"
                )),
                None => Err(err!(TypeMismatch, "the 'mode.activationProbability' field must be a double")),
            },
            _ => Err(err!(
                BadValue,
                "'mode' must be one of 'off', 'alwaysOn', 'times', 'skip' and 'activationProbability'"
            )),
        },
        _ => Err(err!(TypeMismatch, "'mode' must be a string or JSON object")),
    }
}

fn parse_fail_command(fields: &mut Fields<'_>) -> Result<(Selection, Failure)> {
    let commands = fields.strings("failCommands")?.unwrap_or_default();
    let all_commands = fields.boolean("failAllCommands")?.unwrap_or(false);
    let code = fields.integer("errorCode")?;
    // Tests of drivers send a text. MongoDB ignores it.
    fields.any("errmsg")?;
    let info = fields.document("errorExtraInfo")?;
    let labels = fields.strings("errorLabels")?;
    let close = fields.boolean("closeConnection")?.unwrap_or(false);
    let blocks = fields.boolean("blockConnection")?.unwrap_or(false);
    let delay = fields.natural("blockTimeMS")?.map(Duration::from_millis);
    let write_concern_error = fields.document("writeConcernError")?.map(|error| error.to_owned());
    let commands = commands.into_iter().map(str::to_string).collect();
    let selection = Selection { commands, all_commands, ..clients(fields)? };
    fields.finish()?;
    if blocks && delay.is_none() {
        bail!(InvalidOptions, "must specify 'blockTimeMS' when 'blockConnection' is true");
    }
    let error = code.and_then(error_code).map(|code| {
        let error = Error::new(code, "Failing command via 'failCommand' failpoint");
        info.map_or(error.clone(), |info| error.with_info(info.to_owned()))
    });
    let labels = labels.map(|labels| labels.into_iter().map(str::to_string).collect());
    let delay = delay.filter(|_| blocks);
    Ok((selection, Failure { delay, close, close_after: false, error, labels, write_concern_error }))
}

fn parse_fail_get_more(fields: &mut Fields<'_>) -> Result<(Selection, Failure)> {
    let code = fields.integer("errorCode")?.and_then(error_code).unwrap_or(ErrorCode::InternalError);
    // MongoDB accepts the fields of failCommand here and ignores them.
    fields.strings("failCommands")?;
    fields.refuse_unless_default("closeConnection")?;
    fields.refuse_unless_default("blockConnection")?;
    let error = Error::new(code, "Hit the 'failGetMoreAfterCursorCheckout' failpoint");
    Ok((clients(fields)?, Failure::of(error)))
}

fn parse_transactional_write(fields: &mut Fields<'_>) -> Result<(Selection, Failure)> {
    let closes = fields.boolean("closeConnection")?.unwrap_or(true);
    let code = fields.integer("failBeforeCommitExceptionCode")?.and_then(error_code);
    let message = "Failing write for tests via 'onPrimaryTransactionalWrite' failpoint";
    let error = code.map(|code| Error::new(code, message));
    let close = closes && error.is_some();
    Ok((Selection::default(), Failure { close, close_after: closes, error, ..Failure::default() }))
}

/// Takes the fields that select clients.
fn clients(fields: &mut Fields<'_>) -> Result<Selection> {
    let mut text = |name: &str| Ok::<_, Error>(fields.string(name)?.map(str::to_string));
    let (app_name, namespace, thread_name) = (text("appName")?, text("namespace")?, text("threadName")?);
    // These fields select the server's own requests. Vellum has none.
    fields.boolean("failInternalCommands")?;
    fields.boolean("failLocalClients")?;
    Ok(Selection { app_name, namespace, thread_name, ..Selection::default() })
}

fn error_code(number: i64) -> Option<ErrorCode> {
    i32::try_from(number).ok().map(ErrorCode::from_number)
}

impl Failure {
    fn of(error: Error) -> Failure {
        Failure { error: Some(error), ..Failure::default() }
    }
}

impl Selection {
    fn has_command(&self, target: &Target<'_>) -> bool {
        self.all_commands || self.commands.iter().any(|name| target.names.contains(&name.as_str()))
    }

    fn has_client(&self, target: &Target<'_>) -> bool {
        self.app_name.as_ref().is_none_or(|name| name == target.app_name)
            && self.namespace.as_ref().is_none_or(|name| *name == target.namespace)
            && self.thread_name.as_ref().is_none_or(|name| *name == format!("conn{}", target.connection_id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::Builder;

    fn target(name: &'static str) -> Target<'static> {
        Target {
            names: [name, name],
            app_name: "app",
            connection_id: 7,
            namespace: "d.c".to_string(),
            has_max_time: false,
        }
    }

    fn times(count: i32) -> DocumentBuf {
        let mut mode = Builder::new();
        mode.append(c"times", count);
        mode.finish()
    }

    #[test]
    fn a_command_fails_the_requested_number_of_times() {
        let points = FailPoints::new(true, 1);
        let mut data = Builder::new();
        data.begin_array(c"failCommands").push("find").end();
        data.append(c"errorCode", 10107).append(c"appName", "app");
        let data = data.finish();
        points.configure("failCommand", (&times(2)).into(), data.view()).unwrap();
        assert!(points.check(&target("insert")).is_none());
        for _ in 0..2 {
            let failure = points.check(&target("find")).unwrap();
            assert_eq!(failure.error.unwrap().code(), ErrorCode::NotWritablePrimary);
        }
        assert!(points.check(&target("find")).is_none());
        let count = points.configure("failCommand", "off".into(), Document::EMPTY).unwrap();
        assert_eq!(count, 2);
        assert!(!points.active());
    }

    #[test]
    fn fail_points_select_clients_and_counts() {
        let points = FailPoints::new(true, 1);
        let fails = |thread: &str, probability: f64| {
            let (mut mode, mut data) = (Builder::new(), Builder::new());
            mode.append(c"activationProbability", probability);
            data.append(c"errorCode", 6).append(c"threadName", thread);
            points
                .configure("failGetMoreAfterCursorCheckout", (&mode.finish()).into(), data.finish().view())
                .unwrap();
            let failed = (0..1000).filter(|_| points.check_get_more(&target("getMore")).is_err()).count();
            assert!(points.check(&target("getMore")).is_none());
            failed
        };
        assert_eq!((fails("conn7", 1.0), fails("conn7", 0.0), fails("conn8", 1.0)), (1000, 0, 0));
        assert!((200..800).contains(&fails("conn7", 0.5)));
    }

    #[test]
    fn unknown_fields_of_fail_points_are_refused() {
        let points = FailPoints::new(true, 1);
        let mut data = Builder::new();
        data.append(c"nonsense", 1);
        let data = data.finish();
        let configure = |name, mode: Value<'_>| points.configure(name, mode, data.view());
        assert_eq!(configure("failCommand", "alwaysOn".into()).unwrap_err().code().number(), 40415);
        assert_eq!(configure("other", "alwaysOn".into()).unwrap_err().code().number(), 266);
        assert_eq!(configure("failCommand", "sometimes".into()).unwrap_err().code().number(), 2);
    }
}
