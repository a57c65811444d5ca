//! Prometheus' text format, version 0.0.4: a family is its help, its type, and its samples.

use crate::operations::{SPANS, bounds};
use std::fmt::{Display, Write};

/// The format's name in Content-Type.
pub(super) const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a family's numbers are.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Kind {
    /// They only grow.
    Counter,
    /// They go up and down.
    Gauge,
    /// They are counted by size.
    Histogram,
}

/// Labels and their values.
type Labels<'a> = &'a [(&'a str, &'a str)];

/// The text so far.
#[derive(Default)]
pub(super) struct Exposition {
    text: String,
}

/// A family whose samples are being written.
pub(super) struct Family<'a> {
    name: &'a str,
    text: &'a mut String,
}

impl Exposition {
    /// Begins a family, whose help is one sentence.
    pub(super) fn family<'a>(&'a mut self, name: &'a str, kind: Kind, help: &str) -> Family<'a> {
        let kind = match kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        put(&mut self.text, format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
        Family { name, text: &mut self.text }
    }

    /// A family of one sample without labels.
    pub(super) fn single(&mut self, name: &str, kind: Kind, help: &str, value: impl Display) {
        self.family(name, kind, help).sample(&[], value);
    }

    /// The whole text.
    pub(super) fn finish(self) -> String {
        self.text
    }
}

impl Family<'_> {
    /// A sample.
    pub(super) fn sample(&mut self, labels: Labels<'_>, value: impl Display) {
        self.line("", labels, None, value);
    }

    /// The samples of a histogram: how many took how long by the spans of [`bounds`], and the seconds in all.
    pub(super) fn histogram(&mut self, labels: Labels<'_>, counts: &[u64; SPANS], seconds: f64) {
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

fn put(text: &mut String, what: std::fmt::Arguments<'_>) {
    // Writing to a string doesn't fail.
    let _ = text.write_fmt(what);
}

/// Names of databases and collections may hold anything.
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
        out.single("a_total", Kind::Counter, "Help.", 3);
        out.family("b", Kind::Gauge, "Help.").sample(&[("x", "a\"b\\c\nd"), ("y", "z")], 0.5);
        let mut counts = [0; SPANS];
        (counts[0], counts[1], counts[SPANS - 1]) = (2, 3, 1);
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
