//! Benchmark of pattern search in documents, by search method.
//!
//! `cargo bench -p query --bench patterns` prints nanoseconds per document: the minimum of several rounds in which the
//! filters alternate, so a busy machine disturbs all of them alike. Only the ratios are reliable. An argument selects
//! cases: `-- "five fields of a problem: literal"`. The atomic group `(?>abc)` is equivalent to `abc` but left to PCRE.

#![expect(clippy::print_stdout, reason = "printing a table is its purpose")]

use base::bson::{Builder, DocumentBuf, FieldName, extended_json};
use query::{Context, Matcher};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 15;
const DOCUMENTS: usize = 2000;

/// Words that no English text contains, so few documents match.
fn word(number: usize) -> String {
    let mut state = (number as u64 + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let mut word = String::from("w");
    for _ in 0..7 {
        state ^= state >> 29;
        state = state.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word.push(char::from(b'a' + (state >> 32) as u8 % 26));
    }
    word
}

/// A problem report of an error tracker, one kilobyte.
fn problem(number: usize) -> DocumentBuf {
    const CLASSES: [&str; 4] =
        ["NoMethodError", "ArgumentError", "Timeout::Error", "ActiveRecord::RecordNotFound"];
    let words: Vec<String> = (0..8).map(|at| word(number * 31 + at)).collect();
    let mut out = Builder::new();
    out.append(c"_id", number as i64).append(c"app_id", number as i64 % 10);
    out.append(c"fingerprint", format!("{number:032x}").as_str());
    out.append(c"app_name", format!("app-{}", number % 10).as_str()).append(c"environment", "production");
    out.append(c"error_class", CLASSES[number % 4])
        .append(c"where", format!("orders_{}#update", number % 97).as_str());
    let message = format!("undefined method `{}' for {}", words[..2].join("_"), words[2..].join(" "));
    out.append(c"message", message.as_str()).begin_array(c"words");
    for word in &words {
        out.push(word.as_str());
    }
    out.end().append(c"resolved", false).append(c"comments_count", 0).append(c"notices_count", 7);
    out.begin_document(c"hosts");
    for host in 0..5 {
        out.append(FieldName::trusted(&format!("h{host}")), host);
    }
    out.end().append(c"note", words.join(" the quick brown fox ").repeat(2).as_str());
    out.finish()
}

/// A longer report in natural language, with non-ASCII characters.
fn article(number: usize) -> DocumentBuf {
    let text =
        format!("La connexion a été refusée par le serveur n° {number}; connection refused. ").repeat(14);
    let mut out = Builder::new();
    out.append(c"_id", number as i64).append(c"text", text.as_str());
    out.finish()
}

fn measure(title: &str, documents: &[DocumentBuf], filters: &[(&str, String)]) {
    let name_filter = std::env::args().nth(1).filter(|argument| !argument.starts_with('-'));
    let is_selected = |name: &str| {
        name_filter.as_ref().is_none_or(|name_filter| format!("{title}: {name}").contains(name_filter))
    };
    let filters: Vec<_> = filters.iter().filter(|(name, _)| is_selected(name)).collect();
    if filters.is_empty() {
        return;
    }
    let context = Context::for_tests();
    let matchers: Vec<Matcher> = filters
        .iter()
        .filter_map(|(_, filter)| {
            let filter = extended_json::parse(filter).ok()?;
            Matcher::parse(filter.view(), &context).ok()
        })
        .collect();
    assert_eq!(matchers.len(), filters.len(), "every filter can be parsed");
    let mut best = vec![(f64::MAX, 0); filters.len()];
    for _ in 0..ROUNDS {
        for (matcher, best) in matchers.iter().zip(&mut best) {
            let begun = Instant::now();
            let mut found = 0;
            for document in documents {
                found += usize::from(matcher.matches(black_box(document.view()), &context).unwrap_or(false));
            }
            best.0 = best.0.min(begun.elapsed().as_nanos() as f64 / documents.len() as f64);
            best.1 = found;
        }
    }
    println!("{title} ({} bytes)", documents[0].bytes().len());
    for ((name, _), (nanos, found)) in filters.iter().zip(&best) {
        println!("  {name:<44} {nanos:8.0} ns  {:5.2}  {found} found", nanos / best[0].0);
    }
}

fn main() {
    let problems: Vec<DocumentBuf> = (0..DOCUMENTS).map(problem).collect();
    let term = word(31 * 77 + 3);
    let any = |pattern: &str, options: &str| {
        let fields = ["app_name", "environment", "error_class", "message", "where"];
        let each = fields.map(|field| format!("{{{field}: {{$regex: '{pattern}', $options: '{options}'}}}}"));
        format!("{{$or: [{}]}}", each.join(", "))
    };
    let one =
        |pattern: &str, options: &str| format!("{{note: {{$regex: '{pattern}', $options: '{options}'}}}}");
    measure(
        "five fields of a problem",
        &problems,
        &[
            ("by PCRE, i", any(&format!("(?>{term})"), "i")),
            ("literal, i", any(&term, "i")),
            ("by PCRE", any(&format!("(?>{term})"), "")),
            ("literal", any(&term, "")),
            ("not there at all", "{$or: [{a: 1}, {b: 1}, {c: 1}, {d: 1}, {e: 1}]}".to_string()),
        ],
    );
    measure(
        "its long note",
        &problems,
        &[
            ("by PCRE, i", one(&format!("(?>{term})"), "i")),
            ("literal, i", one(&term, "i")),
            ("of two, i", one(&format!("{term}|{}", word(1)), "i")),
            ("by PCRE, of two, i", one(&format!("(?>{term}|{})", word(1)), "i")),
            ("by PCRE", one(&format!("(?>{term})"), "")),
            ("literal", one(&term, "")),
            ("prefix", one(&format!("^{term}"), "")),
            ("prefix, i", one(&format!("^{term}"), "i")),
            ("a part of it is literal", one(&format!("{term} +the"), "i")),
            ("by PCRE, a part", one(&format!("(?>{term} +the)"), "i")),
            ("five of them in an $in", {
                let all: Vec<String> = (1..6).map(|number| format!("/{}/i", word(number))).collect();
                format!("{{note: {{$in: [{}]}}}}", all.join(", "))
            }),
            ("by PCRE, five in an $in", {
                let all: Vec<String> = (1..6).map(|number| format!("/(?>{})/i", word(number))).collect();
                format!("{{note: {{$in: [{}]}}}}", all.join(", "))
            }),
        ],
    );
    let articles: Vec<DocumentBuf> = (0..DOCUMENTS).map(article).collect();
    let text =
        |pattern: &str, options: &str| format!("{{text: {{$regex: '{pattern}', $options: '{options}'}}}}");
    measure(
        "an article",
        &articles,
        &[
            ("by PCRE, i", text("(?>brokenpipe)", "i")),
            ("literal, i", text("brokenpipe", "i")),
            ("by PCRE", text("(?>brokenpipe)", "")),
            ("literal", text("brokenpipe", "")),
            ("not ASCII", text("refusée par là", "")),
            ("not ASCII, i", text("refusée par là", "i")),
        ],
    );
}
