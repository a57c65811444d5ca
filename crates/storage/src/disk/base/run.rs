//! Entries in order on their way into pages.

fn push_number(mut number: usize, bytes: &mut Vec<u8>) {
    while number >= 0x80 {
        bytes.push(number as u8 | 0x80);
        number >>= 7;
    }
    bytes.push(number as u8);
}

/// How much of what is in pages already is kept before the rest is moved to the front.
const GONE_BYTES: usize = 64 << 10;

/// Entries in order, to be put into pages.
#[derive(Debug, Default)]
pub(super) struct Run {
    bytes: Vec<u8>,
    /// Where each key and its value end.
    ends: Vec<(usize, usize)>,
    /// The entries that are in pages already.
    done: usize,
}

impl Run {
    /// Adds an entry, its key in two parts.
    pub(super) fn push(&mut self, prefix: &[u8], rest: &[u8], value: &[u8]) {
        self.bytes.extend_from_slice(prefix);
        self.bytes.extend_from_slice(rest);
        let key_end = self.bytes.len();
        self.bytes.extend_from_slice(value);
        self.ends.push((key_end, self.bytes.len()));
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.ends.len() - self.done
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn begin(&self, at: usize) -> usize {
        at.checked_sub(1).and_then(|before| self.ends.get(before)).map_or(0, |ends| ends.1)
    }

    /// How long they are all together, with what they cost in a page.
    pub(super) fn size(&self) -> usize {
        self.bytes.len() - self.begin(self.done) + 2 * self.len()
    }

    /// How long an entry is, by its number among those that are left.
    pub(super) fn entry_size(&self, at: usize) -> usize {
        self.begin(self.done + at + 1) - self.begin(self.done + at) + 2
    }

    /// An entry, by its number among those that are left.
    pub(super) fn entry(&self, at: usize) -> (&[u8], &[u8]) {
        let at = self.done + at;
        let Some((key_end, end)) = self.ends.get(at) else { return (&[], &[]) };
        let key = self.bytes.get(self.begin(at)..*key_end).unwrap_or_default();
        (key, self.bytes.get(*key_end..*end).unwrap_or_default())
    }

    /// Makes a page of the first entries that are left, in place of what was in `page`, and takes them away.
    pub(super) fn take(&mut self, count: usize, height: u8, page: &mut Vec<u8>) {
        let (first, last) = (self.entry(0).0, self.entry(count.saturating_sub(1)).0);
        let prefix = common(first, last);
        page.clear();
        page.push(height);
        push_number(count, page);
        push_number(prefix, page);
        page.extend(first.iter().take(prefix));
        for at in 0..count {
            let (key, value) = self.entry(at);
            push_number(key.len() - prefix, page);
            push_number(value.len(), page);
        }
        for at in 0..count {
            let (key, value) = self.entry(at);
            page.extend_from_slice(key.get(prefix..).unwrap_or_default());
            page.extend_from_slice(value);
        }
        self.done += count;
        if self.done == self.ends.len() {
            (self.done, self.bytes, self.ends) = (0, cleared(&mut self.bytes), cleared(&mut self.ends));
        } else if let gone = self.begin(self.done)
            && gone > GONE_BYTES
        {
            self.bytes.drain(..gone);
            self.ends.drain(..self.done);
            self.ends.iter_mut().for_each(|ends| *ends = (ends.0 - gone, ends.1 - gone));
            self.done = 0;
        }
    }
}

/// A vector with nothing in it that keeps its memory, unless that is large.
fn cleared<T>(used: &mut Vec<T>) -> Vec<T> {
    let mut used = std::mem::take(used);
    used.clear();
    used.shrink_to(1 << 16);
    used
}

/// How many bytes two keys have in common at their front.
fn common(a: &[u8], b: &[u8]) -> usize {
    a.iter().zip(b).take_while(|(a, b)| a == b).count()
}

/// The shortest key that is greater than one, and not greater than the next.
pub(super) fn between<'a>(before: &[u8], next: &'a [u8]) -> &'a [u8] {
    next.get(..common(before, next) + 1).unwrap_or(next)
}

#[cfg(test)]
mod tests {
    use super::super::page::Page;
    use super::*;

    #[test]
    fn a_run_gives_its_entries_away_in_parts() {
        let mut run = Run::default();
        (0..10_000u32).for_each(|number| run.push(&[], &number.to_be_bytes(), &number.to_le_bytes()));
        let mut next = 0u32;
        while !run.is_empty() {
            let count = run.len().min(37);
            assert_eq!(run.size(), run.len() * 10);
            let mut page = vec![9; 9];
            run.take(count, 0, &mut page);
            let page = Page::read(page.into()).unwrap();
            for at in 0..count {
                assert_eq!(
                    (page.key(at), page.value(at)),
                    (next.to_be_bytes().to_vec(), &next.to_le_bytes()[..])
                );
                next += 1;
            }
        }
        assert_eq!(next, 10_000);
    }

    #[test]
    fn what_parts_two_pages_is_short() {
        assert_eq!(between(b"apple", b"banana"), b"b");
        assert_eq!(between(b"abc", b"abcd"), b"abcd");
        assert_eq!(between(b"abc", b"abd"), b"abd");
        assert_eq!(between(b"", b"x"), b"x");
    }
}
