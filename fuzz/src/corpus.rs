//! The fuzz corpus: inputs that together reach all coverage found so far. Each target has a file
//! with a line of hexadecimal digits for each input.

use std::io;
use std::path::{Path, PathBuf};

/// Size limit of a target's corpus in bytes; the shortest inputs are kept.
const BYTES_MAX: usize = 16 << 10;

fn place(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target)
}

/// Returns the corpus of a target.
pub fn inputs(target: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(place(target)).unwrap_or_default();
    text.lines().filter_map(bytes).collect()
}

/// Writes the corpus and the target's seeds into a folder in libFuzzer's format.
///
/// Errors: file system errors.
pub fn unpack(target: &crate::Target, folder: &Path) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let all = (target.seeds)().into_iter().chain(inputs(target.name));
    all.enumerate()
        .try_for_each(|(number, input)| std::fs::write(folder.join(format!("kept-{number}")), input))
}

/// Stores the inputs of a folder in the corpus, shortest first. Returns their number.
///
/// Errors: file system errors.
pub fn pack(target: &crate::Target, folder: &Path) -> io::Result<usize> {
    let read = |entry: io::Result<std::fs::DirEntry>| std::fs::read(entry?.path());
    let mut all = std::fs::read_dir(folder)?.map(read).collect::<io::Result<Vec<Vec<u8>>>>()?;
    all.sort_by(|a, b| a.len().cmp(&b.len()).then_with(|| a.cmp(b)));
    all.dedup();
    let mut room = BYTES_MAX;
    all.retain(|input| match room.checked_sub(input.len()) {
        Some(rest) if !input.is_empty() => {
            room = rest;
            true
        }
        _ => false,
    });
    let text: String = all.iter().map(|input| digits(input) + "\n").collect();
    let place = place(target.name);
    place.parent().map_or(Ok(()), std::fs::create_dir_all)?;
    std::fs::write(place, text)?;
    Ok(all.len())
}

fn digits(input: &[u8]) -> String {
    input.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes(line: &str) -> Option<Vec<u8>> {
    let pair = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    line.as_bytes().chunks(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inputs_read_back() {
        for input in [&b""[..], b"\0\xff", b"some text"] {
            assert_eq!(bytes(&digits(input)).as_deref(), Some(input));
        }
        assert_eq!(bytes("0g"), None);
    }
}
