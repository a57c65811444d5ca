//! Targets against misbehaving servers: every error names the target.

use super::*;
use std::net::TcpListener;

fn given(name: &str, uri: &str) -> TargetArgument {
    TargetArgument { name: name.to_string(), uri: uri.to_string() }
}

/// Starts the null server in a thread, and returns its connection string.
fn null_server_here() -> String {
    fake(Vec::new())
}

/// Starts a null server with other replies, and returns its connection string.
fn fake(first: Vec<null_server::Reply>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || null_server::serve(&listener, first));
    format!("mongodb://{address}/")
}

fn reply(json: &str) -> base::bson::DocumentBuf {
    base::bson::extended_json::parse(json).unwrap()
}

fn message(error: Error) -> String {
    assert!(matches!(error, Error::Target { .. }), "{error:?}");
    error.to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_target_is_named() {
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for scheme in ["mongodb", "postgresql"] {
        let begin = std::time::Instant::now();
        let error = Target::connect(&given("mine", &format!("{scheme}://{closed}/"))).await.unwrap_err();
        let text = message(error);
        assert!(text.starts_with("target mine: cannot connect to 127.0.0.1:"), "{text}");
        assert!(begin.elapsed() < REACH);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_that_hangs_up_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || listener.incoming().for_each(drop));
    for scheme in ["mongodb", "postgresql"] {
        let uri = format!("{scheme}://{address}/x?{}", if scheme == "mongodb" { "" } else { "user=x" });
        let text = message(Target::connect(&given("mine", &uri)).await.unwrap_err());
        assert!(text.starts_with("target mine: ") && !text.contains("cannot connect"), "{text}");
    }
}

#[tokio::test]
async fn an_invalid_connection_string_is_refused_before_servers_start() {
    for uri in ["mongodb://", "mongodb://h/?w=nonsense&maxPoolSize=x", "postgresql://h:port/"] {
        let error = Target::connect(&given("mine", uri)).await.unwrap_err();
        assert!(matches!(&error, Error::Input(text) if text.contains("target mine")), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_driver_accepts_the_null_server() {
    let target = Target::connect(&given("null-server", &null_server_here())).await.unwrap();
    let client = target.mongo().await.unwrap();
    let collection = client.database("x").collection::<mongodb::bson::Document>("y");
    collection.insert_one(doc! { "a": 1 }).await.unwrap();
    collection.insert_many([doc! { "a": 1 }, doc! { "a": 2 }]).await.unwrap();
    assert!(collection.find_one(doc! { "a": 1 }).await.unwrap().is_some());
    assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 1);
    assert_eq!(collection.update_one(doc! {}, doc! { "$inc": { "a": 1 } }).await.unwrap().modified_count, 1);
    assert_eq!(collection.delete_many(doc! {}).await.unwrap().deleted_count, 1);
    assert!(collection.find_one_and_update(doc! {}, doc! { "$set": { "a": 1 } }).await.unwrap().is_some());
    collection.create_index(mongodb::IndexModel::builder().keys(doc! { "a": 1 }).build()).await.unwrap();
    collection.drop().await.unwrap();
    client.database("x").drop().await.unwrap();
    assert!(client.list_database_names().await.unwrap().is_empty());
    assert!(client.database("x").list_collection_names().await.unwrap().is_empty());
    assert_eq!(target.usage().is_some(), cfg!(target_os = "linux"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_dies_in_the_middle_is_named() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // Forwards to the null server until it is ordered to disconnect.
    let null_server = null_server_here();
    let upstream = null_server.trim_start_matches("mongodb://").trim_end_matches('/').to_string();
    let (die, dead) = std::sync::mpsc::channel::<()>();
    std::thread::spawn(move || {
        let mut streams = Vec::new();
        listener.set_nonblocking(true).unwrap();
        while dead.try_recv().is_err() {
            if let Ok((client, _)) = listener.accept() {
                client.set_nonblocking(false).unwrap();
                let server = std::net::TcpStream::connect(&upstream).unwrap();
                for (mut from, mut to) in [
                    (client.try_clone().unwrap(), server.try_clone().unwrap()),
                    (server, client.try_clone().unwrap()),
                ] {
                    std::thread::spawn(move || std::io::copy(&mut from, &mut to));
                }
                streams.push(client);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        streams.iter().for_each(|stream| drop(stream.shutdown(std::net::Shutdown::Both)));
    });
    let target = Target::connect(&given("mine", &format!("mongodb://{address}/"))).await.unwrap();
    let client = target.mongo().await.unwrap();
    die.send(()).unwrap();
    let collection = client.database("x").collection::<mongodb::bson::Document>("y");
    let begin = std::time::Instant::now();
    let failed = loop {
        match collection.insert_one(doc! {}).await {
            Ok(_) => assert!(begin.elapsed() < REACH),
            Err(error) => break target.error(error),
        }
    };
    assert!(message(failed).starts_with("target mine: "));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_command_is_named() {
    let refusal = reply("{ok: 0.0, errmsg: 'not authorized on admin', code: 13, codeName: 'Unauthorized'}");
    let uri = fake(vec![("listDatabases", refusal)]);
    let target = Target::connect(&given("mine", &uri)).await.unwrap();
    let text = message(Workspace::open(&target, "run").await.unwrap_err());
    assert_eq!(text, "target mine: Command failed: Error code 13 (Unauthorized): not authorized on admin");
    assert!(target.database().is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_is_there_already_is_left_alone() {
    let there = reply("{databases: [{name: 'admin'}, {name: 'vellum_lab_run_fork'}], ok: 1.0}");
    // If the lab dropped it nevertheless, the error would show it.
    let refusal = reply("{ok: 0.0, errmsg: 'dropped', code: 13}");
    let uri = fake(vec![("listDatabases", there), ("dropDatabase", refusal)]);
    let target = Target::connect(&given("mine", &uri)).await.unwrap();
    let text = message(Workspace::open(&target, "run").await.unwrap_err());
    assert!(text.starts_with("target mine: already has vellum_lab_run_fork"), "{text}");
    let other = Workspace::open(&target, "another").await.unwrap();
    assert_eq!(target.database(), Ok("vellum_lab_another"));
    other.remove().await.unwrap();
}

#[test]
fn a_drivers_message_is_cut_where_its_own_affairs_begin() {
    let long = "Kind: Command failed: Error code 26 (NamespaceNotFound): ns not found, labels: {}, source: None, \
                server response: Some(RawDocumentBuf)";
    assert_eq!(short_message(long), "Command failed: Error code 26 (NamespaceNotFound): ns not found");
    assert_eq!(short_message("plain"), "plain");
}

#[tokio::test]
async fn a_target_has_its_protocol() {
    for (uri, expected) in [
        ("mongodb://h/", "not encrypted, without a user"),
        ("mongodb://me:secret@h/?tls=true", "encrypted by TLS, by a user"),
        ("postgresql://me@h/x", "not encrypted, by a user"),
    ] {
        let given = given("mine", uri);
        let (protocol, client) = match uri.starts_with("postgres") {
            true => (Protocol::Postgres, parse_postgres(&given).unwrap()),
            false => (Protocol::Mongo, parse_mongo(&given).await.unwrap()),
        };
        let target = Target {
            name: given.name,
            uri: given.uri,
            protocol,
            is_null_server: false,
            client: Arc::new(client),
            process: None,
            workspace: Arc::default(),
            started: None,
        };
        assert_eq!(target.traffic(), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_load_balanced_target_is_reached() {
    let hello = "{ok: 1, helloOk: true, isWritablePrimary: true, msg: 'isdbgrid', maxBsonObjectSize: 16777216, \
                 maxMessageSizeBytes: 48000000, maxWriteBatchSize: 100000, connectionId: 1, minWireVersion: 0, \
                 maxWireVersion: 25, serviceId: ObjectId('0123456789abcdef01234567')}";
    let balanced = fake(vec![("hello isMaster ismaster", reply(hello))]);
    let target = Target::connect(&given("balanced", &format!("{balanced}?loadBalanced=true"))).await.unwrap();
    let client = target.mongo().await.unwrap();
    let collection = client.database("x").collection::<mongodb::bson::Document>("y");
    collection.insert_one(doc! { "a": 1 }).await.unwrap();
    assert!(collection.find_one(doc! { "a": 1 }).await.unwrap().is_some());
    // The driver reports a server without support for balancers.
    let alone = given("alone", &format!("{}?loadBalanced=true", null_server_here()));
    let text = message(Target::connect(&alone).await.unwrap_err());
    assert!(text.contains("target alone") && text.contains("load balanc"), "{text}");
}
