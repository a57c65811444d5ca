//! The frame of a page: one file that loads nothing, follows the reader's light or dark, and
//! fits a phone. What is put in must be markup already; [`escape`] makes text such.

pub(crate) use super::svg::escape;
use std::fmt::Write as _;

const STYLE: &str = include_str!("style.css");

/// A whole page. Its policy forbids scripts and anything from elsewhere, so that even text that
/// slipped through unescaped could do nothing.
pub(crate) fn page(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<title>{title}</title>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <link rel=\"icon\" href=\"data:,\">\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}</main>\n</body>\n</html>\n"
    )
}

/// A box with a heading and a list of sentences; nothing if there are none.
pub(crate) fn notice(class: &str, heading: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("<li>{}</li>\n", escape(item))).collect();
    format!("<section class=\"notice {class}\">\n<h2>{heading}</h2>\n<ul>\n{items}</ul>\n</section>\n")
}

/// A table that scrolls within itself where it is too wide. Cells are text.
pub(crate) fn table(heads: &[String], rows: &[Vec<String>], left: usize) -> String {
    let class = |at: usize| if at < left { " class=\"left\"" } else { "" };
    let mut text = "<div class=\"scroll\"><table>\n<thead><tr>".to_string();
    for (at, head) in heads.iter().enumerate() {
        let _ = write!(text, "<th scope=\"col\"{}>{}</th>", class(at), escape(head));
    }
    text += "</tr></thead>\n<tbody>\n";
    for row in rows {
        text += "<tr>";
        for (at, cell) in row.iter().enumerate() {
            let _ = write!(text, "<td{}>{}</td>", class(at), escape(cell));
        }
        text += "</tr>\n";
    }
    text + "</tbody></table></div>\n"
}
