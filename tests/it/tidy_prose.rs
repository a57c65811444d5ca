//! Rules about the English of documents, comments and texts for users: short sentences that begin with a noun.
//! CONTRIBUTING.md names the rules. The tests count marks of hard prose and long sentences. Documents and comments have
//! limits for the whole tree. Texts for users (string literals of the product, clients and benchmarks) have no marks.

use crate::root;
use crate::tidy::{is_test_file, product_lines};
use std::path::Path;
use std::process::Command;

/// Most marks per 1,000 words.
const MARKS_MAX: f64 = 6.0;

/// Most words of a sentence, and the largest share of longer sentences.
const WORDS_MAX: usize = 30;
const LONG_SHARE_MAX: f64 = 0.05;

/// Words that name people instead of processes, let servers speak, or bind sentences loosely.
const WORDS: [&str; 22] = [
    "anew",
    "anybody",
    "anyone",
    "everybody",
    "everyone",
    "hence",
    "lest",
    "likewise",
    "merely",
    "nobody",
    "somebody",
    "someone",
    "tell",
    "telling",
    "tells",
    "thereby",
    "therein",
    "told",
    "whatever",
    "whereupon",
    "whoever",
    "whom",
];

/// Pairs of words that stand for something unnamed, or that begin an object clause.
const PAIRS: [&str; 22] = [
    "are there",
    "at all",
    "by what",
    "from what",
    "is there",
    "known who",
    "knows what",
    "of what",
    "says what",
    "shows what",
    "that of",
    "the others",
    "the rest",
    "there are",
    "there is",
    "there was",
    "there were",
    "those of",
    "those that",
    "those which",
    "those who",
    "to what",
];

/// First words of sentences whose subject is a clause.
const CLAUSES: [&str; 6] = ["what", "whatever", "who", "whoever", "whichever", "whose"];

/// Texts with marks that are MongoDB's own.
const TEXTS_OF_MONGODB: [&str; 2] = [
    "There is more than one {name} index on {}; unsure which to use for $geoNear",
    "There is no x.509 client certificate matching the user.",
];

/// Prefixes of comment lines and quotes of strings, by language.
const LANGUAGES: [(&str, &[&str], &[&str]); 8] = [
    ("go", &["// "], &["\"", "`"]),
    ("html", &["// "], &["\"", "`"]),
    ("java", &["// ", "* "], &["\"\"\"", "\""]),
    ("js", &["// ", "* "], &["\"", "'", "`"]),
    ("py", &["# "], &["\"\"\"", "\"", "'"]),
    ("rs", &["/// ", "//! "], &["\""]),
    ("sh", &["# "], &["\"", "'"]),
    ("ts", &["// ", "* "], &["\"", "'", "`"]),
];

/// Quotes whose strings may span lines in languages other than Rust and shell.
const LONG_QUOTES: [&str; 2] = ["\"\"\"", "`"];

/// Folders with texts for users.
const USER_TEXTS: [&str; 5] = ["bench/", "clients/", "crates/", "packaging/", "src/"];

/// Counts over several texts.
#[derive(Default)]
struct Prose {
    words: usize,
    sentences: usize,
    long: usize,
    marks: usize,
    /// Marked sentences with their files, to be shown.
    worst: Vec<String>,
}

impl Prose {
    fn add(&mut self, file: &str, sentence: &str) {
        let words: Vec<String> = sentence
            .split_whitespace()
            .map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase())
            .filter(|word| !word.is_empty())
            .collect();
        if words.len() < 4 {
            return;
        }
        let pair = |pair: &[String]| PAIRS.contains(&pair.join(" ").as_str());
        let marks = words.iter().filter(|word| WORDS.contains(&word.as_str())).count()
            + words.windows(2).filter(|two| pair(two)).count()
            + usize::from(words.first().is_some_and(|first| CLAUSES.contains(&first.as_str())));
        self.words += words.len();
        self.sentences += 1;
        self.marks += marks;
        let is_long = words.len() > WORDS_MAX;
        self.long += usize::from(is_long);
        if marks > 0 || is_long {
            self.worst.push(format!("{file}: {sentence}"));
        }
    }

    /// Adds the sentences of a text. A blank line ends a sentence, and so does a list item.
    fn add_text(&mut self, file: &str, text: &str) {
        for paragraph in text.split("\n\n") {
            let joined = without_code(&paragraph.split_whitespace().collect::<Vec<_>>().join(" "));
            joined.split(['.', '!', '?', ':']).for_each(|sentence| self.add(file, sentence));
        }
    }

    fn check(&self, what: &str) {
        let per_thousand = 1000.0 * self.marks as f64 / self.words.max(1) as f64;
        let share = self.long as f64 / self.sentences.max(1) as f64;
        assert!(self.words > 1000, "{what} have {} words", self.words);
        assert!(
            per_thousand <= MARKS_MAX && share <= LONG_SHARE_MAX,
            "{what}: {per_thousand:.1} marks per 1,000 words, {:.1} % long sentences. Marked sentences:\n{}",
            100.0 * share,
            self.worst.join("\n")
        );
    }
}

/// Replaces code in backticks and the targets of links by one word.
fn without_code(text: &str) -> String {
    let outside = text.split('`').enumerate().map(|(at, part)| if at % 2 == 0 { part } else { "code" });
    let text: String = outside.collect();
    let mut out = String::new();
    for (at, part) in text.split("](").enumerate() {
        out.push_str(if at == 0 { part } else { part.split_once(')').map_or("", |(_, rest)| rest) });
    }
    out
}

/// The prose of a document: no tables, headings, code blocks or images.
fn document(text: &str) -> String {
    let parts = text.split("\n```").enumerate().filter(|(at, _)| at % 2 == 0);
    let lines = parts.flat_map(|(_, part)| part.lines());
    let prose = lines.filter(|line| !line.starts_with(['|', '#', '!', '<']) && !line.starts_with("    "));
    prose.map(separate_items).collect::<Vec<_>>().join("\n")
}

/// The comments of a source. Other lines separate them.
fn comments(text: &str, prefixes: &[&str]) -> String {
    let line = |line: &str| {
        let line = line.trim_start();
        prefixes.iter().find_map(|prefix| line.strip_prefix(prefix)).map(separate_items).unwrap_or_default()
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// Returns the language of a file by its extension or its first line.
fn language(name: &str, text: &str) -> Option<&'static str> {
    let extension = Path::new(name).extension().unwrap_or_default().to_string_lossy().to_string();
    let program = text.lines().next().filter(|line| extension.is_empty() && line.starts_with("#!"));
    let named = match program {
        Some(line) if line.contains("python") => "py",
        Some(line) if line.ends_with("sh") => "sh",
        _ => extension.as_str(),
    };
    LANGUAGES.iter().map(|(language, ..)| *language).find(|language| *language == named)
}

/// Returns the string literals of a source, without its comments.
fn strings(text: &str, language: &str) -> Vec<String> {
    let Some((_, comments, quotes)) = LANGUAGES.iter().find(|(known, ..)| *known == language) else {
        return Vec::new();
    };
    let comment = if comments[0].starts_with('#') { "#" } else { "//" };
    let spans_lines = |quote: &str| language == "rs" || language == "sh" || LONG_QUOTES.contains(&quote);
    let mut strings = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        if rest.starts_with(comment) {
            rest = rest.find('\n').map_or("", |end| &rest[end..]);
            continue;
        }
        if language == "rs" && first == '\'' {
            // A character literal, or a lifetime.
            let close = match rest[1..].starts_with('\\') {
                true => rest.char_indices().skip(3).find(|(_, c)| *c == '\''),
                false => rest.char_indices().nth(2).filter(|(_, c)| *c == '\''),
            };
            rest = &rest[close.map_or(1, |(at, _)| at + 1)..];
            continue;
        }
        let raw = language == "rs" && (rest.starts_with("r\"") || rest.starts_with("r#"));
        let hashes = if raw { rest[1..].chars().take_while(|c| *c == '#').count() } else { 0 };
        let opening = if raw { &rest[1 + hashes..] } else { rest };
        let quote = quotes.iter().find(|quote| opening.starts_with(**quote));
        let body = quote.map(|quote| (&opening[quote.len()..], format!("{quote}{}", "#".repeat(hashes))));
        let closed = body
            .as_ref()
            .and_then(|(body, quote)| Some((*body, end_of_string(body, quote, raw)?, quote.len())));
        match closed.filter(|(body, end, _)| {
            quote.is_some_and(|quote| spans_lines(quote)) || !body[..*end].contains('\n')
        }) {
            Some((body, end, length)) => {
                strings.push(body[..end].to_string());
                rest = &body[end + length..];
            }
            None => rest = &rest[first.len_utf8()..],
        }
    }
    strings
}

/// Returns the offset of the closing quote.
fn end_of_string(body: &str, quote: &str, raw: bool) -> Option<usize> {
    let mut at = 0;
    while at < body.len() {
        if body[at..].starts_with(quote) {
            return Some(at);
        }
        let escaped = !raw && body[at..].starts_with('\\');
        let skipped: usize = body[at..].chars().take(1 + usize::from(escaped)).map(char::len_utf8).sum();
        at += skipped;
    }
    None
}

/// Returns a string literal as its reader sees it: no line continuations, placeholders as one word.
fn as_text(literal: &str) -> String {
    let joined = literal.replace("\\\n", " ").replace("\\n  ", "\n\n").replace("\\n", "\n");
    let mut parts = joined.split('{');
    let mut text = parts.next().unwrap_or_default().to_string();
    for part in parts {
        text.push_str("code");
        text.push_str(part.split_once('}').map_or(part, |(_, rest)| rest));
    }
    text
}

/// Puts a blank line before a list item.
fn separate_items(line: &str) -> String {
    let item = line.trim_start();
    let number = item.trim_start_matches(|c: char| c.is_ascii_digit());
    match item.starts_with("- ")
        || item.starts_with("* ")
        || (number.len() < item.len() && number.starts_with(". "))
    {
        true => format!("\n{item}"),
        false => line.to_string(),
    }
}

fn files() -> Vec<String> {
    let output = Command::new("git").args(["ls-files"]).current_dir(root()).output().unwrap();
    let names = String::from_utf8(output.stdout).unwrap();
    names.lines().filter(|name| root().join(name).is_file()).map(str::to_string).collect()
}

#[test]
fn documents_are_plain_english() {
    let mut prose = Prose::default();
    for name in files().iter().filter(|name| name.ends_with(".md")) {
        prose.add_text(name, &document(&std::fs::read_to_string(root().join(name)).unwrap()));
    }
    prose.check("the documents");
}

#[test]
fn comments_are_plain_english() {
    let mut prose = Prose::default();
    for name in files() {
        let Ok(text) = std::fs::read_to_string(root().join(&name)) else { continue };
        let language = language(&name, &text);
        let Some((_, prefixes, _)) = LANGUAGES.iter().find(|(known, ..)| Some(*known) == language) else {
            continue;
        };
        prose.add_text(&name, &comments(&text, prefixes));
    }
    prose.check("the comments");
}

#[test]
fn texts_for_users_are_plain_english() {
    let mut prose = Prose::default();
    for name in files().iter().filter(|name| USER_TEXTS.iter().any(|folder| name.starts_with(folder))) {
        let is_test = is_test_file(Path::new(name)) || name.contains("/test/") || name.contains("/vendor/");
        let Ok(text) = std::fs::read_to_string(root().join(name)) else { continue };
        let Some(language) = language(name, &text).filter(|_| !is_test) else { continue };
        let product: Vec<&str> = product_lines(&text).into_iter().map(|(_, line)| line).collect();
        let text = if language == "rs" { product.join("\n") } else { text };
        for literal in strings(&text, language) {
            if !TEXTS_OF_MONGODB.contains(&literal.as_str()) {
                prose.add_text(name, &document(&as_text(&literal)));
            }
        }
    }
    assert_eq!(prose.marks, 0, "marked texts:\n{}", prose.worst.join("\n"));
    prose.check("the texts");
}

#[test]
fn hard_prose_is_marked() {
    let marks = |text: &str| {
        let mut prose = Prose::default();
        prose.add_text("", text);
        (prose.marks, prose.sentences)
    };
    assert_eq!(marks("Returns the number of pages. The server refuses the write."), (0, 2));
    assert_eq!(marks("What is dropped is gone. Nobody tells the server of `nobody`."), (3, 2));
    assert_eq!(marks("There is a lock for those that wait."), (2, 1));
    assert_eq!(
        marks(&document("# What is it\n\n| nobody | told |\n- The first item here\n- The second item here")),
        (0, 2)
    );
    assert_eq!(comments("/// One line.\ncode\n/// Another line.", &["/// "]), "One line.\n\nAnother line.");
    assert_eq!(
        strings("f('a', \"b \\\" c\"); // \"no\"\nr#\"d\"#, b'\"', '\"', 'x", "rs"),
        ["b \\\" c", "d"]
    );
    assert_eq!(strings("x = \"\"\"a\nb\"\"\" # \"no\"\ny = 'c' + 'd\n\"e\"", "py"), ["a\nb", "c", "e"]);
    assert_eq!(
        as_text("no {x:?} here,\\\n  and there").split_whitespace().collect::<Vec<_>>().join(" "),
        "no code here, and there"
    );
    assert_eq!(without_code("see [the page](docs/x.md) and `a b`"), "see [the page and code");
}
