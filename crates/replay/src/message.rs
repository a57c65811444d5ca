//! Parsing of protocol messages, as far as a recording needs it.

use base::bson::{Document, validate};
use std::borrow::Cow;
use std::io;
use tokio::io::{AsyncRead, AsyncReadExt};
use wire::compression::decompress_message;
pub(crate) use wire::header::{HEADER_SIZE, Opcode, read_i32};
use wire::header::{Header, MAX_MESSAGE_SIZE, document_length, frame_length};
use wire::message::split_sections;
pub(crate) use wire::message::{CHECKSUM_PRESENT, EXHAUST_ALLOWED, MORE_TO_COME};

/// Length of the fields before the document in an OP_REPLY: flags, cursor, position, number of documents.
pub(crate) const REPLY_PREFIX: usize = 20;

/// Reads a whole message; `None` if the peer has closed the connection.
///
/// # Errors
/// A broken connection, or bytes that begin no message.
pub(crate) async fn read_frame(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<Vec<u8>>> {
    let mut head = [0; HEADER_SIZE];
    match stream.read_exact(&mut head).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "this is not MongoDB's protocol");
    let length = frame_length(&head).ok().flatten().ok_or_else(invalid)?;
    let mut frame = head.to_vec();
    // Memory grows with the bytes read, not with the claimed length.
    let rest = (length - HEADER_SIZE) as u64;
    if (&mut *stream).take(rest).read_to_end(&mut frame).await? < length - HEADER_SIZE {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok(Some(frame))
}

/// Decompresses a frame if it is compressed; `None` if it is invalid.
pub(crate) fn decompressed(frame: &[u8]) -> Option<Cow<'_, [u8]>> {
    if opcode(frame)? != Opcode::Compressed {
        return Some(Cow::Borrowed(frame));
    }
    let mut out = Vec::new();
    decompress_message(frame, MAX_MESSAGE_SIZE, &mut out).ok()?;
    // Replies name their request in this field.
    out.get_mut(8..12)?.copy_from_slice(frame.get(8..12)?);
    Some(Cow::Owned(out))
}

/// Returns the opcode of a message.
pub(crate) fn opcode(frame: &[u8]) -> Option<Opcode> {
    Some(Header::split(frame).ok()?.0.opcode)
}

/// An OP_MSG.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    pub(crate) id: i32,
    pub(crate) to: i32,
    pub(crate) flags: u32,
    /// The sections without the checksum.
    pub(crate) sections: &'a [u8],
}

impl<'a> Message<'a> {
    /// Parses a decompressed frame; `None` if it is no OP_MSG.
    pub(crate) fn read(frame: &'a [u8]) -> Option<Message<'a>> {
        if opcode(frame)? != Opcode::Message {
            return None;
        }
        let flags = read_i32(frame, HEADER_SIZE)? as u32;
        let end = if flags & CHECKSUM_PRESENT != 0 { frame.len().checked_sub(4)? } else { frame.len() };
        let sections = frame.get(HEADER_SIZE + 4..end)?;
        let (id, to) = (read_i32(frame, 4)?, read_i32(frame, 8)?);
        Some(Message { id, to, flags: flags & !CHECKSUM_PRESENT, sections })
    }
}

/// Returns the request id and the command of an OP_QUERY.
pub(crate) fn query_command(frame: &[u8]) -> Option<(i32, String)> {
    if opcode(frame)? != Opcode::Query {
        return None;
    }
    let name = frame.get(HEADER_SIZE + 4..)?;
    let end = name.iter().position(|byte| *byte == 0)?;
    let body = validated(name.get(end + 9..)?)?;
    let first = body.first()?;
    let command = match (first.name(), first.value().as_document()) {
        ("$query" | "query", Some(inner)) => inner.first()?.name().to_string(),
        (name, _) => name.to_string(),
    };
    Some((read_i32(frame, 4)?, command))
}

/// Returns the valid document at the start of the bytes.
pub(crate) fn validated(bytes: &[u8]) -> Option<Document<'_>> {
    let document = bytes.get(..document_length(bytes)?)?;
    validate(document).ok()?;
    Some(Document::from_valid(document))
}

/// Returns the name of the command, for a request whose documents are not validated.
pub(crate) fn command_name(mut rest: &[u8]) -> Option<&str> {
    while let Some((kind, section)) = rest.split_first() {
        let (section, behind) = section.split_at_checked(usize::try_from(read_i32(section, 0)?).ok()?)?;
        if *kind == 0 {
            return Document::from_valid(section).first().map(|element| element.name());
        }
        rest = behind;
    }
    None
}

/// The sections of an OP_MSG: its body, and its document sequences.
#[derive(Clone, Debug)]
pub(crate) struct Sections<'a> {
    pub(crate) body: Document<'a>,
    pub(crate) sequences: Vec<(&'a str, Vec<Document<'a>>)>,
}

impl<'a> Sections<'a> {
    /// Parses sections; `None` if they or their documents are invalid.
    pub(crate) fn parse(sections: &'a [u8]) -> Option<Sections<'a>> {
        let (body, raw) = split_sections(sections).ok()?;
        let named = |(name, bytes)| Some((std::str::from_utf8(name).ok()?, documents(bytes)?));
        let sequences = raw.into_iter().map(named).collect::<Option<_>>()?;
        Some(Sections { body: validated(body)?, sequences })
    }

    /// Returns the name of the command.
    pub(crate) fn command(&self) -> &'a str {
        self.body.first().map_or("", |element| element.name())
    }

    /// Returns the encoded sections with documents changed by `change`. Its first argument is the name of the document
    /// sequence, empty for the body.
    pub(crate) fn encode_with(
        &self,
        mut change: impl FnMut(&'a str, Document<'a>) -> base::bson::DocumentBuf,
    ) -> Vec<u8> {
        let mut out = vec![0];
        out.extend(change("", self.body).bytes());
        for (name, documents) in &self.sequences {
            let start = out.len() + 1;
            out.extend([1, 0, 0, 0, 0]);
            out.extend(name.as_bytes());
            out.push(0);
            for document in documents {
                out.extend(change(name, *document).bytes());
            }
            let length = (out.len() - start) as u32;
            if let Some(slot) = out.get_mut(start..start + 4) {
                slot.copy_from_slice(&length.to_le_bytes());
            }
        }
        out
    }
}

/// Splits consecutive documents; `None` if any of them is invalid.
fn documents(mut rest: &[u8]) -> Option<Vec<Document<'_>>> {
    let mut list = Vec::new();
    while !rest.is_empty() {
        let document = validated(rest)?;
        rest = rest.get(document.bytes().len()..)?;
        list.push(document);
    }
    Some(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;
    use wire::compression::{Compressor, compress};

    fn sections() -> Vec<u8> {
        let mut out = vec![0];
        out.extend(parse("{insert: 'c', $db: 'd'}").unwrap().bytes());
        let list = [parse("{_id: 1}").unwrap(), parse("{_id: 2}").unwrap()];
        let length = 4 + "documents".len() + 1 + list.iter().map(|each| each.bytes().len()).sum::<usize>();
        out.push(1);
        out.extend((length as u32).to_le_bytes());
        out.extend(b"documents\0");
        list.iter().for_each(|each| out.extend(each.bytes()));
        out
    }

    fn frame(opcode: Opcode, flags: u32, content: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        for number in [(HEADER_SIZE + 4 + content.len()) as i32, 5, 6, opcode as i32, flags as i32] {
            out.extend(number.to_le_bytes());
        }
        out.extend(content);
        out
    }

    #[test]
    fn messages_are_parsed_and_encoded() {
        let sections = sections();
        let frame = frame(Opcode::Message, MORE_TO_COME, &sections);
        let message = Message::read(&frame).unwrap();
        assert_eq!((message.id, message.to, message.flags), (5, 6, MORE_TO_COME));
        let parts = Sections::parse(message.sections).unwrap();
        assert_eq!(
            (parts.command(), parts.sequences[0].0, parts.sequences[0].1.len()),
            ("insert", "documents", 2)
        );
        assert_eq!(parts.encode_with(|_, document| document.to_owned()), sections);
        for end in 0..sections.len() {
            assert!(Sections::parse(&sections[..end]).is_none_or(|cut| cut.sequences.is_empty()), "{end}");
        }
    }

    #[test]
    fn checksums_are_no_section() {
        let mut content = sections();
        content.extend([1, 2, 3, 4]);
        let frame = frame(Opcode::Message, CHECKSUM_PRESENT, &content);
        let message = Message::read(&frame).unwrap();
        assert_eq!((message.flags, message.sections), (0, sections().as_slice()));
    }

    #[test]
    fn compressed_messages_are_decompressed() {
        let plain = frame(Opcode::Message, 0, &sections());
        for compressor in [Compressor::Noop, Compressor::Snappy, Compressor::Zlib, Compressor::Zstd] {
            let body = &plain[HEADER_SIZE..];
            let mut content = (body.len() as i32).to_le_bytes().to_vec();
            content.push(compressor as u8);
            compress(compressor, body, &mut content).unwrap();
            let mut compressed = frame(Opcode::Compressed, Opcode::Message as u32, &content);
            assert_eq!(decompressed(&compressed).unwrap().as_ref(), plain, "{compressor:?}");
            compressed[HEADER_SIZE + 4] ^= 1;
            assert!(decompressed(&compressed).is_none(), "{compressor:?}");
        }
    }

    #[test]
    fn legacy_hellos_are_parsed() {
        let mut content = b"admin.$cmd\0".to_vec();
        content.extend([0; 8]);
        content.extend(parse("{isMaster: 1}").unwrap().bytes());
        assert_eq!(query_command(&frame(Opcode::Query, 0, &content)), Some((5, "isMaster".to_string())));
        assert_eq!(query_command(&frame(Opcode::Message, 0, &content)), None);
    }

    #[tokio::test]
    async fn bytes_that_begin_no_message_are_errors() {
        assert!(read_frame(&mut b"GET / HTTP/1.1\r\n\r\n".as_slice()).await.is_err());
        assert!(read_frame(&mut b"".as_slice()).await.unwrap().is_none());
        let cut = frame(Opcode::Message, 0, &sections());
        assert!(read_frame(&mut &cut[..cut.len() - 1]).await.is_err());
        assert_eq!(read_frame(&mut cut.as_slice()).await.unwrap().unwrap(), cut);
    }
}
