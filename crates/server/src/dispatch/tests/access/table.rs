//! Each command with each built-in role: the table in docs/security.md, with a test of each cell.

use super::samples::{SAMPLES, held};
use super::{Client, guarded, guarded_by, parse, system};
use crate::access::builtin::{BUILTIN, Builtin};
use crate::access::requirements::RequiredPrivilege;
use crate::access::resource::OwnedResource;
use crate::auth;
use crate::commands::table;
use crate::server::Server;
use crate::state::settings::Settings;
use base::CompatibleWith;
use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;
use wire::request::{Request, Sequences};

const UNAUTHORIZED: i64 = 13;

/// Returns the command of a sample.
fn command_of(name: &str) -> &str {
    name.split(' ').next().unwrap_or_default()
}

/// Returns a server with data in database `d` for the samples.
fn furnished() -> Arc<Server> {
    let server = guarded();
    for setup in [
        r#"{insert: "c", documents: [{_id: 1, a: 1}, {_id: 2, a: 2}], $db: "d"}"#,
        r#"{createIndexes: "c", indexes: [{key: {a: 1}, name: "a_1"}], $db: "d"}"#,
        r#"{insert: "o", documents: [{_id: 1, a: 1}], $db: "d"}"#,
        r#"{createRole: "made", privileges: [], roles: ["read"], $db: "d"}"#,
        r#"{insert: "system.users", documents: [{_id: "d.u", user: "u", db: "d", credentials: {}, roles: []}],
            $db: "admin"}"#,
        r#"{snapshotDatabase: "d", name: "s", $db: "admin"}"#,
    ] {
        system(&server, setup);
    }
    server
}

/// Returns true if the connection may run a sample, with the needed privileges.
fn declared(client: &Client, sample: &str) -> (bool, Vec<RequiredPrivilege>) {
    let sample = parse(sample);
    let request = Request::new(sample.view(), Sequences::default()).unwrap();
    let mut authorizer =
        auth::authorizer(&client.server.auth, &client.server.activities, &client.state, &request).unwrap();
    authorizer.record = Some(Vec::new());
    let allowed = authorizer.check(&table::find(request.name).unwrap().requirements).is_ok();
    (allowed, authorizer.record.unwrap_or_default())
}

#[test]
fn every_command_has_a_sample() {
    for command in table::commands() {
        let is_login = command.name.starts_with("sasl") || command.name == "logout";
        assert!(
            is_login || SAMPLES.iter().any(|(name, _)| command_of(name) == command.name),
            "{}",
            command.name
        );
    }
    for (name, sample) in SAMPLES {
        let of = parse(sample);
        assert_eq!(
            of.view().first().map(|first| first.name().to_string()).as_deref(),
            Some(command_of(name))
        );
    }
}

/// Returns the content of the databases and the server state that samples could change.
fn state(server: &Server) -> String {
    let mut state = String::new();
    for name in ["admin", "d", "e", "local", "config"] {
        let hash = match name {
            "local" => String::new(),
            name => system(server, &format!(r#"{{dbHash: 1, $db: "{name}"}}"#))
                .view()
                .get("md5")
                .unwrap()
                .to_string(),
        };
        let list = system(server, &format!(r#"{{listCollections: 1, $db: "{name}"}}"#));
        let list = list.view().get("cursor").unwrap().to_string();
        let _ = writeln!(state, "{name} {hash} {list}");
    }
    for ask in [
        r#"{listIndexes: "c", $db: "d"}"#,
        r#"{listSnapshots: 1, $db: "admin"}"#,
        r#"{planCacheListFilters: "c", $db: "d"}"#,
        r#"{getParameter: "*", $db: "admin"}"#,
    ] {
        let _ = writeln!(state, "{}", system(server, ask).view());
    }
    // The reply's times differ.
    state.lines().map(|line| line.split("$clusterTime").next().unwrap_or_default()).collect()
}

#[test]
fn unauthorized_commands_are_refused_and_authorized_commands_run() {
    let server = furnished();
    for role in BUILTIN.iter().map(held) {
        let mut client = Client::user(&server, "u", &[&role]);
        let before = state(&server);
        let mut allowed = Vec::new();
        for (name, sample) in SAMPLES {
            if declared(&client, sample).0 {
                allowed.push((name, sample));
                continue;
            }
            let (code, message) = client.code(sample);
            assert_eq!(code, UNAUTHORIZED, "{name} as {role}: {message}");
            let database = if sample.contains(r#"$db: "admin""#) { "admin" } else { "d" };
            let expected =
                format!("not authorized on {database} to execute command {{ {}: ", command_of(name));
            assert!(message.starts_with(&expected), "{name} as {role}: {message}");
        }
        assert_eq!(state(&server), before, "{role}");
        let server = furnished();
        for (name, sample) in allowed {
            let (code, message) = Client::user(&server, "u", &[&role]).code(sample);
            assert!(code != UNAUTHORIZED, "{name} as {role}: {message}");
        }
    }
}

#[test]
fn anonymous_clients_run_only_few_commands() {
    let server = furnished();
    let before = state(&server);
    let mut free = Vec::new();
    for (name, sample) in SAMPLES {
        match Client::anonymous(&server).code(sample) {
            (UNAUTHORIZED, message) => {
                assert_eq!(message, format!("Command {} requires authentication", command_of(name)));
            }
            _ => free.push(*name),
        }
    }
    assert_eq!(
        free,
        ["authenticate", "connectionStatus", "hello", "isMaster", "listCommands", "ping", "whatsmyuri"]
    );
    assert_eq!(state(&server), before);
}

#[test]
fn build_info_requires_a_login_since_8_1() {
    let build_info = r#"{buildInfo: 1, $db: "admin"}"#;
    for (compatible_with, code) in [
        (CompatibleWith::V8_0, 0),
        (CompatibleWith::V8_2, UNAUTHORIZED),
        (CompatibleWith::V9_0, UNAUTHORIZED),
    ] {
        let server = guarded_by(Settings { compatible_with, ..Settings::default() });
        assert_eq!(Client::anonymous(&server).code(build_info).0, code, "{compatible_with:?}");
        assert_eq!(Client::user(&server, "u", &[]).code(build_info).0, 0, "{compatible_with:?}");
    }
}

/// Privileges from MongoDB's documentation, written independently of the declarations.
#[test]
fn roles_have_mongodbs_privileges() {
    const READERS: &[&str] = &[
        "__queryableBackup",
        "__system",
        "backup",
        "dbOwner",
        "read",
        "readAnyDatabase",
        "readWrite",
        "readWriteAnyDatabase",
        "root",
    ];
    const UPDATERS: &[&str] = &["__system", "dbOwner", "readWrite", "readWriteAnyDatabase", "root"];
    const WRITERS: &[&str] = &["__system", "dbOwner", "readWrite", "readWriteAnyDatabase", "restore", "root"];
    const DB_ADMINS: &[&str] = &["__system", "dbAdmin", "dbAdminAnyDatabase", "dbOwner", "root"];
    const MONITORS: &[&str] = &["__system", "clusterAdmin", "clusterMonitor", "root"];
    const HOST_MANAGERS: &[&str] = &["__system", "clusterAdmin", "hostManager", "root"];
    const CLUSTER_MANAGERS: &[&str] = &["__system", "clusterAdmin", "clusterManager", "root"];
    const USER_ADMINS: &[&str] =
        &["__system", "dbOwner", "restore", "root", "userAdmin", "userAdminAnyDatabase"];
    const CLEANERS: &[&str] = &["__system", "root", "vellumCleanSlate", "vellumCleanSlateAnyDatabase"];
    let expected: &[(&str, &[&str])] = &[
        ("find", READERS),
        ("count", READERS),
        ("distinct", READERS),
        ("aggregate", READERS),
        ("aggregate `$lookup`", READERS),
        ("dataSize", READERS),
        ("explain", READERS),
        ("insert", WRITERS),
        ("update", UPDATERS),
        ("delete", UPDATERS),
        ("findAndModify", UPDATERS),
        ("aggregate `$out`", UPDATERS),
        ("bulkWrite", UPDATERS),
        ("validate", &["__system", "dbAdmin", "dbAdminAnyDatabase", "dbOwner", "root"]),
        ("collMod", &["__system", "dbAdmin", "dbAdminAnyDatabase", "dbOwner", "restore", "root"]),
        ("compact", DB_ADMINS),
        ("reIndex", DB_ADMINS),
        ("profile", DB_ADMINS),
        ("planCacheSetFilter", DB_ADMINS),
        ("dropDatabase", &["__system", "clusterAdmin", "dbAdmin", "dbAdminAnyDatabase", "dbOwner", "root"]),
        ("serverStatus", &["__system", "backup", "clusterAdmin", "clusterMonitor", "root"]),
        ("top", MONITORS),
        ("hostInfo", MONITORS),
        ("getLog", MONITORS),
        ("currentOp", MONITORS),
        ("aggregate `$indexStats`", MONITORS),
        ("setParameter", HOST_MANAGERS),
        ("shutdown", HOST_MANAGERS),
        ("killOp", HOST_MANAGERS),
        ("killAllSessions", HOST_MANAGERS),
        ("fsync", HOST_MANAGERS),
        ("rotateCertificates", HOST_MANAGERS),
        ("replSetReconfig", CLUSTER_MANAGERS),
        ("replSetStepDown", CLUSTER_MANAGERS),
        ("setDefaultRWConcern", CLUSTER_MANAGERS),
        ("createUser", USER_ADMINS),
        ("dropUser", USER_ADMINS),
        ("createRole", USER_ADMINS),
        ("rolesInfo", USER_ADMINS),
        ("updateRole", &["__system", "restore", "root", "userAdminAnyDatabase"]),
        (
            "find in `system.profile`",
            &[
                "__queryableBackup",
                "__system",
                "backup",
                "clusterAdmin",
                "clusterMonitor",
                "dbAdmin",
                "dbAdminAnyDatabase",
                "dbOwner",
                "root",
            ],
        ),
        (
            "find in `admin.system.users`",
            &["__queryableBackup", "__system", "backup", "restore", "root", "userAdminAnyDatabase"],
        ),
        ("vellumBackup", &["__queryableBackup", "__system", "backup", "root"]),
        ("configureFailPoint", &["__system", "root", "vellumCleanSlateAnyDatabase"]),
        ("diffDatabase", READERS),
        ("forkDatabase", CLEANERS),
        ("resetDatabase", CLEANERS),
        ("restoreDatabase", CLEANERS),
    ];
    let server = furnished();
    let clients: Vec<(&'static str, Client)> =
        BUILTIN.iter().map(|role| (role.name, Client::user(&server, role.name, &[&held(role)]))).collect();
    for (name, roles) in expected {
        let sample = SAMPLES.iter().find(|sample| sample.0 == *name).unwrap().1;
        let is_authorized = |client: &&(&'static str, Client)| declared(&client.1, sample).0;
        let allowed: Vec<&str> = clients.iter().filter(is_authorized).map(|client| client.0).collect();
        assert_eq!(allowed, *roles, "{name}");
    }
}

const BEGIN: &str = "<!-- the table of commands and roles begins -->";
const END: &str = "<!-- the table of commands and roles ends -->";

#[test]
fn the_page_shows_the_declarations() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = page.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let made = format!("{before}{BEGIN}\n\n{}\n{END}{after}", tables());
    if std::env::var_os("VELLUM_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    assert!(
        std::fs::read_to_string(&path).unwrap() == made,
        "docs/security.md is out of date: VELLUM_BLESS=1 cargo test -p server the_page_shows"
    );
}

fn tables() -> String {
    let server = guarded();
    let system = Client::user(&server, "system", &["__system@admin"]);
    let mut free = Vec::new();
    let mut users = Vec::new();
    let mut rows = Vec::new();
    for (name, sample) in SAMPLES {
        let command = table::find(command_of(name)).unwrap();
        let (_, needed) = declared(&system, sample);
        match needed.is_empty() {
            true if command.without_auth => free.push(format!("`{name}`")),
            true => users.push(shown(name)),
            _ => rows.push((*name, *sample, needed)),
        }
    }
    let mut out = String::new();
    let _ = writeln!(out, "- Without a login: {}, and the commands that log in or out.", free.join(" "));
    let _ = writeln!(out, "- Any user: {}.", users.join(" "));
    let clients: Vec<(&Builtin, Client)> =
        BUILTIN.iter().map(|role| (role, Client::user(&server, role.name, &[&held(role)]))).collect();
    let mut groups: Vec<([String; 3], Vec<String>)> = Vec::new();
    let mut not_root = Vec::new();
    for (name, sample, needed) in &rows {
        let mut roles = [Vec::new(), Vec::new()];
        for (role, client) in &clients {
            let allowed = declared(client, sample).0;
            match role.name {
                "__system" => assert!(allowed, "{name}"),
                "root" if !allowed => not_root.push(shown(name)),
                other if allowed && other != "root" => {
                    roles[usize::from(role.admin_only)].push(format!("`{other}`"));
                }
                _ => (),
            }
        }
        let [of_database, of_admin] = roles;
        let key = [requirements(needed), of_database.join(", "), of_admin.join(", ")];
        match groups.iter_mut().find(|group| group.0 == key) {
            Some(group) => group.1.push(shown(name)),
            None => groups.push((key, vec![shown(name)])),
        }
    }
    let _ = writeln!(out, "- `__system`: all commands. `root`: all except {}.\n", not_root.join(" and "));
    let _ = writeln!(
        out,
        "| commands on `d` | privileges | roles of `d` | roles of `admin` |\n|---|---|---|---|"
    );
    for ([requirements, of_database, of_admin], names) in &groups {
        let _ = writeln!(out, "| {} | {requirements} | {of_database} | {of_admin} |", names.join(", "));
    }
    out
}

/// Returns a sample's name with the command in code style.
fn shown(name: &str) -> String {
    match name.split_once(' ') {
        Some((command, rest)) => format!("`{command}` {rest}"),
        None => format!("`{name}`"),
    }
}

fn requirements(needed: &[RequiredPrivilege]) -> String {
    let one = |needed: &RequiredPrivilege| {
        let actions: Vec<String> =
            needed.actions.iter().map(|action| format!("`{}`", action.name())).collect();
        let target = match &needed.resource {
            OwnedResource::Any => "any resource".to_string(),
            OwnedResource::Cluster => "the server".to_string(),
            OwnedResource::AnyNormal => "all databases".to_string(),
            OwnedResource::Database(database) => format!("`{database}`"),
            OwnedResource::Collection(database, name) => format!("`{database}.{name}`"),
        };
        format!("{} on {target}", actions.join(", "))
    };
    let mut texts: Vec<String> = Vec::new();
    for text in needed.iter().filter(|needed| !needed.actions.is_empty()).map(one) {
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    texts.join("; ")
}
