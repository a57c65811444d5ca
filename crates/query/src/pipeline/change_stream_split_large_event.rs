//! `$changeStreamSplitLargeEvent`: splits events that exceed the document size into fragments.

use super::operator::Operator;
use super::parse::{Parsed, Scope};
use super::{Environment, Stage, Stream};
use crate::Row;
use crate::change::split::{split, token_of};
use crate::change::{ResumeToken, Spec, id_modified};
use base::bson::{Document, DocumentBuf, Element, MAX_DOCUMENT_SIZE, Value};
use base::{Result, bail};
use std::sync::Arc;

/// A parsed `$changeStreamSplitLargeEvent`.
struct SplitLargeEvent {
    /// The fragment after which the stream resumes.
    resume: Option<ResumeToken>,
    most: usize,
}

/// Parses the stage. Errors: 7182800 for anything but an empty document.
pub(crate) fn parse(spec: &Element<'_>, scope: &Scope<'_>) -> Result<Parsed> {
    match spec.value() {
        Value::Document(fields) if fields.is_empty() => {}
        _ => bail!(7182800, "$changeStreamSplitLargeEvent spec should be an empty object"),
    }
    let stream = scope.first().and_then(|first| first.find("$changeStream"));
    let token = match stream.map(|stream| Spec::parse(&stream)).transpose()? {
        Some(spec) => spec.token().cloned(),
        None => None,
    };
    let resume = match token {
        Some(token) if token.parts()?.fragment.is_some() => Some(token),
        _ => None,
    };
    Ok(Parsed::one(SplitLargeEvent { resume, most: MAX_DOCUMENT_SIZE }))
}

impl Operator for SplitLargeEvent {
    fn start(self: Arc<Self>, input: Stream, _environment: &Environment) -> Result<Stream> {
        let resume = self.resume.clone();
        Ok(Box::new(Running { stage: self, input, resume, queue: Vec::new() }))
    }
}

/// Splits one event at a time.
struct Running {
    stage: Arc<SplitLargeEvent>,
    input: Stream,
    resume: Option<ResumeToken>,
    /// Remaining fragments; the next is last.
    queue: Vec<DocumentBuf>,
}

impl Running {
    /// Returns the number of fragments of the event that the client has received already.
    fn skipped(&mut self, token: &ResumeToken, is_large: bool) -> Result<usize> {
        let Some(resume) = self.resume.take().filter(|resume| resume.is_fragment_of(token)) else {
            return Ok(0);
        };
        if !is_large {
            bail!(
                ChangeStreamFatalError,
                "Attempted to resume from a split event fragment, but the event in the resumed stream was not large \
                 enough to be split"
            );
        }
        Ok(resume.parts()?.fragment.map_or(0, |fragment| fragment as usize + 1))
    }

    /// Splits an event and queues the fragments that the client has not received. Errors: ChangeStreamFatalError if the
    /// event now has fewer fragments.
    fn fill(&mut self, event: Document<'_>, token: &ResumeToken) -> Result<()> {
        let skipped = self.skipped(token, true)?;
        self.queue = split(event, token, self.stage.most)?;
        if skipped > self.queue.len() {
            bail!(
                ChangeStreamFatalError,
                "Attempted to resume from a split event, but the resumed stream produced a different split. Ensure \
                 that the pipeline used to resume is the same as the original"
            );
        }
        self.queue.drain(..skipped);
        self.queue.reverse();
        Ok(())
    }
}

impl Stage for Running {
    fn next(&mut self) -> Result<Option<Row>> {
        loop {
            if let Some(fragment) = self.queue.pop() {
                return Ok(Some(fragment.into()));
            }
            let Some(row) = self.input.next()? else { return Ok(None) };
            let event = row.document.view();
            let is_large = event.bytes().len() > self.stage.most;
            if !is_large && self.resume.is_none() {
                return Ok(Some(row));
            }
            match token_of(event) {
                Some(token) if is_large => self.fill(event, &token)?,
                Some(token) => {
                    self.skipped(&token, false)?;
                    return Ok(Some(row));
                }
                // The reader of the stream detects a changed `_id`.
                None if !is_large => return Ok(Some(row)),
                None => return Err(id_modified(&ResumeToken::before(0), event)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Context;
    use crate::pipeline::testing::{Memory, collect, fails};
    use crate::pipeline::{Collections, from_documents};
    use base::bson::Builder;

    fn event(time: u64, sizes: &[usize]) -> DocumentBuf {
        let mut out = Builder::new();
        out.append(c"_id", &ResumeToken::sample(time).to_document());
        for (number, size) in sizes.iter().enumerate() {
            out.append(
                &base::bson::FieldNameBuf::new(format!("f{number}")).unwrap(),
                "x".repeat(*size).as_str(),
            );
        }
        out.finish()
    }

    fn run(resume: Option<ResumeToken>, events: &[DocumentBuf]) -> Result<Vec<String>> {
        let stage = Arc::new(SplitLargeEvent { resume, most: 1000 });
        let collections = Arc::new(Memory::default()) as Arc<dyn Collections>;
        let environment = Environment::new(collections, Arc::new(Context::for_tests()));
        let documents = collect(stage.start(from_documents(events.to_vec()), &environment)?)?;
        let shown = |document: &DocumentBuf| match document.view().get("splitEvent") {
            Some(Value::Document(split)) => {
                format!("{}/{}", split.get("fragment").unwrap(), split.get("of").unwrap())
            }
            _ => "whole".to_owned(),
        };
        Ok(documents.iter().map(shown).collect())
    }

    #[test]
    fn large_events_are_split() {
        let events = [event(1, &[10]), event(2, &[500, 600, 700]), event(3, &[10])];
        assert_eq!(run(None, &events).unwrap(), ["whole", "1/3", "2/3", "3/3", "whole"]);
        let token = ResumeToken::sample(2);
        let rest = &events[1..];
        assert_eq!(run(Some(token.fragment(0)), rest).unwrap(), ["2/3", "3/3", "whole"]);
        assert_eq!(run(Some(token.fragment(2)), rest).unwrap(), ["whole"]);
        let failed = |fragment, events: &[DocumentBuf]| run(Some(fragment), events).unwrap_err();
        assert!(failed(token.fragment(3), rest).message().contains("produced a different split"));
        let small = [event(2, &[10])];
        let error = failed(token.fragment(0), &small);
        assert!(error.code().number() == 280 && error.message().contains("was not large enough"));
    }

    #[test]
    fn it_must_be_the_last_stage() {
        let split = "{$changeStreamSplitLargeEvent: {}}";
        fails(&format!("[{split}]"), 20, "can only be used in a $changeStream pipeline");
        fails(&format!("[{split}, {{$match: {{}}}}]"), 7182802, "must be the last stage in the pipeline");
        fails("[{$changeStreamSplitLargeEvent: {a: 1}}]", 7182800, "spec should be an empty object");
    }
}
