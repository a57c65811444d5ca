//! `hello` and `isMaster`: role and limits of this server. Each client sends hello first.
//!
//! With topologyVersion and maxAwaitTimeMS the reply waits for a change or the timeout. If the
//! client allows exhaust replies, later replies follow without further requests.

use crate::access::Requirements;
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::users::login;
use crate::process::logging::now_millis;
use crate::protocol::fields::Fields;
use crate::session::TIMEOUT_MINUTES;
use crate::state::replica_set::ReplicaSet;
use base::bson::extended_json::to_relaxed;
use base::bson::{Document, FieldName, MAX_DOCUMENT_SIZE, Value};
use base::{Result, bail, err};
use std::sync::atomic::Ordering;
use std::time::Duration;
use wire::compression::Compressor;
use wire::header::MAX_MESSAGE_SIZE;

/// Maximum number of statements in a write command.
pub(crate) const MAX_WRITE_BATCH_SIZE: i32 = 100_000;

/// Maximum size of the client metadata, in bytes.
const METADATA_MAX: usize = 512;

/// Maximum length of an application name, in bytes.
const APP_NAME_MAX: usize = 128;

/// The row of `hello`.
pub(crate) const HELLO: Row =
    Row::admin("hello", |call| answer(call, "isWritablePrimary"), Requirements::Nothing)
        .help("Describes this server, its role and its limits.")
        .stable_api()
        .without_auth()
        .has_secrets();

/// The row of `isMaster`, the older name of hello.
pub(crate) const IS_MASTER: Row =
    Row::admin("isMaster", |call| answer(call, "ismaster"), Requirements::Nothing)
        .help("The older name of hello.")
        .without_auth()
        .has_secrets();

/// Parsed fields of a hello.
struct HelloRequest<'a> {
    hello_ok: bool,
    client: Option<Document<'a>>,
    compression: Vec<Compressor>,
    mechanisms_of: Option<&'a str>,
    begins_login: Option<Document<'a>>,
    awaits: Option<AwaitParameters>,
    /// True behind a load balancer. Such a client sees a single service instead of servers.
    load_balanced: bool,
}

/// Parameters of a hello that waits for a change.
struct AwaitParameters {
    is_this_process: bool,
    counter: i64,
    at_most: Duration,
}

fn answer(call: &mut Call<'_>, primary: &str) -> Result<HandlerStatus> {
    let hello_request = HelloRequest::read(call)?;
    if let Some(client) = hello_request.client {
        remember_client(call, client)?;
    }
    if let Some(awaits) = &hello_request.awaits
        && let Some(wait) = wait_for_change(call, awaits)?
    {
        return Ok(wait);
    }
    if hello_request.awaits.is_some() && call.exhaust_allowed {
        call.streams = Some(topology_counter(call));
    }
    append_reply(call, &hello_request, primary);
    append_login(call, &hello_request)?;
    Ok(HandlerStatus::Done)
}

impl<'a> HelloRequest<'a> {
    fn read(call: &Call<'a>) -> Result<HelloRequest<'a>> {
        let mut fields = call.fields().after_name();
        let hello_request = HelloRequest {
            hello_ok: fields.flag("helloOk")?.unwrap_or(false),
            client: fields.document("client")?,
            compression: compressors(&mut fields)?,
            mechanisms_of: mechanisms_of(&mut fields)?,
            begins_login: fields.document("speculativeAuthenticate")?,
            awaits: awaits(call, &mut fields)?,
            load_balanced: fields.flag("loadBalanced")?.unwrap_or(false),
        };
        // MongoDB ignores unknown fields only in this command, because newer clients announce
        // features in it.
        drop(fields.rest());
        Ok(hello_request)
    }
}

/// Takes the user whose mechanisms the client requests.
///
/// Errors: TypeMismatch; BadValue for a document, which MongoDB reads as a user name in two fields.
fn mechanisms_of<'a>(fields: &mut Fields<'a>) -> Result<Option<&'a str>> {
    match fields.peek("saslSupportedMechs") {
        Some(Value::Document(_)) => {
            Err(err!(BadValue, "saslSupportedMechs has to be a user's name as a string"))
        }
        _ => fields.not_null("saslSupportedMechs", Fields::string),
    }
}

fn compressors(fields: &mut Fields<'_>) -> Result<Vec<Compressor>> {
    let requested = fields.strings("compression")?.unwrap_or_default();
    let offered = |name: &str| Compressor::OFFERED.into_iter().find(|known| known.name() == name);
    Ok(requested.into_iter().filter_map(offered).collect())
}

fn awaits(call: &Call<'_>, fields: &mut Fields<'_>) -> Result<Option<AwaitParameters>> {
    let version = fields.document("topologyVersion")?;
    let at_most = fields.integer("maxAwaitTimeMS")?;
    let (version, at_most) = match (version, at_most) {
        (None, None) => return Ok(None),
        (Some(version), Some(at_most)) => (version, at_most),
        (Some(_), None) => {
            bail!(31368, "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'");
        }
        (None, Some(_)) => {
            bail!(31368, "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'");
        }
    };
    let millis =
        u64::try_from(at_most).map_err(|_| err!(31373, "maxAwaitTimeMS must be a non-negative integer"))?;
    let mut version = Fields::of_document("hello.topologyVersion", version);
    let process = version.required("processId", Fields::any)?;
    let counter = version.required("counter", Fields::integer)?;
    version.finish()?;
    let this = call.server.topology.process_id;
    Ok(Some(AwaitParameters {
        is_this_process: matches!(process, Value::ObjectId(id) if id == this),
        counter,
        at_most: Duration::from_millis(millis),
    }))
}

/// Stores the client's metadata. A client may send metadata once.
fn remember_client(call: &mut Call<'_>, client: Document<'_>) -> Result<()> {
    if call.progress.waiting_until.is_some() {
        return Ok(());
    }
    let activity = &call.connection.activity;
    if activity.metadata().is_some() {
        bail!(
            ClientMetadataCannotBeMutated,
            "The client metadata document may only be sent in the first hello"
        );
    }
    match client.iter().next() {
        Some(_) => check_client(client)?,
        None => warn_of_empty_metadata(call),
    }
    activity.set_metadata(client);
    log::debug!(
        id = 51800, c = "NETWORK", remote = activity.client.to_string().as_str(),
        client = format!("conn{}", activity.connection_id).as_str(), doc = to_relaxed(client).as_str();
        "client metadata"
    );
    Ok(())
}

/// Logs empty client metadata, once for each server.
///
/// MongoDB refuses empty metadata. MongoDB's Node driver 7 sends it inside Jest, because Jest
/// replaces the class `Map` that the driver expects.
fn warn_of_empty_metadata(call: &Call<'_>) {
    if !call.server.warned_of_empty_metadata.swap(true, Ordering::Relaxed) {
        log::warn!(
            c = "NETWORK";
            "A client sent empty metadata, as MongoDB's Node driver does inside Jest. MongoDB refuses such a client"
        );
    }
}

fn check_client(client: Document<'_>) -> Result<()> {
    if client.bytes().len() > METADATA_MAX {
        bail!(
            ClientMetadataDocumentTooLarge,
            "The client metadata document must be less then or equal to {METADATA_MAX} bytes"
        );
    }
    let inner = |name: &str| client.get(name).and_then(|value| value.as_document());
    let text = |part: &str, name: &str| inner(part)?.get(name)?.as_str();
    if text("application", "name").is_some_and(|name| name.len() > APP_NAME_MAX) {
        bail!(
            ClientMetadataAppNameTooLarge,
            "The 'application.name' field must be less then or equal to {APP_NAME_MAX} bytes"
        );
    }
    for (part, name) in [("driver", "name"), ("driver", "version"), ("os", "type")] {
        if text(part, name).is_none() {
            bail!(
                ClientMetadataMissingField,
                "Missing required field '{part}.{name}' in the client metadata document"
            );
        }
    }
    Ok(())
}

/// Returns the wait, or `None` if the reply must be sent at once.
fn wait_for_change(call: &mut Call<'_>, awaits: &AwaitParameters) -> Result<Option<HandlerStatus>> {
    let now = topology_counter(call);
    let reported = match call.progress.stream {
        Some(stream) => stream.topology_version,
        None if !awaits.is_this_process => return Ok(None),
        None => awaits.counter,
    };
    if reported > now {
        bail!(
            31382,
            "Received a topology version with counter: {reported} which is greater than the server topology version \
             counter: {now}"
        );
    }
    if reported < now {
        return Ok(None);
    }
    let mut change = call.server.topology.changed.listen(now as u64);
    Ok(call.wait(awaits.at_most, move |waker| change.has_happened(waker)))
}

fn topology_counter(call: &Call<'_>) -> i64 {
    call.server.topology.changed.read() as i64
}

fn append_reply(call: &mut Call<'_>, hello_request: &HelloRequest<'_>, primary: &str) {
    let is_primary = call.server.is_primary();
    if hello_request.hello_ok {
        call.reply.append(c"helloOk", true);
    }
    call.server.topology.append_version(call.reply);
    if let Some(set) = call.server.set() {
        append_set(call, set, is_primary);
    }
    call.reply.append(FieldName::trusted(primary), is_primary);
    if call.server.settings.shared {
        // Drivers treat the server as one of several mongos: they balance load over them, pin
        // transactions, and switch after a failure.
        call.reply.append(c"msg", "isdbgrid");
        if hello_request.load_balanced {
            call.connection.is_load_balanced = true;
            // Identifies the server behind the load balancer that serves this connection.
            call.reply.append(c"serviceId", call.server.topology.process_id);
        }
    }
    if call.server.awaits_initiation() {
        call.reply.append(c"secondary", false).append(c"info", "Does not have a valid replica set config");
        call.reply.append(c"isreplicaset", true);
    }
    call.reply
        .append(c"maxBsonObjectSize", MAX_DOCUMENT_SIZE as i32)
        .append(c"maxMessageSizeBytes", MAX_MESSAGE_SIZE as i32)
        .append(c"maxWriteBatchSize", MAX_WRITE_BATCH_SIZE)
        .append(c"localTime", Value::DateTime(now_millis()))
        .append(c"logicalSessionTimeoutMinutes", TIMEOUT_MINUTES)
        .append(c"connectionId", call.connection.activity.connection_id)
        .append(c"minWireVersion", 0)
        .append(c"maxWireVersion", call.server.settings.compatible_with.wire_version())
        .append(c"readOnly", false);
    if !hello_request.compression.is_empty() {
        call.reply.begin_array(c"compression");
        for compressor in &hello_request.compression {
            call.reply.push(compressor.name());
        }
        call.reply.end();
    }
}

/// Appends the login part: mechanisms and the speculative authentication.
fn append_login(call: &mut Call<'_>, hello_request: &HelloRequest<'_>) -> Result<()> {
    if let Some(user) = hello_request.mechanisms_of {
        login::append_mechanisms(call, user)?;
    }
    if let Some(requested) = hello_request.begins_login {
        login::begin_early(call, requested);
    }
    Ok(())
}

/// Appends the set's fields for serverStatus.
pub(crate) fn append_set_status(call: &mut Call<'_>) {
    let is_primary = call.server.is_primary();
    if let Some(set) = call.server.set() {
        append_set(call, set, is_primary);
        call.reply.append(c"isWritablePrimary", is_primary);
    }
}

/// Appends the fields of replica set members.
///
/// This server is the only member. It is the primary, except after a step-down.
fn append_set(call: &mut Call<'_>, set: &ReplicaSet, is_primary: bool) {
    let address = call.server.topology.own_address(call.connection.local);
    // Read first, so that the durable time is not later than the cluster time.
    let durable = call.server.database.durable_time();
    let time = call.server.database.cluster_time();
    let (config, term) = (set.config(), set.term());
    call.reply.begin_array(c"hosts").push(&address).end();
    call.reply.append(c"setName", &set.name).append(c"setVersion", config.version);
    call.reply.append(c"secondary", !is_primary);
    if is_primary {
        call.reply.append(c"primary", &address);
    }
    if !config.tags().is_empty() {
        call.reply.append(c"tags", config.tags());
    }
    call.reply.append(c"me", &address);
    if is_primary {
        call.reply.append(c"electionId", set.election_id());
    }
    call.reply.begin_document(c"lastWrite");
    let names = [("opTime", "lastWriteDate", time), ("majorityOpTime", "majorityWriteDate", durable)];
    for (op_time, date, time) in names {
        call.reply
            .begin_document(FieldName::literal(op_time))
            .append(c"ts", Value::Timestamp(time))
            .append(c"t", term)
            .end();
        call.reply.append(FieldName::literal(date), Value::DateTime((time >> 32) as i64 * 1000));
    }
    call.reply.end();
}
