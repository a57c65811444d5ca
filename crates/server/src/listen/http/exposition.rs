//! Prometheus' text format, version 0.0.4. A metric family has a help text, a type and samples.

use crate::observe::operations::{BUCKETS, bounds};
use std::fmt::{Display, Write};

/// Content-Type of the format.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Type of a metric family.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    /// The value only grows.
    Counter,
    /// The value rises and falls.
    Gauge,
    /// The samples count values by size.
    Histogram,
}

/// Pairs of label and value.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// Text of the exposition so far.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

/// A family that is being written.
pub(super) struct Family<'a> {
    name: &'a str,
    text: &'a mut String,
}

impl Exposition {
    /// Begins a family. Its help is one sentence.
    pub(super) fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        put(&mut self.text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { name, text: &mut self.text }
    }

    /// Writes a family with one sample and no labels. By Prometheus' rule, the names of counters end with `_total`.
    pub(super) fn single(&mut self, name: &str, help: &str, value: impl Display) {
        let kind = if name.ends_with("_total") { Kind::Counter } else { Kind::Gauge };
        self.family(name, kind, help).sample(&[], value);
    }

    /// Returns the whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// Writes a sample.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    /// Writes the samples of a histogram: counts by the spans of [`bounds`], and the total time in
    /// seconds.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, counts: &[u64; BUCKETS], seconds: f64) {
        let mut sum = 0;
        let bounds = bounds().map(|bound| bound.to_string()).chain(["+Inf".to_string()]);
        for (bound, count) in bounds.zip(counts) {
            sum += count;
            self.line("_bucket", labels, Some(&bound), sum);
        }
        self.line("_sum", labels, None, seconds);
        self.line("_count", labels, None, sum);
    }

    fn line(&mut self, suffix: &str, labels: Labels<'_>, bound: Option<&str>, value: impl Display) {
        put(self.text, format_args!("{}{suffix}", self.name));
        let bound = bound.map(|bound| ("le", bound));
        for (at, (name, value)) in labels.iter().copied().chain(bound).enumerate() {
            put(self.text, format_args!("{}{name}=\"", if at == 0 { '{' } else { ',' }));
            escape(self.text, value);
            self.text.push('"');
        }
        if !labels.is_empty() || bound.is_some() {
            self.text.push('}');
        }
        put(self.text, format_args!(" {value}\n"));
    }
}

fn put(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // A write to a string does not fail.
    let _ = text.write_fmt(arguments);
}

/// Names of databases and collections may contain any character.
fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_escaped_and_histograms_add_up() {
        let mut out = Exposition::default();
        out.single("a_total", "Help.", 3);
        out.family("b", Kind::Gauge, "Help.").sample(&[("x", "a\"b\\c\nd"), ("y", "z")], 0.5);
        let mut counts = [0; BUCKETS];
        (counts[0], counts[1], counts[BUCKETS - 1]) = (2, 3, 1);
        out.family("c", Kind::Histogram, "Help.").histogram(&[("x", "1")], &counts, 20.25);
        let text = out.finish();
        assert!(text.starts_with("# HELP a_total Help.\n# TYPE a_total counter\na_total 3\n"), "{text}");
        assert!(text.contains("\nb{x=\"a\\\"b\\\\c\\nd\",y=\"z\"} 0.5\n"), "{text}");
        assert!(
            text.contains("\nc_bucket{x=\"1\",le=\"0.000016\"} 2\nc_bucket{x=\"1\",le=\"0.000032\"} 5\n"),
            "{text}"
        );
        assert!(text.ends_with("\nc_bucket{x=\"1\",le=\"16.777216\"} 5\nc_bucket{x=\"1\",le=\"+Inf\"} 6\nc_sum{x=\"1\"} 20.25\nc_count{x=\"1\"} 6\n"));
    }
}
