//! Long operations of some clients do not delay other clients.

use crate::server::Server;
use base::bson::extended_json::parse;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// More than the network threads of a small machine.
const LONG_CLIENTS: usize = 8;

/// A count far beyond its time limit, in one expression of one document.
const LONG: &str = "{aggregate: 1, $db: 'test', cursor: {}, maxTimeMS: 4000, pipeline: [{$documents: [{}]}, \
    {$project: {n: {$reduce: {input: {$range: [0, 1000000]}, initialValue: 0, \
    in: {$add: ['$$value', {$size: {$filter: {input: {$range: [0, 1000]}, cond: {$gt: ['$$this', 7]}}}}]}}}}}]}";

#[test]
fn long_commands_do_not_delay_other_clients() {
    let Some(server) = Server::start() else { return };
    let ended = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..LONG_CLIENTS {
            scope.spawn(|| {
                let reply = server.connect().unwrap().command(&parse(LONG).unwrap()).unwrap();
                let code = reply.view().get("code").and_then(|code| code.as_i64());
                assert_eq!(code, Some(50), "it ends by its time limit: {reply}");
                ended.fetch_add(1, Ordering::SeqCst);
            });
        }
        // When currentOp shows all of them, each has its own thread.
        let current = parse("{currentOp: 1, $db: 'admin', op: 'command', ns: 'test.$cmd'}").unwrap();
        let mut client = server.connect().unwrap();
        let running = |reply: &base::bson::DocumentBuf| {
            reply.view().get("inprog").and_then(|list| list.as_array()).map_or(0, |list| list.len())
        };
        while running(&client.command(&current).unwrap()) < LONG_CLIENTS {
            assert_eq!(ended.load(Ordering::SeqCst), 0, "currentOp had to wait");
        }
        for _ in 0..20 {
            let ping = parse("{ping: 1, $db: 'admin'}").unwrap();
            let reply = server.connect().unwrap().command(&ping).unwrap();
            assert_eq!(reply.view().get("ok").and_then(|ok| ok.as_i64()), Some(1));
        }
        assert_eq!(ended.load(Ordering::SeqCst), 0, "the pings had to wait");
    });
}
