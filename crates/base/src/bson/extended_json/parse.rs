//! Parser of extended JSON and of the shell's syntax, as text becomes BSON in one pass.

use super::typed;
use crate::bson::{Builder, DocumentBuf, FieldName, FieldNameBuf, Value, ValueBuf};
use crate::{Error, Result, err};

/// Maximum nesting depth in text. It exceeds the storage limit, so tests can write documents that the server must
/// refuse. The recursion to this depth needs little of the stack.
const DEPTH_MAX: usize = 250;

/// Reads one document. Errors: FailedToParse naming the offset.
pub fn parse(text: &str) -> Result<DocumentBuf> {
    let (document, rest) = parse_prefix(text)?;
    if rest.trim().is_empty() {
        return Ok(document);
    }
    Err(err!(FailedToParse, "text after the document: {}", rest.trim().chars().take(40).collect::<String>()))
}

/// Reads the document at the start of the text and returns what follows it.
///
/// Errors: FailedToParse naming the offset.
pub fn parse_prefix(text: &str) -> Result<(DocumentBuf, &str)> {
    let mut parser = Parser { text, at: 0 };
    parser.expect('{')?;
    let mut out = Builder::new();
    parser.members(None, &mut out, 1)?;
    Ok((out.finish(), text.get(parser.at..).unwrap_or("")))
}

/// Reads one value of any type. Errors: FailedToParse naming the offset.
pub fn parse_value(text: &str) -> Result<ValueBuf> {
    let mut parser = Parser { text, at: 0 };
    let value = parser.value_buf(0)?;
    parser.skip_space();
    if parser.at == text.len() { Ok(value) } else { Err(parser.error("text after the value")) }
}

/// The text and the byte position of the next character.
struct Parser<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Parser<'t> {
    fn error(&self, message: &str) -> Error {
        err!(FailedToParse, "{message} at offset {}", self.at)
    }

    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or("")
    }

    fn skip_space(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start().len();
    }

    /// Returns the next non-space character without consuming it.
    fn peek(&mut self) -> Option<char> {
        self.skip_space();
        self.rest().chars().next()
    }

    fn next_char(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn accept(&mut self, expected: char) -> bool {
        let found = self.peek() == Some(expected);
        if found {
            self.at += expected.len_utf8();
        }
        found
    }

    fn expect(&mut self, expected: char) -> Result<()> {
        if self.accept(expected) { Ok(()) } else { Err(self.error(&format!("'{expected}' expected"))) }
    }

    /// Parses one value by itself.
    fn value_buf(&mut self, depth: usize) -> Result<ValueBuf> {
        let mut holder = Builder::new();
        self.value(Some(FieldName::literal("")), &mut holder, depth)?;
        let holder = holder.finish();
        holder.view().get("").map(|value| value.to_owned()).ok_or_else(|| self.error("value expected"))
    }

    /// Reads a value into `out`: under a name, or as an array's next element.
    fn value(&mut self, name: Option<FieldName<'_>>, out: &mut Builder, depth: usize) -> Result<()> {
        if depth > DEPTH_MAX {
            return Err(self.error("nested too deeply"));
        }
        match self.peek().ok_or_else(|| self.error("value expected"))? {
            '{' => return self.document(name, out, depth),
            '[' => return self.array(name, out, depth),
            '"' | '\'' => {
                let text = self.quoted()?;
                out.append_at(name, Value::String(&text));
            }
            '/' => {
                let (pattern, options) = self.regex()?;
                let value = typed::regex(&pattern, &options);
                out.append_at(
                    name,
                    value.ok_or_else(|| self.error("regular expression with a zero byte before"))?,
                );
            }
            '-' | '+' | '.' | '0'..='9' => {
                let value = self.number()?;
                out.append_at(name, value);
            }
            _ => {
                let value = self.word(depth)?;
                out.append_at(name, value.view());
            }
        }
        Ok(())
    }

    /// Parses a document. If its first name belongs to a typed value, the whole document must be one.
    fn document(&mut self, name: Option<FieldName<'_>>, out: &mut Builder, depth: usize) -> Result<()> {
        self.expect('{')?;
        let start = self.at;
        if self.peek() != Some('}') {
            let first = self.name()?;
            if typed::is_type_name(&first) {
                let mut holder = Builder::new();
                self.members(Some(first), &mut holder, depth + 1)?;
                let value = typed::from_document(holder.finish().view())
                    .ok_or_else(|| self.error("malformed typed value before"))?;
                out.append_at(name, value.view());
                return Ok(());
            }
            self.at = start;
        }
        out.begin_document_at(name);
        self.members(None, out, depth + 1)?;
        out.end();
        Ok(())
    }

    /// Parses the members after `{`, up to and including `}`; `first` is a name already read.
    fn members(&mut self, mut first: Option<FieldNameBuf>, out: &mut Builder, depth: usize) -> Result<()> {
        loop {
            if first.is_none() && self.accept('}') {
                return Ok(());
            }
            let name = match first.take() {
                Some(name) => name,
                None => self.name()?,
            };
            self.expect(':')?;
            self.value(Some(name.view()), out, depth)?;
            if !self.accept(',') {
                return self.expect('}');
            }
        }
    }

    /// Parses an array; a trailing comma is allowed.
    fn array(&mut self, name: Option<FieldName<'_>>, out: &mut Builder, depth: usize) -> Result<()> {
        self.expect('[')?;
        out.begin_array_at(name);
        while !self.accept(']') {
            self.value(None, out, depth + 1)?;
            if !self.accept(',') {
                self.expect(']')?;
                break;
            }
        }
        out.end();
        Ok(())
    }

    /// Parses a field name, quoted or bare. An empty name must be quoted.
    fn name(&mut self) -> Result<FieldNameBuf> {
        let name = match self.peek() {
            Some('"' | '\'') => self.quoted()?,
            _ => self.take_while(is_name_char).to_string(),
        };
        let unquoted_empty =
            name.is_empty() && self.text.get(..self.at).is_some_and(|t| !t.ends_with(['"', '\'']));
        let name = if unquoted_empty { None } else { FieldNameBuf::new(name).ok() };
        name.ok_or_else(|| self.error("field name expected"))
    }

    fn take_while(&mut self, accepts: fn(char) -> bool) -> &'t str {
        let rest = self.rest();
        let end = rest.find(|c| !accepts(c)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or("")
    }

    /// Parses a string in single or double quotes.
    fn quoted(&mut self) -> Result<String> {
        let quote = self.next_char();
        let mut text = String::new();
        loop {
            match self.next_char() {
                None => return Err(self.error("string not closed")),
                next if next == quote => return Ok(text),
                Some('\\') => text.push(self.escape()?),
                Some(next) => text.push(next),
            }
        }
    }

    /// Parses the escape after a backslash.
    fn escape(&mut self) -> Result<char> {
        Ok(match self.next_char() {
            Some('n') => '\n',
            Some('t') => '\t',
            Some('r') => '\r',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => return self.unicode_escape(),
            Some(literal @ ('"' | '\'' | '\\' | '/')) => literal,
            _ => return Err(self.error("unknown escape")),
        })
    }

    /// Parses the digits after `\u`. A surrogate pair takes two such escapes.
    fn unicode_escape(&mut self) -> Result<char> {
        let first = self.hex4()?;
        let mut code = first;
        if (0xD800..0xDC00).contains(&first) && self.rest().starts_with("\\u") {
            self.at += 2;
            let second = self.hex4()?;
            code = 0x10000 + ((first - 0xD800) << 10) + (second.wrapping_sub(0xDC00) & 0x3FF);
        }
        char::from_u32(code).ok_or_else(|| self.error("half of a surrogate pair"))
    }

    fn hex4(&mut self) -> Result<u32> {
        let digits = self.rest().get(..4).filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let digits = digits.ok_or_else(|| self.error("four hexadecimal digits expected"))?;
        self.at += 4;
        u32::from_str_radix(digits, 16).map_err(|_| self.error("four hexadecimal digits expected"))
    }

    /// Parses `/pattern/options`. Backslashes stay in the pattern.
    fn regex(&mut self) -> Result<(String, String)> {
        self.expect('/')?;
        let mut pattern = String::new();
        loop {
            match self.next_char() {
                None | Some('\n' | '\0') => return Err(self.error("regular expression not closed")),
                Some('/') => break,
                Some('\\') => {
                    pattern.push('\\');
                    pattern.extend(self.next_char());
                }
                Some(next) => pattern.push(next),
            }
        }
        Ok((pattern, self.take_while(|c| c.is_ascii_lowercase()).to_string()))
    }

    fn number(&mut self) -> Result<Value<'static>> {
        let text = self.take_while(|c| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '.'));
        typed::number(text).ok_or_else(|| self.error("malformed number before"))
    }

    /// Parses a bare word: a constant or a shell constructor.
    fn word(&mut self, depth: usize) -> Result<ValueBuf> {
        let mut word = self.take_while(is_name_char);
        if word == "new" {
            self.skip_space();
            word = self.take_while(is_name_char);
        }
        if let Some(constant) = typed::constant(word)
            && self.peek() != Some('(')
        {
            return Ok(constant.to_owned());
        }
        let mut arguments = Vec::new();
        if word.is_empty() || !self.accept('(') {
            return Err(self.error("value expected"));
        }
        while !self.accept(')') {
            arguments.push(self.value_buf(depth + 1)?);
            if !self.accept(',') {
                self.expect(')')?;
                break;
            }
        }
        typed::construct(word, &arguments)
            .ok_or_else(|| self.error(&format!("{word}(…) does not accept these arguments, before")))
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}
