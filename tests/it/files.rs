//! File descriptors: the server raises its limit to the maximum, and connections leave some for its files.

use crate::requests::until;
use crate::server::{Scratch, Server};
use base::bson::extended_json::parse;

#[test]
fn connections_leave_descriptors_to_the_files() {
    let data = Scratch::new("files");
    let Some(server) = Server::start_with_files(&data, 64, 200) else { return };
    let ping = parse("{ping: 1, $db: 'admin'}").unwrap();
    // Four fifths of the process's limit, which is now the hard limit.
    let mut clients: Vec<_> = (0..160).map(|_| server.connect().unwrap()).collect();
    for client in &mut clients {
        assert_eq!(client.command(&ping).unwrap().view().get("ok").and_then(|ok| ok.as_i64()), Some(1));
    }
    for _ in 0..100 {
        let refused = server.connect().and_then(|mut client| client.command(&ping));
        assert!(refused.is_err(), "{refused:?}");
    }
    let mut run = |command: &str| {
        let reply = clients[7].command(&parse(command).unwrap()).unwrap();
        assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1), "{reply:?}");
        reply
    };
    // The writes create journal segments and a checkpoint.
    let text = "x".repeat(4 << 20);
    for id in 0..24 {
        run(&format!(
            "{{insert: 'c', documents: [{{_id: {id}, text: '{text}'}}], writeConcern: {{j: true}}, $db: 'test'}}"
        ));
    }
    run("{fsync: 1, $db: 'admin'}");
    let counted = run("{count: 'c', $db: 'test'}");
    assert_eq!(counted.view().get("n").and_then(|n| n.as_i64()), Some(24));
    let status = run("{serverStatus: 1, $db: 'admin'}");
    let connections = status.view().get("connections").and_then(|part| part.as_document()).unwrap();
    assert_eq!(connections.get("current").and_then(|n| n.as_i64()), Some(160));
    assert_eq!(connections.get("available").and_then(|n| n.as_i64()), Some(0));
    drop(clients);
    until("places of closed connections are free", || {
        server.connect().and_then(|mut client| client.command(&ping)).is_ok()
    });
}
