//! The recorder and the player against a server of canned replies.

mod player;
mod recorder;

use crate::message::{HEADER_SIZE, MORE_TO_COME, Message, Opcode, decompressed};
use base::bson::extended_json::parse;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;

/// Answers each connection's commands until the client leaves.
fn serve(listener: &TcpListener) {
    for stream in listener.incoming().flatten() {
        std::thread::spawn(move || reply_to(stream));
    }
}

/// A cursor that holds one document, or `{ok: 1}`.
fn reply_to(mut stream: TcpStream) -> Option<()> {
    loop {
        let mut frame = vec![0; HEADER_SIZE];
        stream.read_exact(&mut frame).ok()?;
        frame.resize(usize::try_from(crate::message::read_i32(&frame, 0)?).ok()?, 0);
        stream.read_exact(&mut frame[HEADER_SIZE..]).ok()?;
        let frame = decompressed(&frame)?;
        let request = Message::read(&frame)?;
        if request.flags & MORE_TO_COME != 0 {
            continue;
        }
        let name = crate::message::Sections::parse(request.sections)?.command().to_string();
        let reply = match name.as_str() {
            "find" | "aggregate" => {
                "{cursor: {id: NumberLong(0), ns: 'a.b', firstBatch: [{_id: 1}]}, ok: 1.0}"
            }
            "getMore" => "{cursor: {id: NumberLong(0), ns: 'a.b', nextBatch: []}, ok: 1.0}",
            "hello" | "isMaster" => "{isWritablePrimary: true, maxWireVersion: 25, ok: 1.0}",
            _ => "{ok: 1.0}",
        };
        let body = parse(reply).ok()?;
        let mut out = Vec::new();
        for number in
            [(HEADER_SIZE + 5 + body.bytes().len()) as i32, 1, request.id, Opcode::Message as i32, 0]
        {
            out.extend(number.to_le_bytes());
        }
        out.push(0);
        out.extend(body.bytes());
        stream.write_all(&out).ok()?;
    }
}

/// A directory that is removed with its content.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("vellum-replay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
