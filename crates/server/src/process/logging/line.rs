//! Log lines of records: text for people, or mongod's JSON for programs.

use base::calendar::from_days;
use log::kv::{Error, Key, Value, VisitSource};
use log::{Level, Record};
use std::fmt::Write;
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the message in the list of truncated values.
const MESSAGE: &str = "msg";

/// Attributes whose text is a document in JSON. No other record uses these names.
const DOCUMENTS: [&str; 3] = ["command", "doc", "originatingCommand"];

/// Component of records that name none.
const COMPONENT: &str = "-";

/// Fields of a record beside its message.
#[derive(Default)]
struct Extras {
    id: i64,
    component: Option<String>,
    attributes: Vec<(String, String)>,
    /// Maximum length of a value, in bytes.
    longest: usize,
    /// Truncated values with their full lengths.
    cut: Vec<(String, usize)>,
}

impl Extras {
    /// Reads the fields of a record, truncated. Attributes are JSON.
    fn of(record: &Record<'_>, longest: usize) -> Extras {
        let mut extras = Extras { longest, ..Extras::default() };
        // The visitor below never fails.
        let _ = record.key_values().visit(&mut extras);
        extras
    }

    /// Returns the JSON of a text or a document. A long document becomes a truncated text.
    fn text(&mut self, name: &str, text: String) -> String {
        match DOCUMENTS.contains(&name) && text.len() <= self.longest {
            true => text,
            false => quoted(self.cut(name, &text)),
        }
    }

    /// Returns a truncated text and records the truncation.
    fn cut<'t>(&mut self, name: &str, text: &'t str) -> &'t str {
        let short = text.get(..text.floor_char_boundary(self.longest)).unwrap_or_default();
        if short.len() < text.len() {
            self.cut.push((name.to_string(), text.len()));
        }
        short
    }
}

impl<'a> VisitSource<'a> for Extras {
    fn visit_pair(&mut self, key: Key<'a>, value: Value<'a>) -> Result<(), Error> {
        match key.as_str() {
            "id" => self.id = value.to_i64().unwrap_or_default(),
            "c" => self.component = Some(value.to_string()),
            key => {
                let json = match (value.to_bool(), value.to_i64()) {
                    (Some(flag), _) => flag.to_string(),
                    (None, Some(number)) => number.to_string(),
                    (None, None) => self.text(key, value.to_string()),
                };
                self.attributes.push((key.to_string(), json));
            }
        }
        Ok(())
    }
}

/// Returns the component of a record.
pub(super) fn component(record: &Record<'_>) -> Option<String> {
    Extras::of(record, usize::MAX).component
}

/// Formats a line for people: time, level, crate, message, attributes. Each value has a maximum
/// length.
pub(super) fn text(record: &Record<'_>, now: i64, longest: usize) -> String {
    let crate_name = record.target().split("::").next().unwrap_or_default();
    let mut extras = Extras::of(record, longest);
    let message = record.args().to_string();
    let message = extras.cut(MESSAGE, &message);
    let mut line = format!("{} {:<5} {crate_name}: {message}", format_time(now), record.level());
    // A write to a string does not fail.
    for (name, value) in extras.attributes {
        let _ = write!(line, " {name}={value}");
    }
    for (name, bytes) in extras.cut {
        let _ = write!(line, " [{name} had {bytes} bytes]");
    }
    line
}

/// Formats a line in mongod's JSON. Message and attributes each have a maximum length.
pub(super) fn json(record: &Record<'_>, now: i64, longest: usize) -> String {
    let mut extras = Extras::of(record, longest);
    let message = record.args().to_string();
    let message = extras.cut(MESSAGE, &message);
    let thread = std::thread::current();
    let thread = thread.name().unwrap_or("-");
    let component = extras.component.as_deref().unwrap_or(COMPONENT);
    let mut line = object(now, severity(record.level()), component, extras.id, thread, message);
    if !extras.attributes.is_empty() {
        let attributes = extras.attributes.iter().map(|(name, value)| format!("{}:{value}", quoted(name)));
        // A write to a string does not fail.
        let _ = write!(line, ",\"attr\":{{{}}}", attributes.collect::<Vec<_>>().join(","));
    }
    if !extras.cut.is_empty() {
        let of = |one: &dyn Fn(&(String, usize)) -> String| {
            extras.cut.iter().map(one).collect::<Vec<_>>().join(",")
        };
        let kinds = of(&|(name, bytes)| format!(r#"{}:{{"type":"string","size":{bytes}}}"#, quoted(name)));
        let _ = write!(line, ",\"truncated\":{{{kinds}}}");
        let sizes = of(&|(name, bytes)| format!("{}:{bytes}", quoted(name)));
        let _ = write!(line, ",\"size\":{{{sizes}}}");
    }
    line.push('}');
    line
}

/// Formats a warning without a record.
pub(super) fn plain(now: i64, message: &str) -> String {
    object(now, "W", "CONTROL", 0, "main", message) + "}"
}

/// Returns the JSON object without its end.
fn object(now: i64, severity: &str, component: &str, id: i64, thread: &str, message: &str) -> String {
    let time = format_time(now);
    // mongod writes the time zone as an offset.
    let time = time.trim_end_matches('Z');
    format!(
        r#"{{"t":{{"$date":"{time}+00:00"}},"s":"{severity}","c":{},"id":{id},"ctx":{},"msg":{}"#,
        quoted(component),
        quoted(thread),
        quoted(message)
    )
}

fn severity(level: Level) -> &'static str {
    match level {
        Level::Error => "E",
        Level::Warn => "W",
        Level::Info => "I",
        Level::Debug => "D1",
        Level::Trace => "D2",
    }
}

/// Returns a string as a JSON literal.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c < ' ' => {
                // A write to a string does not fail.
                let _ = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// Returns milliseconds since 1970.
pub(crate) fn now_millis() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as i64)
}

/// Formats a time as `2026-01-31T08:09:10.011Z`.
pub(crate) fn format_time(millis: i64) -> String {
    let (days, rest) = (millis.div_euclid(86_400_000), millis.rem_euclid(86_400_000));
    let (year, month, day) = from_days(days);
    let (seconds, millis) = (rest / 1000, rest % 1000);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record<T>(write: impl FnOnce(&Record<'_>) -> T) -> T {
        let pairs =
            [("id", Value::from(23016)), ("c", "NETWORK".into()), ("port", 5.into()), ("on", "a\"b".into())];
        write(
            &Record::builder()
                .args(format_args!("Waiting\nfor é"))
                .level(Level::Info)
                .target("server::net")
                .key_values(&pairs)
                .build(),
        )
    }

    #[test]
    fn text_is_for_people() {
        let line = record(|record| text(record, 0, usize::MAX));
        assert_eq!(line, "1970-01-01T00:00:00.000Z INFO  server: Waiting\nfor é port=5 on=\"a\\\"b\"");
    }

    #[test]
    fn long_values_are_truncated_with_a_note() {
        let line = record(|record| text(record, 0, 7));
        assert!(line.ends_with("server: Waiting port=5 on=\"a\\\"b\" [msg had 14 bytes]"), "{line}");
        let line = record(|record| json(record, 0, 7));
        let end = r#","truncated":{"msg":{"type":"string","size":14}},"size":{"msg":14}}"#;
        assert!(line.ends_with(end), "{line}");
    }

    #[test]
    fn json_is_of_mongods_form() {
        let line = record(|record| json(record, 0, usize::MAX));
        let start =
            r#"{"t":{"$date":"1970-01-01T00:00:00.000+00:00"},"s":"I","c":"NETWORK","id":23016,"ctx":""#;
        assert!(line.starts_with(start), "{line}");
        let end = r#","msg":"Waiting\nfor é","attr":{"port":5,"on":"a\"b"}}"#;
        assert!(line.ends_with(end), "{line}");
    }

    #[test]
    fn documents_are_json_unless_they_are_truncated() {
        let pairs = [("command", Value::from("{\"a\":1}"))];
        let line = |longest| json(&Record::builder().key_values(&pairs).build(), 0, longest);
        assert!(line(7).ends_with(r#""attr":{"command":{"a":1}}}"#), "{}", line(7));
        assert!(line(6).contains(r#""attr":{"command":"{\"a\":1"},"truncated""#), "{}", line(6));
        let pairs = [("doc", Value::from("{\"a\":1}"))];
        let line = json(&Record::builder().key_values(&pairs).build(), 0, 7);
        assert!(line.ends_with(r#""attr":{"doc":{"a":1}}}"#), "{line}");
    }

    #[test]
    fn long_messages_are_cut_at_a_character() {
        let line = record(|record| json(record, 0, 13));
        assert!(line.contains(r#""msg":"Waiting\nfor ","#), "{line}");
    }
}

#[cfg(test)]
mod time_tests {
    use super::*;

    #[test]
    fn times_are_written_as_in_the_calendar() {
        assert_eq!(format_time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(format_time(951_782_400_000), "2000-02-29T00:00:00.000Z");
        assert_eq!(format_time(1_795_168_570_124), "2026-11-20T09:56:10.124Z");
        assert_eq!(format_time(-1), "1969-12-31T23:59:59.999Z");
    }
}
