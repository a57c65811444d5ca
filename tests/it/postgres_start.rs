//! Connections to a PostgreSQL server: libpq's modes of encryption, a server without free connections, lookalikes, and
//! a schema of another version.

use crate::authority::{Authority, Files};
use crate::client::Client;
use crate::print_line;
use crate::requests::until;
use crate::server::Server;
use base::bson::extended_json::parse;
use postgres::testing::Cluster;
use postgres::{Config, Limits, PostgresStore};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};

fn skipped(what: &str) {
    print_line(&format!("{what} over PostgreSQL skipped: it isn't installed (apt-get install postgresql)"));
}

/// Opens and closes a store, and returns the error, if any.
fn open(connection: &str) -> Result<PostgresStore, String> {
    let config = Config::parse(connection, &|_| None)?;
    PostgresStore::open(config, "tried", Limits::default(), None).map_err(|error| error.to_string())
}

#[test]
fn connections_follow_sslmode() {
    let (files, ours, others) = (Files::new("postgres"), Authority::new("Ours"), Authority::new("Others"));
    files.write("server.pem", &ours.certificate("server").pem);
    let ca = files.write("ca.pem", &ours.pem());
    files.write(
        "pg_hba.conf",
        "hostssl all certified 127.0.0.0/8 cert\nhostssl all postgres 127.0.0.0/8 trust\n\
         hostnossl all plain 127.0.0.0/8 trust\n",
    );
    let settings = [
        "ssl=on",
        "ssl_cert_file=../server.pem",
        "ssl_key_file=../server.pem",
        "ssl_ca_file=../ca.pem",
        "listen_addresses=127.0.0.1,127.0.0.2",
    ];
    let Some(cluster) = Cluster::start_with(Some(&files), &settings).unwrap() else {
        return skipped("TLS");
    };
    let role = |name: &str| format!("create role {name} superuser login");
    cluster.run(&[&role("certified"), &role("plain")]).unwrap();
    let elsewhere = Files::new("postgres-clients");
    let client = elsewhere.write("client.pem", &ours.certificate("certified").pem);
    let stranger = elsewhere.write("others.pem", &others.pem());
    let own = format!("sslcert={client} sslkey={client}");

    for (user, host, words, expected) in [
        ("postgres", "127.0.0.1", "sslmode=disable", Err("no encryption")),
        ("postgres", "127.0.0.1", "sslmode=allow", Ok(true)),
        ("postgres", "127.0.0.1", "", Ok(true)),
        ("postgres", "127.0.0.1", "sslmode=require", Ok(true)),
        ("postgres", "127.0.0.2", "sslmode=verify-ca sslrootcert=CA", Ok(true)),
        ("postgres", "127.0.0.2", "sslmode=verify-full sslrootcert=CA", Err("not valid for")),
        ("postgres", "localhost", "sslmode=verify-full sslrootcert=CA", Ok(true)),
        ("postgres", "127.0.0.1", "sslmode=verify-full sslrootcert=CA", Ok(true)),
        ("postgres", "127.0.0.1", "sslmode=verify-ca sslrootcert=STRANGER", Err("UnknownIssuer")),
        ("postgres", "127.0.0.1", "sslmode=require sslrootcert=STRANGER", Err("UnknownIssuer")),
        ("plain", "127.0.0.1", "sslmode=disable", Ok(false)),
        ("plain", "127.0.0.1", "sslmode=allow", Ok(false)),
        ("plain", "127.0.0.1", "sslmode=prefer", Ok(false)),
        ("plain", "127.0.0.1", "sslmode=require", Err("SSL encryption")),
        ("certified", "127.0.0.1", "sslmode=require", Err("certificate")),
        ("certified", "127.0.0.1", "sslmode=verify-full sslrootcert=CA OWN", Ok(true)),
    ] {
        let words = words.replace("CA", &ca).replace("STRANGER", &stranger).replace("OWN", &own);
        let connection = format!(
            "host={host} port={} user={user} dbname=postgres application_name=tried {words}",
            cluster.port()
        );
        let opened = open(&connection);
        let encrypted = "select count(*) filter (where s.ssl) * 1000 + count(*) from pg_stat_ssl s \
                         join pg_stat_activity a using (pid) where a.application_name = 'tried'";
        match (&opened, expected) {
            (Ok(_), Ok(is_encrypted)) => {
                let counted = cluster.run(&[encrypted]).unwrap().unwrap();
                let (with, all) = (counted / 1000, counted % 1000);
                assert!(
                    all > 0 && with == if is_encrypted { all } else { 0 },
                    "{connection}: {with} of {all}"
                );
            }
            (Err(error), Err(part)) => assert!(error.contains(part), "{connection}: {error}"),
            (Ok(_), Err(part)) => panic!("{connection} got in, and should have failed with {part}"),
            (Err(error), Ok(_)) => panic!("{connection}: {error}"),
        }
        drop(opened);
        let left = "select count(*) from pg_stat_activity where application_name = 'tried'";
        until("its connections are gone", || cluster.run(&[left]).unwrap() == Some(0));
    }
}

fn run(client: &mut Client, command: &str) -> String {
    client.command(&parse(command).unwrap()).unwrap().view().to_string()
}

#[test]
fn a_server_without_free_connections_is_reported_and_awaited() {
    let settings = ["max_connections=14", "superuser_reserved_connections=0", "max_wal_senders=0"];
    let Some(cluster) = Cluster::start_with(None, &settings).unwrap() else { return skipped("room") };
    let Some(server) = Server::on_schema(&cluster.connection_string(), "room") else { return };
    let mut client = server.connect().unwrap();
    run(&mut client, "{insert: 'c', documents: [{_id: 1}, {_id: 2}, {_id: 3}], $db: 'test'}");
    // More concurrent readers and writers than connections: they wait for one of the front's own.
    std::thread::scope(|scope| {
        for number in 0..24 {
            let server = &server;
            scope.spawn(move || {
                let mut client = server.connect().unwrap();
                for round in 0..10 {
                    let found = run(&mut client, "{find: 'c', batchSize: 2, $db: 'test'}");
                    assert!(found.contains("ok: 1"), "{found}");
                    let insert =
                        format!("{{insert: 'd', documents: [{{_id: '{number} {round}'}}], $db: 'test'}}");
                    assert!(run(&mut client, &insert).contains("ok: 1"));
                }
            });
        }
    });
    // When another client takes the remaining connections, a new front fails to start and reports the reason.
    let mut taken = Vec::new();
    while let Ok(store) = open(&cluster.connection_string()) {
        taken.push(store);
        assert!(taken.len() < 20);
    }
    let error = open(&cluster.connection_string()).err().unwrap();
    assert!(error.contains("too many clients"), "{error}");
    assert!(run(&mut client, "{count: 'd', $db: 'test'}").contains("n: 240"));
    drop(taken);
    until("it recovers", || open(&cluster.connection_string()).is_ok());
}

#[test]
fn a_schema_of_another_version_is_refused_with_both_numbers() {
    let Some(cluster) = Cluster::start().unwrap() else { return skipped("versions") };
    cluster
        .run(&["create schema tried", "create table tried.version (one int4 primary key, version int4)"])
        .unwrap();
    cluster.run(&["insert into tried.version values (1, 0)"]).unwrap();
    for version in [7, 9] {
        cluster.run(&[&format!("update tried.version set version = {version}")]).unwrap();
        let error = open(&cluster.connection_string()).err().unwrap();
        let named = format!("has version {version}, and this version of Vellum uses only version 8");
        assert!(error.contains(&named), "{error}");
    }
}

#[test]
fn similar_servers_are_refused_by_name() {
    let Some(cluster) = Cluster::start().unwrap() else { return skipped("relatives") };
    // Version texts of lookalikes, sent by a fake server.
    for (version, named) in [
        ("CockroachDB CCL v24.3.1 (x86_64-pc-linux-gnu)", "CockroachDB"),
        ("PostgreSQL 15.12-YB-2025.1.0.0-b0 on x86_64-pc-linux-gnu", "YB-2025.1"),
    ] {
        let pose = format!(
            "create or replace function posing.version() returns text language sql as 'select ''{version}'''"
        );
        let first = "alter role postgres set search_path = posing, pg_catalog, public";
        cluster.run(&["create schema if not exists posing", &pose, first]).unwrap();
        let Err(reported) = open(&cluster.connection_string()) else { panic!("{version} is taken") };
        assert!(reported.contains(named) && reported.contains("is not tested with it"), "{reported}");
        cluster.run(&["alter role postgres reset search_path"]).unwrap();
    }
    let installed = "insert into pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion) \
                     values (99999, 'citus', 10, 11, false, '13.0')";
    cluster.run(&["set allow_system_table_mods = on", installed]).unwrap();
    let Err(reported) = open(&cluster.connection_string()) else { panic!("Citus is taken") };
    assert!(reported.contains("Citus"), "{reported}");
    cluster.run(&["set allow_system_table_mods = on", "delete from pg_extension where oid = 99999"]).unwrap();
    open(&cluster.connection_string()).unwrap();
}

/// A proxy of the kind that drops start-up options and forwards everything else.
fn without_options(port: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let own = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().map_while(Result::ok) {
            let mut length = [0; 4];
            client.read_exact(&mut length).unwrap();
            let mut start = vec![0; u32::from_be_bytes(length) as usize - 4];
            client.read_exact(&mut start).unwrap();
            let (version, words) = start.split_at(4);
            let words: Vec<&[u8]> = words.split(|byte| *byte == 0).collect();
            let parameters = words
                .chunks(2)
                .filter(|pair| pair.len() == 2 && !pair[0].is_empty() && pair[0] != b"options");
            let parameters = parameters.flat_map(|pair| [pair[0], b"\0", pair[1], b"\0"].concat());
            let body: Vec<u8> = version.iter().copied().chain(parameters).chain([0]).collect();
            let server = TcpStream::connect(("127.0.0.1", port)).unwrap();
            (&server).write_all(&(body.len() as u32 + 4).to_be_bytes()).unwrap();
            (&server).write_all(&body).unwrap();
            for (mut from, mut to) in [
                (client.try_clone().unwrap(), server.try_clone().unwrap()),
                (server.try_clone().unwrap(), client.try_clone().unwrap()),
            ] {
                std::thread::spawn(move || {
                    // The end of either side ends the other.
                    let _ = std::io::copy(&mut from, &mut to);
                    let _ = to.shutdown(std::net::Shutdown::Both);
                });
            }
        }
    });
    own
}

/// Starts PgBouncer before a server, if installed. It ends with the returned process.
fn pgbouncer(files: &Files, server: &str, settings: &str) -> Option<(Child, u16)> {
    let program = std::env::var("VELLUM_PGBOUNCER").unwrap_or_else(|_| "/usr/sbin/pgbouncer".to_string());
    if !std::path::Path::new(&program).exists() {
        return None;
    }
    let own = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let users = files.write("users.txt", "\"postgres\" \"\"\n");
    let configuration = files.write(
        "pgbouncer.ini",
        &format!(
            "[databases]\npostgres = {server}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {own}\nauth_type = trust\nauth_file = {users}\nunix_socket_dir =\n{settings}\n"
        ),
    );
    let mut command = Command::new("setpriv");
    command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", &program, "-q", &configuration]);
    let child = command.stderr(Stdio::null()).spawn().unwrap();
    until("PgBouncer starts", || TcpStream::connect(("127.0.0.1", own)).is_ok());
    Some((child, own))
}

#[test]
fn poolers_are_detected_and_refused() {
    let Some(cluster) = Cluster::start().unwrap() else { return skipped("poolers") };
    let at = |port: u16| format!("host=127.0.0.1 port={port} user=postgres dbname=postgres sslmode=disable");
    let refused = |port: u16, part: &str| {
        let Err(reported) = open(&at(port)) else {
            panic!("a pooler is taken, that should be refused: {part}")
        };
        assert!(reported.contains(part) && reported.contains("connect to PostgreSQL itself"), "{reported}");
    };
    refused(without_options(cluster.port()), "drops the start-up options");

    let files = Files::new("poolers");
    let sets = "set plan_cache_mode=force_generic_plan; set synchronous_commit=off; set lock_timeout=50";
    let server = format!("host=127.0.0.1 port={}", cluster.port());
    let set_up = format!("{server} connect_query='{sets}'");
    let passed_over = "ignore_startup_parameters = options";
    for (server, settings, part) in [
        (&server, "", "not supported (unsupported startup parameter: options)"),
        (&server, passed_over, "drops the start-up options"),
        (&set_up, passed_over, "one session"),
    ] {
        let settings = format!("pool_mode = transaction\n{settings}");
        let Some((mut child, port)) = pgbouncer(&files, server, &settings) else {
            return print_line(
                "PgBouncer itself before PostgreSQL skipped: it isn't installed (apt-get install pgbouncer)",
            );
        };
        refused(port, part);
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
