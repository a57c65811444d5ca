//! Fragments of events that are too large for one document.

use super::token::ResumeToken;
use base::bson::{Builder, Document, DocumentBuf, Element, Value};
use base::{Result, bail, err};

/// Splits an event into fragments of at most `most` bytes. Small fields come first, which keeps the number of fragments
/// low and their content equal after a resume.
///
/// Errors: 7182502 for an event without fields, 7182500 for a field that does not fit by itself.
pub(crate) fn split(event: Document<'_>, token: &ResumeToken, most: usize) -> Result<Vec<DocumentBuf>> {
    let most = most.saturating_sub(token.to_document().bytes().len());
    let size = |field: &Element<'_>| field.name_bytes().len() + 2 + field.value_bytes().len();
    let mut fields: Vec<_> = event.iter().filter(|field| field.name() != "_id").collect();
    fields.sort_by(|a, b| size(a).cmp(&size(b)).then_with(|| a.name_bytes().cmp(b.name_bytes())));
    if fields.is_empty() {
        bail!(7182502, "Cannot split an empty event or an event containing solely '_id' field");
    }
    let head = |number: usize, of: usize| {
        let mut out = Builder::new();
        out.append(c"_id", &token.fragment(number as u32).to_document());
        out.begin_document(c"splitEvent")
            .append(c"fragment", number as i32 + 1)
            .append(c"of", of as i32)
            .end();
        out
    };
    let mut fragments: Vec<Vec<Element<'_>>> = Vec::new();
    let mut filled = most;
    for field in fields {
        if filled + size(&field) > most {
            filled = head(fragments.len(), 0).finish().bytes().len();
            fragments.push(Vec::new());
        }
        filled += size(&field);
        if filled > most {
            bail!(
                7182500,
                "Splitting change event failed: fragment size {filled} is greater than maximum allowed fragment \
                 size {most}"
            );
        }
        if let Some(last) = fragments.last_mut() {
            last.push(field);
        }
    }
    let of = fragments.len();
    let finished = fragments.iter().enumerate().map(|(number, fields)| {
        let mut out = head(number, of);
        for field in fields {
            out.append_element(field);
        }
        out.finish()
    });
    Ok(finished.collect())
}

/// Returns the error for a pipeline that changed an event's `_id`, because no client could resume after the event.
pub fn id_modified(expected: &ResumeToken, event: Document<'_>) -> base::Error {
    let mut actual = Builder::new();
    actual.append_optional(c"_id", event.get("_id"));
    err!(
        ChangeStreamFatalError,
        "Encountered an event whose _id field, which contains the resume token, was modified by the pipeline. \
         Modifying the _id field of an event makes it impossible to resume the stream from that point. Only \
         transformations that retain the unmodified _id field are allowed. Expected: {{ _id: {{ _data: \"{}\" }} }} but \
         found: {}",
        expected.hex(),
        actual.finish().view()
    )
}

/// Returns the token in an event's `_id`, if it is a token.
pub(crate) fn token_of(event: Document<'_>) -> Option<ResumeToken> {
    match event.get("_id") {
        Some(Value::Document(id)) => ResumeToken::parse(id).ok(),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::bson::extended_json::parse;

    fn fields(fragments: &[DocumentBuf]) -> Vec<String> {
        let names = |fragment: &DocumentBuf| {
            let rest = fragment.view().iter().skip(2).map(|field| field.name().to_owned());
            let number = fragment.view().get("splitEvent").unwrap().to_string();
            format!("{number} {}", rest.collect::<Vec<_>>().join(" "))
        };
        fragments.iter().map(names).collect()
    }

    #[test]
    fn small_fields_fill_the_first_fragments() {
        let token = ResumeToken::sample(1);
        let text = |length| "x".repeat(length);
        let event =
            parse(&format!("{{_id: 1, large: '{}', b: 1, middle: '{}', a: 1}}", text(500), text(400)));
        let event = event.unwrap();
        let fragments = split(event.view(), &token, 800).unwrap();
        assert_eq!(fields(&fragments), ["{ fragment: 1, of: 2 } a b middle", "{ fragment: 2, of: 2 } large"]);
        for (number, fragment) in fragments.iter().enumerate() {
            assert!(fragment.bytes().len() <= 800);
            assert_eq!(token_of(fragment.view()), Some(token.fragment(number as u32)));
        }
        let error = split(event.view(), &token, 500).unwrap_err();
        assert_eq!(error.code().number(), 7182500);
        assert_eq!(
            split(parse("{_id: 1}").unwrap().view(), &token, 500).unwrap_err().code().number(),
            7182502
        );
    }

    #[test]
    fn a_modified_event_id_is_an_error() {
        let error = id_modified(&ResumeToken::before(1), parse("{a: 1}").unwrap().view());
        assert!(error.code().number() == 280 && error.message().ends_with("but found: {}"), "{error}");
    }
}
