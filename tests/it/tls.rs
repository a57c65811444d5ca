//! TLS from outside: allowed connections, valid certificates, and replaced certificates.

use crate::authority::{Authority, Caller, Files, Made};
use crate::client::Client;
use crate::requests::until;
use crate::server::Server;
use base::bson::DocumentBuf;
use base::bson::extended_json::parse;
use rustls::version::{TLS12, TLS13};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// A server with a certificate of an authority.
struct Setting {
    files: Files,
    authority: Authority,
    /// A revoked certificate.
    revoked: Made,
    server: Server,
}

impl Setting {
    /// `more` has options; `CA` in them stands for the file of the authority's certificate, `CRL` for its revocation
    /// list. `None` if the tests run against an external server.
    fn new(name: &str, mode: &str, more: &[&str]) -> Option<Setting> {
        if std::env::var_os("VELLUM_SERVER").is_some() {
            return None;
        }
        let (files, authority) = (Files::new(name), Authority::new("Tests"));
        let ca = files.write("ca.pem", &authority.pem());
        let own = files.write("server.pem", &authority.certificate("server").pem);
        let revoked = authority.certificate("revoked");
        let list = files.write("list.pem", &authority.revoke(&revoked));
        let more = more.iter().map(|word| match *word {
            "CA" => ca.as_str(),
            "CRL" => list.as_str(),
            word => word,
        });
        let options: Vec<&str> =
            ["--tls-mode", mode, "--tls-certificate-key-file", &own].into_iter().chain(more).collect();
        let server = Server::start_with(&options)?;
        Some(Setting { files, authority, revoked, server })
    }

    fn plain(&self) -> io::Result<Client> {
        Client::connect(self.server.address(), Duration::from_secs(20))
    }

    /// Connects with verification of the server's certificate.
    fn secure(&self, shows: Option<&Made>) -> io::Result<Client> {
        Caller { trusts: Some(&self.authority), shows, version: None }.connect(self.server.address())
    }

    fn logs(&self, part: &str) {
        until(part, || self.server.log().contains(part));
    }
}

fn run(client: &mut Client, command: &str) -> io::Result<DocumentBuf> {
    client.command(&parse(command).unwrap())
}

fn answers(client: io::Result<Client>) -> bool {
    client.is_ok_and(|mut client| run(&mut client, "{ping: 1, $db: 'admin'}").is_ok())
}

#[test]
fn each_mode_accepts_its_clients() {
    for (mode, serves_plain) in [("allow", true), ("prefer", true), ("require", false)] {
        let Some(setting) = Setting::new(mode, mode, &[]) else { return };
        assert_eq!(answers(setting.plain()), serves_plain, "{mode}");
        assert!(answers(setting.secure(None)), "{mode}");
        for version in [&TLS12, &TLS13] {
            let caller = Caller { version: Some(version), ..Caller::anonymous() };
            assert!(answers(caller.connect(setting.server.address())), "{mode} {version:?}");
        }
        let stranger = Authority::new("Others");
        let caller = Caller { trusts: Some(&stranger), ..Caller::anonymous() };
        assert!(!answers(caller.connect(setting.server.address())), "{mode}");
    }
}

#[test]
fn the_mode_may_become_stricter_step_by_step() {
    let Some(setting) = Setting::new("stricter", "allow", &[]) else { return };
    let mut client = setting.secure(None).unwrap();
    let mut set = |mode: &str| {
        let reply =
            run(&mut client, &format!("{{setParameter: 1, tlsMode: '{mode}', $db: 'admin'}}")).unwrap();
        (is_ok(&reply), reply)
    };
    assert!(!set("requireTLS").0 && !set("disabled").0);
    assert_eq!(text(&set("preferTLS").1, "was"), "allowTLS");
    assert!(!set("allowTLS").0 && answers(setting.plain()));
    assert_eq!(text(&set("requireTLS").1, "was"), "preferTLS");
    assert!(!answers(setting.plain()) && answers(setting.secure(None)));
    let shown = run(&mut client, "{getParameter: 1, sslMode: 1, $db: 'admin'}").unwrap();
    assert_eq!(text(&shown, "sslMode"), "requireSSL");
}

#[test]
fn large_documents_pass_both_ways() {
    let Some(setting) = Setting::new("large", "require", &[]) else { return };
    let mut client = setting.secure(None).unwrap();
    let text = "x".repeat(9_000_000);
    run(&mut client, &format!("{{insert: 'c', documents: [{{_id: 1, text: '{text}'}}], $db: 'test'}}"))
        .unwrap();
    let found = run(&mut client, "{find: 'c', $db: 'test'}").unwrap();
    assert!(found.bytes().len() > 9_000_000);
    let mut other = setting.secure(None).unwrap();
    let count = run(&mut other, "{count: 'c', $db: 'test'}").unwrap();
    assert_eq!(count.view().get("n").and_then(|n| n.as_i64()), Some(1));
}

#[test]
fn plain_clients_are_logged_once() {
    let Some(setting) = Setting::new("told", "require", &[]) else { return };
    for _ in 0..3 {
        assert!(!answers(setting.plain()));
    }
    setting.logs("only allow SSL connections");
    assert!(answers(setting.secure(None)));
    assert_eq!(setting.server.log().matches("only allow SSL connections").count(), 1);
}

#[test]
fn a_server_without_tls_logs_tls_clients() {
    let Some(server) = Server::start() else { return };
    for _ in 0..2 {
        assert!(Caller::anonymous().connect(server.address()).is_err());
    }
    assert_eq!(server.log().matches("started without SSL support").count(), 1);
    assert!(answers(server.connect()));
}

#[test]
fn certificates_of_clients_are_checked() {
    let Some(setting) = Setting::new("clients", "require", &["--tls-ca-file", "CA"]) else { return };
    let good = setting.authority.certificate("client");
    assert!(answers(setting.secure(Some(&good))));
    assert!(!answers(setting.secure(None)));
    setting.logs("peer sent no certificates");
    let expired = setting.authority.certificate_until("client", 2021);
    assert!(!answers(setting.secure(Some(&expired))));
    setting.logs("certificate expired");
    let others = Authority::new("Others").certificate("client");
    assert!(!answers(setting.secure(Some(&others))));
    setting.logs("UnknownIssuer");
}

#[test]
fn clients_may_connect_without_a_certificate() {
    let more = ["--tls-ca-file", "CA", "--tls-allow-connections-without-certificates"];
    let Some(setting) = Setting::new("optional", "require", &more) else { return };
    assert!(answers(setting.secure(None)));
    assert!(answers(setting.secure(Some(&setting.authority.certificate("client")))));
    assert!(!answers(setting.secure(Some(&Authority::new("Others").certificate("client")))));
}

#[test]
fn revoked_certificates_are_refused() {
    let more = ["--tls-ca-file", "CA", "--tls-crl-file", "CRL"];
    let Some(setting) = Setting::new("revoked", "require", &more) else { return };
    assert!(answers(setting.secure(Some(&setting.authority.certificate("good")))));
    assert!(!answers(setting.secure(Some(&setting.revoked))));
    setting.logs("Revoked");
}

#[test]
fn versions_can_be_switched_off() {
    let more = ["--tls-disabled-protocols", "TLS1_0,TLS1_1,TLS1_2"];
    let Some(setting) = Setting::new("versions", "require", &more) else { return };
    let with =
        |version| Caller { version: Some(version), ..Caller::anonymous() }.connect(setting.server.address());
    assert!(!answers(with(&TLS12)));
    assert!(answers(with(&TLS13)));
}

/// Returns the hello of a client that supports nothing newer than TLS 1.1.
fn old_hello() -> Vec<u8> {
    let mut hello = vec![3, 2];
    hello.extend([7; 32]);
    // No session, two cipher suites, no compression.
    hello.extend([0, 0, 4, 0xC0, 0x13, 0, 0x2F, 1, 0]);
    let length = u8::try_from(hello.len()).unwrap();
    let mut record = vec![0x16, 3, 1, 0, length + 4, 1, 0, 0, length];
    record.extend(hello);
    record
}

#[test]
fn older_versions_are_refused_with_an_alert() {
    let Some(setting) = Setting::new("older", "require", &[]) else { return };
    let mut socket = TcpStream::connect(setting.server.address()).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    socket.write_all(&old_hello()).unwrap();
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).unwrap();
    // A fatal alert: protocol version.
    assert_eq!(answer.get(5..), Some(&[2, 70][..]), "{answer:?}");
    setting.logs("client requested disabled protocol");
    assert!(answers(setting.secure(None)));
}

/// Returns the first bytes of a client.
fn hello_of_a_client() -> Vec<u8> {
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&TLS13, &TLS12])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = rustls::pki_types::ServerName::try_from("localhost").unwrap();
    let mut session = rustls::ClientConnection::new(std::sync::Arc::new(config), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    hello
}

#[test]
fn mutated_hellos_are_harmless() {
    let Some(setting) = Setting::new("mutated", "require", &["--tls-ca-file", "CA"]) else { return };
    let shows = setting.authority.certificate("client");
    let mut open = setting.secure(Some(&shows)).unwrap();
    let mut state = 11u32;
    let mut draw = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    for _ in 0..500 {
        let mut hello = hello_of_a_client();
        for _ in 0..1 + draw(4) {
            let at = 5 + draw(hello.len() - 5);
            match draw(3) {
                0 => hello[at] = draw(256) as u8,
                1 => hello.truncate(at.max(16)),
                _ => hello.insert(at, draw(256) as u8),
            }
            if hello.len() < 20 {
                break;
            }
        }
        let mut socket = TcpStream::connect(setting.server.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        // The server may close at once, or wait for more.
        let _ = socket.write_all(&hello);
        let _ = socket.read(&mut [0; 64]);
    }
    run(&mut open, "{ping: 1, $db: 'admin'}").unwrap();
    assert!(answers(setting.secure(Some(&shows))));
    let status = run(&mut open, "{serverStatus: 1, $db: 'admin'}").unwrap();
    let asserts = status.view().get("asserts").and_then(|found| found.as_document()).unwrap();
    assert_eq!(asserts.get("regular").and_then(|count| count.as_i64()), Some(0));
    assert!(!setting.server.log().contains("panicked"));
}

#[test]
fn garbage_is_harmless() {
    let Some(setting) = Setting::new("garbage", "prefer", &[]) else { return };
    let mut open = setting.secure(None).unwrap();
    let mut state = 7u32;
    for length in 1..200 {
        let mut bytes = vec![0x16, 3, 1, 0, length, 1];
        bytes.extend((0..length).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        }));
        let mut socket = TcpStream::connect(setting.server.address()).unwrap();
        // The server may have closed already.
        let _ = socket.write_all(&bytes);
    }
    run(&mut open, "{ping: 1, $db: 'admin'}").unwrap();
    assert!(answers(setting.secure(None)) && answers(setting.plain()));
}

#[test]
fn certificate_rotation_keeps_connections() {
    let Some(setting) = Setting::new("rotation", "require", &[]) else { return };
    let mut open = setting.secure(None).unwrap();
    run(&mut open, "{ping: 1, $db: 'admin'}").unwrap();
    let next = Authority::new("Next");
    let trusts_next =
        || Caller { trusts: Some(&next), ..Caller::anonymous() }.connect(setting.server.address());
    assert!(trusts_next().is_err());
    setting.files.write("server.pem", &next.certificate("by command").pem);
    run(&mut open, "{rotateCertificates: 1, message: 'a test', $db: 'admin'}").unwrap();
    assert!(answers(trusts_next()));
    assert!(setting.secure(None).is_err());
    run(&mut open, "{ping: 1, $db: 'admin'}").unwrap();
    let status = run(&mut open, "{serverStatus: 1, $db: 'admin'}").unwrap();
    let security = status.view().get("security").and_then(|found| found.as_document()).unwrap().to_owned();
    let subject =
        security.view().get("SSLServerSubjectName").and_then(|name| name.as_str().map(str::to_string));
    assert_eq!(subject.as_deref(), Some("CN=by command,O=Vellum,C=DE"));

    // An unusable file changes nothing.
    setting.files.write("server.pem", &next.certificate_until("too late", 2021).pem);
    let refused = run(&mut open, "{rotateCertificates: 1, $db: 'admin'}").unwrap();
    assert_eq!(refused.view().get("code").and_then(|code| code.as_i64()), Some(140));
    let why = refused.view().get("errmsg").and_then(|why| why.as_str().map(str::to_string)).unwrap();
    assert!(why.contains("server.pem") && why.contains("expired"), "{why}");
    assert!(answers(trusts_next()));

    setting.files.write("server.pem", &setting.authority.certificate("by signal").pem);
    setting.server.send_sighup();
    setting.logs("SIGHUP: reloaded the certificates");
    assert!(answers(setting.secure(None)));
    run(&mut open, "{ping: 1, $db: 'admin'}").unwrap();
}

#[test]
fn statistics_have_certificate_and_versions() {
    let Some(setting) = Setting::new("status", "require", &["--tls-ca-file", "CA"]) else { return };
    let shows = setting.authority.certificate("client");
    let mut client = setting.secure(Some(&shows)).unwrap();
    let status = run(&mut client, "{serverStatus: 1, $db: 'admin'}").unwrap();
    let section = |name| status.view().get(name).and_then(|found| found.as_document()).unwrap().to_owned();
    let versions = section("transportSecurity");
    let count = |name| versions.view().get(name).and_then(|count| count.as_i64());
    assert_eq!(
        (count("1.0"), count("1.2"), count("1.3"), count("unknown")),
        (Some(0), Some(0), Some(1), Some(0))
    );
    let security = section("security");
    let has = security.view().get("SSLServerHasCertificateAuthority").and_then(|has| has.as_bool());
    assert_eq!(has, Some(true));
}

#[test]
fn a_disconnected_waiting_client_is_detected() {
    let Some(setting) = Setting::new("leaves", "require", &[]) else { return };
    let mut watcher = setting.secure(None).unwrap();
    let mut connections = |name: &str| {
        let status = run(&mut watcher, "{serverStatus: 1, $db: 'admin'}").unwrap();
        let section =
            status.view().get("connections").and_then(|found| found.as_document()).unwrap().to_owned();
        section.view().get(name).and_then(|count| count.as_i64()).unwrap()
    };
    let mut leaves = setting.secure(None).unwrap();
    let hello = run(&mut leaves, "{hello: 1, $db: 'admin'}").unwrap();
    let mut waits = base::bson::Builder::new();
    waits.append(c"hello", 1).append(c"topologyVersion", hello.view().get("topologyVersion").unwrap());
    waits.append(c"maxAwaitTimeMS", 600_000).append(c"$db", "admin");
    leaves.command_unacknowledged(&waits.finish()).unwrap();
    until("the second waits for changes", || connections("awaitingTopologyChanges") > 0);
    assert_eq!((connections("current"), connections("active"), connections("threaded")), (2, 2, 1));
    drop(leaves);
    until("the second is gone", || connections("current") <= 1);
}

#[test]
fn http_on_the_tls_port_gets_an_explanation() {
    let Some(setting) = Setting::new("http", "require", &[]) else { return };
    let mut socket = TcpStream::connect(setting.server.address()).unwrap();
    socket.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.0 200 OK\r\n"), "{answer}");
    assert!(answer.ends_with(
        "\r\n\r\nIt looks like you are trying to access MongoDB over HTTP on the native driver port.\r\n"
    ));
}

/// Metrics and health by `--http` use the same certificate.
#[test]
fn metrics_are_served_over_tls() {
    // A port that was free a moment ago.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let Some(setting) = Setting::new("https", "require", &["--http", &free]) else { return };
    let caller = Caller { trusts: Some(&setting.authority), shows: None, version: None };
    for (path, expected) in [("/metrics", "\nvellum_connections "), ("/healthz", ""), ("/readyz", "")] {
        let mut stream = caller.stream(&free).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {free}\r\nConnection: close\r\n\r\n").unwrap();
        let mut answer = String::new();
        // A server that announces the close may omit TLS's own close message.
        if let Err(error) = stream.read_to_string(&mut answer) {
            assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
        }
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(expected), "{path}: {answer}");
    }
    let mut plain = TcpStream::connect(&free).unwrap();
    plain.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {free}\r\nConnection: close\r\n\r\n");
    let mut answer = Vec::new();
    // The server may answer or close, but must return no metrics.
    let _ = plain.write_all(request.as_bytes()).and_then(|()| plain.read_to_end(&mut answer));
    assert!(!String::from_utf8_lossy(&answer).contains("vellum_"), "{answer:?}");
    let stranger = Authority::new("Strangers");
    assert!(Caller { trusts: Some(&stranger), ..caller }.stream(&free).is_err());
}

#[test]
fn an_encrypted_key_requires_its_password() {
    if std::env::var_os("VELLUM_SERVER").is_some() {
        return;
    }
    let files = Files::new("encrypted");
    let own = crate::root().join("crates/wire/tests/fixtures/aes.pem").display().to_string();
    let options = ["--tls-mode", "require", "--tls-certificate-key-file", &own];
    let password = files.write("password", "secret\n");
    let with_file = [&options[..], &["--tls-certificate-key-file-password-file", &password]].concat();
    let with_word = [&options[..], &["--tls-certificate-key-file-password", "secret"]].concat();
    for options in [with_file, with_word] {
        let Some(server) = Server::start_with(&options) else { return };
        let mut client = Caller::anonymous().connect(server.address()).unwrap();
        let command_line = run(&mut client, "{getCmdLineOpts: 1, $db: 'admin'}").unwrap();
        assert!(!format!("{command_line:?}").contains("\"secret\""), "{command_line:?}");
        let parsed = command_line.view().get("parsed").and_then(|parsed| parsed.as_document()).unwrap();
        let tls = parsed.get("net").and_then(|net| net.as_document()?.get("tls")?.as_document()).unwrap();
        assert_eq!(tls.get("mode").and_then(|mode| mode.as_str()), Some("requireTLS"));
        assert_eq!(tls.get("certificateKeyFile").and_then(|file| file.as_str()), Some(own.as_str()));
        assert!(!server.log().contains("secret"));
    }
    for (more, part) in
        [(&[][..], "no password"), (&["--tls-certificate-key-file-password", "guess"], "password is wrong")]
    {
        let refused = std::process::Command::new(env!("CARGO_BIN_EXE_vellum"))
            .args(options)
            .args(more)
            .output()
            .unwrap();
        let printed = String::from_utf8_lossy(&refused.stderr);
        assert!(
            refused.status.code() == Some(2) && printed.contains(part) && printed.contains("aes.pem"),
            "{printed}"
        );
        assert!(!printed.contains("guess"), "{printed}");
    }
}

#[test]
fn mongods_own_options_mean_the_same() {
    let (files, authority) = (Files::new("mongod"), Authority::new("Tests"));
    let own = files.write("server.pem", &authority.certificate("server").pem);
    let ca = files.write("ca.pem", &authority.pem());
    let data = files.join("data");
    std::fs::create_dir_all(&data).unwrap();
    let yaml = format!(
        "net:\n  port: 0\n  tls:\n    mode: requireTLS\n    certificateKeyFile: {own}\n    CAFile: {ca}\n    \
         allowConnectionsWithoutCertificates: true\n    disabledProtocols: TLS1_0,TLS1_1\nstorage:\n  dbPath: {}\n",
        data.display()
    );
    let file = files.write("mongod.conf", &yaml);
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_vellum"))
        .args(["mongod", "--config", &file])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let waits = lines.into_iter().find(|line| line.contains("\"id\":23016")).unwrap();
    let port = waits.split("\"port\":").nth(1).and_then(|rest| rest.split([',', '}']).next()).unwrap();
    let address = format!("127.0.0.1:{port}");
    let served = answers(Caller { trusts: Some(&authority), ..Caller::anonymous() }.connect(&address));
    let plain = answers(Client::connect(&address, Duration::from_secs(20)));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(waits.contains("\"ssl\":\"on\""), "{waits}");
    assert!(served && !plain);
}

/// Returns the output of `vellum ping`, and whether it succeeded.
fn ping(uri: &str) -> (bool, String) {
    let output =
        std::process::Command::new(env!("CARGO_BIN_EXE_vellum")).args(["ping", uri]).output().unwrap();
    let printed = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(printed).unwrap())
}

#[test]
fn ping_takes_the_options_of_drivers() {
    let Some(setting) = Setting::new("ping", "require", &["--tls-ca-file", "CA"]) else { return };
    let uri = |options: String| format!("mongodb://{}/?{options}", setting.server.address());
    let ca = format!("tls=true&tlsCAFile={}", setting.files.join("ca.pem").display());
    let own = setting.files.write("client.pem", &setting.authority.certificate("client").pem);
    let own = format!("tlsCertificateKeyFile={own}");
    let (good, printed) = ping(&uri(format!("{ca}&{own}")));
    assert!(good && printed.contains("answers"), "{printed}");
    let encrypted = crate::root().join("crates/wire/tests/fixtures/aes.pem");
    let other = Authority::new("Others");
    let others = setting.files.write("others.pem", &other.pem());
    for (options, part) in [
        (String::new(), "MongoDB's protocol. It may require TLS: add ?tls=true"),
        (ca.clone(), "certificate"),
        (format!("tls=true&tlsCAFile={others}&{own}"), "UnknownIssuer"),
        (format!("tls=true&tlsCAFile=/nowhere/ca.pem&{own}"), "/nowhere/ca.pem"),
        (format!("{ca}&tlsCertificateKeyFile={}", encrypted.display()), "no password"),
        (own.clone(), "need tls=true"),
    ] {
        let (good, printed) = ping(&uri(options));
        assert!(!good && printed.to_lowercase().contains(&part.to_lowercase()), "{part}: {printed}");
    }
    for insecure in ["tlsInsecure=true", "tlsAllowInvalidCertificates=true"] {
        let (good, printed) = ping(&uri(format!("tls=true&tlsCAFile={others}&{own}&{insecure}")));
        assert!(good, "{printed}");
    }
    let named =
        format!("mongodb://localhost:{}/?{ca}&{own}", setting.server.address().rsplit(':').next().unwrap());
    assert!(ping(&named).0);
    let ipv6 = |more: &str| {
        format!(
            "mongodb://[::ffff:127.0.0.1]:{}/?{ca}&{own}{more}",
            setting.server.address().rsplit(':').next().unwrap()
        )
    };
    let (good, printed) = ping(&ipv6(""));
    assert!(!good && printed.contains("not valid for name"), "{printed}");
    let (good, printed) = ping(&ipv6("&tlsAllowInvalidHostnames=true"));
    assert!(good, "{printed}");
}

const SUBJECT: &str = "CN=client,O=Vellum,C=DE";

fn text(reply: &DocumentBuf, name: &str) -> String {
    reply.view().get(name).and_then(|value| value.as_str()).unwrap_or("").to_string()
}

fn is_ok(reply: &DocumentBuf) -> bool {
    reply.view().get("ok").and_then(|ok| ok.as_i64()) == Some(1)
}

#[test]
fn a_certificate_logs_its_owner_in() {
    let more = ["--auth", "--tls-ca-file", "CA", "--tls-allow-connections-without-certificates"];
    let Some(setting) = Setting::new("x509", "require", &more) else { return };
    let made = setting.authority.certificate("client");
    let mut client = setting.secure(Some(&made)).unwrap();
    let count = "{count: 'c', $db: 'test'}";
    assert!(!is_ok(&run(&mut client, count).unwrap()));
    let create = format!(
        "{{createUser: '{SUBJECT}', roles: [{{role: 'readWriteAnyDatabase', db: 'admin'}}, {{role: 'userAdminAnyDatabase', db: 'admin'}}], \
         $db: '$external'}}"
    );
    let created = run(&mut client, &create).unwrap();
    assert!(is_ok(&created), "{created:?}");
    let authenticate = "{authenticate: 1, mechanism: 'MONGODB-X509', $db: '$external'}";
    let reply = run(&mut client, authenticate).unwrap();
    assert!(
        is_ok(&reply) && text(&reply, "user") == SUBJECT && text(&reply, "dbname") == "$external",
        "{reply:?}"
    );
    assert!(is_ok(&run(&mut client, count).unwrap()));
    assert!(!is_ok(&run(&mut client, "{serverStatus: 1, $db: 'admin'}").unwrap()));
    let status = run(&mut client, "{connectionStatus: 1, $db: 'admin'}").unwrap();
    assert!(format!("{status:?}").contains(SUBJECT), "{status:?}");

    // Within the hello, with the name and without, as drivers do.
    for named in ["", ", db: '$external'", &format!(", user: '{SUBJECT}', db: '$external'")] {
        let mut early = setting.secure(Some(&made)).unwrap();
        let hello = format!(
            "{{hello: 1, speculativeAuthenticate: {{authenticate: 1, mechanism: 'MONGODB-X509'{named}}}, \
             $db: 'admin'}}"
        );
        let reply = run(&mut early, &hello).unwrap();
        let login =
            reply.view().get("speculativeAuthenticate").and_then(|login| login.as_document()).unwrap();
        assert_eq!(login.get("user").and_then(|user| user.as_str()), Some(SUBJECT));
        assert!(is_ok(&run(&mut early, count).unwrap()));
    }

    let refused = |shows: Option<&Made>, command: &str, code: i64, part: &str| {
        let mut client = setting.secure(shows).unwrap();
        let reply = run(&mut client, command).unwrap();
        let found = reply.view().get("code").and_then(|code| code.as_i64());
        assert!(found == Some(code) && text(&reply, "errmsg").contains(part), "{command}: {reply:?}");
        assert!(!is_ok(&run(&mut client, count).unwrap()), "{command}");
    };
    refused(None, authenticate, 18, "No verified subject");
    refused(
        Some(&setting.authority.certificate("somebody else")),
        authenticate,
        18,
        "Authentication failed.",
    );
    let as_another = "{authenticate: 1, mechanism: 'MONGODB-X509', user: 'CN=root', $db: '$external'}";
    refused(Some(&made), as_another, 18, "no x.509 client certificate matching");
    refused(Some(&made), "{authenticate: 1, mechanism: 'MONGODB-X509', $db: 'test'}", 17, "$external");
    refused(
        Some(&made),
        "{authenticate: 1, mechanism: 'MONGODB-CR', user: 'a', $db: 'test'}",
        334,
        "MONGODB-CR",
    );

    // A user without a password, whose name any client could send.
    let by_password = format!(
        "{{saslStart: 1, mechanism: 'SCRAM-SHA-256', payload: {{$binary: {{base64: '{}', subType: '00'}}}}, $db: '$external'}}",
        "biwsbj1DTixyPWFiY2RlZmdoaWprbA=="
    );
    let mut stranger = setting.secure(None).unwrap();
    let login = run(&mut stranger, &by_password).unwrap();
    assert!(!is_ok(&run(&mut stranger, count).unwrap()), "{login:?}");

    let ca = setting.files.join("ca.pem").display().to_string();
    let own = setting.files.write("client.pem", &made.pem);
    let uri = format!(
        "mongodb://{}/?tls=true&tlsCAFile={ca}&tlsCertificateKeyFile={own}&authMechanism=MONGODB-X509",
        setting.server.address()
    );
    let (good, printed) = ping(&uri);
    assert!(good, "{printed}");
    let dropped = run(&mut client, &format!("{{dropUser: '{SUBJECT}', $db: '$external'}}")).unwrap();
    assert!(is_ok(&dropped), "{dropped:?}");
    assert!(!is_ok(&run(&mut client, count).unwrap()));
    let (good, printed) = ping(&uri);
    assert!(!good && printed.contains("logging in"), "{printed}");
}

#[test]
fn a_certificate_needs_tls() {
    let Some(server) = Server::start_with(&["--auth"]) else { return };
    let mut client = server.connect().unwrap();
    let reply = run(&mut client, "{authenticate: 1, mechanism: 'MONGODB-X509', $db: '$external'}").unwrap();
    assert!(text(&reply, "errmsg").contains("SSL support is required"), "{reply:?}");
}

#[test]
fn ping_logs_in() {
    let Some(server) = Server::start_with(&["--auth"]) else { return };
    let mut client = server.connect().unwrap();
    let create = "{createUser: 'ro:ot', pwd: 'p@ss/', roles: ['root'], $db: 'admin'}";
    assert!(is_ok(&run(&mut client, create).unwrap()));
    let (good, printed) = ping(&format!("mongodb://{}/", server.address()));
    assert!(good, "{printed}");
    for mechanism in ["", "?authMechanism=SCRAM-SHA-1", "?authMechanism=SCRAM-SHA-256"] {
        let (good, printed) = ping(&format!("mongodb://ro%3Aot:p%40ss%2F@{}/{mechanism}", server.address()));
        assert!(good, "{mechanism}: {printed}");
    }
    for wrong in ["ro%3Aot:guess", "nobody:p%40ss%2F"] {
        let (good, printed) = ping(&format!("mongodb://{wrong}@{}/", server.address()));
        assert!(
            !good && printed.contains("logging in: Authentication failed") && !printed.contains("guess"),
            "{printed}"
        );
    }
}
