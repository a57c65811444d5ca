//! A client with a change stream over the collections `a` and `c`. It opens the stream again after a lost reply and
//! after a restart, as a driver does. Each event must be the next one of the model, and no crash may undo it.

use crate::action::{cursor, integer};
use crate::model::{Event, Model};
use base::bson::{Document, Value, extended_json};
use base::random::Random;
use server::SimulatedConnection;

/// The client.
#[derive(Default)]
pub(crate) struct Watcher {
    pub(crate) connection: Option<SimulatedConnection>,
    /// True if the server has received the request.
    pub(crate) is_sent: bool,
    /// The open cursor.
    cursor: Option<i64>,
    /// The resume token as extended JSON.
    token: String,
    /// The next event: the number of its version, and its number there.
    next: (usize, usize),
}

/// The stage of the stream.
fn stage(token: Option<&str>) -> String {
    let resume = token.map(|token| format!("resumeAfter: {token}")).unwrap_or_default();
    let filter = "{$match: {'ns.coll': {$in: ['a', 'c']}}}";
    format!(
        "{{aggregate: 1, pipeline: [{{$changeStream: {{{resume}}}}}, {filter}], cursor: {{}}, $db: 'test'}}"
    )
}

impl Watcher {
    /// Returns the command that opens the stream at the present.
    pub(crate) fn first_request() -> String {
        stage(None)
    }

    /// Returns the next command.
    pub(crate) fn request(&self, random: &Random) -> String {
        let Some(id) = self.cursor else { return stage(Some(&self.token)) };
        let (size, millis) = (1 + random.below(4), 1 + random.below(2000));
        let options = format!("collection: '$cmd.aggregate', batchSize: {size}, maxTimeMS: {millis}");
        format!("{{getMore: {{$numberLong: '{id}'}}, {options}, $db: 'test'}}")
    }

    /// Forgets the connection and the cursor.
    pub(crate) fn lose(&mut self) {
        (self.connection, self.is_sent, self.cursor) = (None, false, None);
    }

    /// Goes back to the end of the versions that a crash has left. It has not undone a version with shown events.
    pub(crate) fn recover(&mut self, versions: usize) {
        self.next = self.next.min((versions, 0));
    }

    /// Returns true if the stream has shown all events.
    pub(crate) fn has_all(&mut self, model: &Model) -> bool {
        self.next_event(model).is_none()
    }

    fn next_event<'a>(&mut self, model: &'a Model) -> Option<(u64, &'a Event)> {
        loop {
            let version = model.versions.get(self.next.0)?;
            match version.events.iter().filter(|event| matches!(event.collection, "a" | "c")).nth(self.next.1)
            {
                Some(event) => return Some((version.position, event)),
                None => self.next = (self.next.0 + 1, 0),
            }
        }
    }

    /// Checks the events of a reply. Returns their number. Errors: an event is not the next one.
    pub(crate) fn take(&mut self, reply: Document<'_>, model: &mut Model) -> Result<usize, String> {
        let (id, events) = cursor(reply)?;
        for event in &events {
            let seen = extended_json::to_relaxed(*event);
            let Some((position, expected)) = self.next_event(model) else {
                return Err(format!("the change stream shows an event that did not happen: {seen}"));
            };
            if *expected != read(*event)? {
                return Err(format!("the change stream shows {seen} instead of {expected:?}"));
            }
            model.answer(position, true);
            self.next.1 += 1;
        }
        let token = reply.get("cursor").and_then(|cursor| cursor.as_document()?.get("postBatchResumeToken"));
        let token = token.and_then(|token| token.as_document()).ok_or("no resume token")?;
        (self.token, self.cursor) = (extended_json::to_relaxed(token), Some(id));
        Ok(events.len())
    }
}

/// Reads an event.
fn read(event: Document<'_>) -> Result<Event, String> {
    let text = |value: Option<Value<'_>>, known: &[&'static str]| {
        let value = value.and_then(|value| value.as_str()).unwrap_or_default();
        known.iter().copied().find(|known| *known == value).ok_or(format!("an unexpected {value}"))
    };
    let inner = |name: &str| event.get(name).and_then(|value| value.as_document()).unwrap_or(Document::EMPTY);
    let kind = text(event.get("operationType"), &["insert", "update", "delete"])?;
    let update = inner("updateDescription").get("updatedFields").and_then(|fields| fields.as_document());
    let w = match kind {
        "insert" => Some(integer(inner("fullDocument"), "w")?),
        "update" => Some(integer(update.ok_or("no updated fields")?, "w")?),
        _ => None,
    };
    let collection = text(inner("ns").get("coll"), &["a", "c"])?;
    Ok(Event { kind, collection, id: integer(inner("documentKey"), "_id")?, w })
}
