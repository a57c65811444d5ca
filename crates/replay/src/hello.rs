//! Answers to hello, with the recorder in the place of the server, so that drivers stay with it.

use super::message::{CHECKSUM, HEADER, MORE_TO_COME, Message, Opcode, REPLY_PREFIX, checked, opcode};
use base::bson::{Builder, Document, DocumentBuf, FieldName};

/// The same frame, unpacked, with every member of the set being at `address`; `None` if it holds no document.
pub(super) fn rewritten(frame: &[u8], address: &str) -> Option<Vec<u8>> {
    let is_legacy = opcode(frame)? == Opcode::Reply;
    let (prefix, document) = if is_legacy {
        let body = HEADER + REPLY_PREFIX;
        (frame.get(HEADER..body)?.to_vec(), checked(frame.get(body..)?)?)
    } else {
        let message = Message::read(frame)?;
        let mut prefix = (message.flags & !CHECKSUM).to_le_bytes().to_vec();
        prefix.push(0);
        (prefix, checked(message.sections.get(1..)?)?)
    };
    let document = here(document, address);
    let length = HEADER + prefix.len() + document.bytes().len();
    let mut out = (length as i32).to_le_bytes().to_vec();
    out.extend(frame.get(4..HEADER)?);
    out.extend(prefix);
    out.extend(document.bytes());
    Some(out)
}

/// Whether further answers follow this one unasked.
pub(super) fn is_followed(frame: &[u8]) -> bool {
    Message::read(frame).is_some_and(|message| message.flags & MORE_TO_COME != 0)
}

fn here(document: Document<'_>, address: &str) -> DocumentBuf {
    let mut out = Builder::new();
    for element in document {
        match element.name() {
            name @ ("me" | "primary") => {
                out.append(FieldName::known(name), address);
            }
            "hosts" => {
                out.begin_array(c"hosts").push(address).end();
            }
            // Members that can't be reached through the recorder.
            "passives" | "arbiters" => {}
            _ => {
                out.append_element(&element);
            }
        }
    }
    out.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    fn frame(opcode: Opcode, prefix: &[u8], text: &str) -> Vec<u8> {
        let body = parse(text).unwrap();
        let mut out = Vec::new();
        for number in [(HEADER + prefix.len() + body.bytes().len()) as i32, 5, 6, opcode as i32] {
            out.extend(number.to_le_bytes());
        }
        out.extend(prefix);
        out.extend(body.bytes());
        out
    }

    #[test]
    fn members_of_a_set_are_at_the_recorder() {
        let before =
            "{setName: 'rs0', hosts: ['a:1', 'b:2'], arbiters: ['c:3'], primary: 'a:1', me: 'b:2', ok: 1}";
        let after = "{setName: 'rs0', hosts: ['r:9'], primary: 'r:9', me: 'r:9', ok: 1}";
        for (opcode, prefix) in [(Opcode::Message, 5), (Opcode::Reply, REPLY_PREFIX)] {
            let prefix = vec![0; prefix];
            assert_eq!(
                rewritten(&frame(opcode, &prefix, before), "r:9").unwrap(),
                frame(opcode, &prefix, after)
            );
        }
    }

    #[test]
    fn what_holds_no_document_stays() {
        assert_eq!(rewritten(&frame(Opcode::Reply, &[0; REPLY_PREFIX], "{}")[..40], "r:9"), None);
    }
}
