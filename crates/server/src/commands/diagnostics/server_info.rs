//! Small commands about the server and the machine: ping, buildInfo, hostInfo, ….

use crate::access::{Action, Kind, Requirements, requirements};
use crate::auth::role;
use crate::call::{Call, HandlerStatus, Row};
use crate::commands::table;
use crate::process::logging::{self, now_millis};
use crate::protocol::names::UserName;
use crate::state::tls::TlsOptions;
use base::bson::{Builder, FieldName, MAX_DOCUMENT_SIZE, ObjectId, Value};
use base::{CompatibleWith, Result};
use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

/// The row of `ping`.
pub(crate) const PING: Row = Row::admin("ping", ping, Requirements::Nothing)
    .help("Returns ok, to test that the server responds.")
    .stable_api()
    .without_auth();

fn ping(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    Ok(HandlerStatus::Done)
}

/// The row of `buildInfo`.
pub(crate) const BUILD_INFO: Row = Row::admin("buildInfo", build_info, Requirements::Nothing)
    .help("Returns the version and build information.")
    .without_auth_before(CompatibleWith::V8_2);

fn build_info(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let (engine, compatible_with) = (call.server.settings.engine, call.server.settings.compatible_with);
    let reply = &mut call.reply;
    reply.append(c"version", compatible_with.version()).append(c"gitVersion", "unknown");
    reply.begin_array(c"modules").end().append(c"allocator", "system").append(c"javascriptEngine", "none");
    reply.append(c"sysInfo", "deprecated");
    reply.begin_array(c"versionArray");
    for part in compatible_with.version_array() {
        reply.push(part);
    }
    reply.end();
    reply.begin_document(c"openssl").append(c"running", "disabled").append(c"compiled", "disabled").end();
    reply.begin_document(c"buildEnvironment");
    reply.append(c"distarch", std::env::consts::ARCH).append(c"target_os", std::env::consts::OS).end();
    reply.append(c"bits", 64).append(c"debug", cfg!(debug_assertions));
    reply.append(c"maxBsonObjectSize", MAX_DOCUMENT_SIZE as i32);
    reply.begin_array(c"storageEngines").push(engine).end();
    reply.append(c"vellum", env!("CARGO_PKG_VERSION"));
    Ok(HandlerStatus::Done)
}

/// The row of `hostInfo`.
pub(crate) const HOST_INFO: Row = Row::admin("hostInfo", host_info, Requirements::Cluster(Action::HostInfo))
    .help("Returns information about the machine.");

fn host_info(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get()) as i32;
    let memory = memory_megabytes();
    let kernel = read_line("/proc/sys/kernel/osrelease");
    let reply = &mut call.reply;
    reply.begin_document(c"system").append(c"currentTime", Value::DateTime(now_millis()));
    reply.append(c"hostname", &host_name()).append(c"cpuAddrSize", usize::BITS as i32);
    reply.append(c"memSizeMB", memory).append(c"memLimitMB", memory).append(c"numCores", cores);
    reply.append(c"numCoresAvailableToProcess", cores);
    let (physical, sockets) = physical_cores(&fs::read_to_string("/proc/cpuinfo").unwrap_or_default());
    reply.append(c"numPhysicalCores", physical.unwrap_or(cores)).append(c"numCpuSockets", sockets);
    let nodes = numa_nodes();
    reply.append(c"cpuArch", std::env::consts::ARCH).append(c"numaEnabled", nodes > 1);
    reply.append(c"numNumaNodes", nodes).end();
    reply.begin_document(c"os").append(c"type", os_type()).append(c"name", &os_name());
    reply.append(c"version", &format!("Kernel {kernel}")).end();
    reply.begin_document(c"extra").append(c"versionString", &read_line("/proc/version"));
    reply.append(c"kernelVersion", &kernel);
    if let Some((size, count)) = pages() {
        reply.append(c"pageSize", size).append_number(c"numPages", count);
    }
    reply.append_optional(c"maxOpenFiles", open_files_max()).end();
    Ok(HandlerStatus::Done)
}

fn os_type() -> &'static str {
    match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Darwin",
        "windows" => "Windows",
        other => other,
    }
}

/// Returns the first line of a file, empty if the file does not exist.
fn read_line(path: &str) -> String {
    fs::read_to_string(path).ok().and_then(|text| text.lines().next().map(str::to_string)).unwrap_or_default()
}

/// Returns the host name.
pub(crate) fn host_name() -> String {
    let name = read_line("/proc/sys/kernel/hostname");
    if name.is_empty() { "localhost".to_string() } else { name }
}

fn os_name() -> String {
    let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let pretty = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    pretty.map_or_else(|| os_type().to_string(), |name| name.trim_matches('"').to_string())
}

fn memory_megabytes() -> i32 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kilobytes = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0);
    i32::try_from(kilobytes / 1024).unwrap_or(i32::MAX)
}

/// Counts cores and sockets in `/proc/cpuinfo`. Virtual machines may list no cores.
fn physical_cores(text: &str) -> (Option<i32>, i32) {
    let (mut cores, mut sockets) = (BTreeSet::new(), BTreeSet::new());
    let mut socket = "";
    for (name, value) in text.lines().filter_map(|line| line.split_once(':')) {
        match name.trim() {
            "physical id" => {
                socket = value.trim();
                sockets.insert(socket);
            }
            "core id" => _ = cores.insert((socket, value.trim())),
            _ => {}
        }
    }
    ((!cores.is_empty()).then_some(cores.len() as i32), sockets.len().max(1) as i32)
}

/// Returns the number of NUMA nodes.
fn numa_nodes() -> i32 {
    let is_node = |name: &str| name.strip_prefix("node").is_some_and(|rest| rest.parse::<u32>().is_ok());
    let entries = fs::read_dir("/sys/devices/system/node").into_iter().flatten().flatten();
    let nodes = entries.filter(|entry| entry.file_name().to_str().is_some_and(is_node)).count();
    nodes.max(1) as i32
}

/// Returns the size of a memory page in bytes and the number of pages.
#[cfg(unix)]
fn pages() -> Option<(i64, i64)> {
    let size = i64::try_from(rustix::param::page_size()).ok()?;
    Some((size, i64::from(memory_megabytes()) * 1024 * 1024 / size.max(1)))
}

#[cfg(not(unix))]
fn pages() -> Option<(i64, i64)> {
    None
}

/// Returns the limit of open files of the process.
#[cfg(unix)]
fn open_files_max() -> Option<i32> {
    let (soft, _) = nix::sys::resource::getrlimit(nix::sys::resource::Resource::RLIMIT_NOFILE).ok()?;
    Some(i32::try_from(soft).unwrap_or(i32::MAX))
}

#[cfg(not(unix))]
fn open_files_max() -> Option<i32> {
    None
}

/// The row of `getCmdLineOpts`.
pub(crate) const GET_CMD_LINE_OPTS: Row =
    Row::admin("getCmdLineOpts", get_cmd_line_opts, Requirements::Cluster(Action::GetCmdLineOpts))
        .help("Returns the options of the server's start.")
        .admin_only();

fn get_cmd_line_opts(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    let settings = &call.server.settings;
    call.reply.begin_array(c"argv");
    for argument in &settings.arguments {
        call.reply.push(argument);
    }
    let reply = &mut call.reply;
    reply.end().begin_document(c"parsed").begin_document(c"net");
    reply.append(c"bindIp", &settings.bind.to_string());
    reply.append(c"port", i32::from(call.connection.local.port()));
    if let Some(tls) = &settings.tls {
        append_tls(reply, tls.options());
    }
    reply.end();
    if let Some(name) = &settings.replica_set {
        reply.begin_document(c"replication").append(c"replSet", name).end();
    }
    if call.server.auth.enabled() {
        reply.begin_document(c"security").append(c"authorization", "enabled").end();
    }
    reply.begin_document(c"storage").append_optional(c"dbPath", shown(settings.data.as_ref()).as_deref());
    reply.append(c"engine", settings.engine).end();
    if let Some(path) = shown(logging::file().as_ref()) {
        reply.begin_document(c"systemLog").append(c"destination", "file").append(c"path", &path).end();
    }
    reply.end();
    Ok(HandlerStatus::Done)
}

/// Appends the options of TLS under MongoDB's names, without the password of the key.
fn append_tls(reply: &mut Builder, options: &TlsOptions) {
    reply.begin_document(c"tls").append(c"mode", options.mode.name());
    reply.append_optional(c"certificateKeyFile", shown(Some(&options.certificate_key_file)).as_deref());
    reply.append_optional(c"CAFile", shown(options.ca_file.as_ref()).as_deref());
    reply.append_optional(c"CRLFile", shown(options.crl_file.as_ref()).as_deref());
    let without = options.without_certificates.then_some(true);
    reply.append_optional(c"allowConnectionsWithoutCertificates", without);
    let disabled = match (options.tls12, options.tls13) {
        (true, true) => None,
        (false, _) => Some("TLS1_2"),
        (true, false) => Some("TLS1_3"),
    };
    reply.append_optional(c"disabledProtocols", disabled).end();
}

/// Returns a path as text.
fn shown(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

/// The row of `connectionStatus`.
pub(crate) const CONNECTION_STATUS: Row =
    Row::admin("connectionStatus", connection_status, Requirements::Nothing)
        .help("Returns the users and roles of this connection.")
        .without_auth();

/// Returns the UUID of a connection: the id of the process and the number of the connection, marked as version 4.
fn connection_uuid(process: ObjectId, connection: i32) -> [u8; 16] {
    let mut uuid = [0; 16];
    let parts = process.0.into_iter().chain(connection.to_be_bytes());
    uuid.iter_mut().zip(parts).for_each(|(to, from)| *to = from);
    uuid[6] = (uuid[6] & 0x0f) | 0x40;
    uuid[8] = (uuid[8] & 0x3f) | 0x80;
    uuid
}

fn connection_status(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let mut fields = call.fields().after_name();
    let privileges = fields.flag("showPrivileges")?.unwrap_or(false);
    fields.finish()?;
    let identity = call.connection.identity.clone();
    let reply = &mut call.reply;
    reply.begin_document(c"authInfo").begin_array(c"authenticatedUsers");
    if let Some(identity) = &identity {
        let UserName { name, db } = &identity.user;
        reply.push_document().append(c"user", name).append(c"db", db).end();
    }
    reply.end().begin_array(c"authenticatedUserRoles");
    for role in identity.iter().flat_map(|identity| identity.privileges.roles()) {
        reply.push_document().append(c"role", &role.role).append(c"db", &role.db).end();
    }
    reply.end();
    if privileges {
        let list = identity.as_ref().map_or(&[][..], |identity| identity.privileges.list());
        role::append_privileges(reply, "authenticatedUserPrivileges", list);
    }
    reply.end();
    let uuid = connection_uuid(call.server.topology.process_id, call.connection.activity.connection_id);
    call.reply.append(c"uuid", Value::Binary { subtype: 4, bytes: &uuid });
    Ok(HandlerStatus::Done)
}

/// The row of `whatsmyuri`.
pub(crate) const WHATS_MY_URI: Row = Row::admin("whatsmyuri", whats_my_uri, Requirements::Nothing)
    .help("Returns the client's address.")
    .without_auth();

fn whats_my_uri(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let fields = call.fields().after_name();
    fields.ignore_rest();
    call.reply.append(c"you", &call.connection.activity.client.to_string());
    Ok(HandlerStatus::Done)
}

/// The row of `features`.
pub(crate) const FEATURES: Row = Row::admin("features", features, Requirements::By(requirements::features))
    .help("Returns the features of this server.");

fn features(call: &mut Call<'_>) -> Result<HandlerStatus> {
    call.fields().after_name().finish()?;
    call.reply.begin_document(c"oidMachine").end();
    Ok(HandlerStatus::Done)
}

/// The row of `listCommands`.
pub(crate) const LIST_COMMANDS: Row = Row::admin("listCommands", list_commands, Requirements::Nothing)
    .help("Lists the commands.")
    .without_auth();

fn list_commands(call: &mut Call<'_>) -> Result<HandlerStatus> {
    let fields = call.fields().after_name();
    fields.ignore_rest();
    call.reply.begin_document(c"commands");
    for command in table::commands() {
        call.reply.begin_document(FieldName::literal(command.name)).append(c"help", command.help);
        let version = call.server.settings.compatible_with;
        call.reply.append(c"requiresAuth", !command.runs_without_auth(version));
        call.reply
            .append(c"secondaryOk", command.kind != Kind::Write)
            .append(c"adminOnly", command.admin_only);
        call.reply.begin_array(c"apiVersions");
        if command.stable_api {
            call.reply.push("1");
        }
        call.reply.end().end();
    }
    call.reply.end();
    Ok(HandlerStatus::Done)
}
