//! A page: a sorted run of entries, in memory and in the file. The file's form may be compressed.
//!
//! Leaves hold the entries of a tree. Inner pages hold, for each child, a lower bound of its keys and its
//! [`PageHandle`]. The common prefix of a page's keys is stored once. An uncompressed page is
//!
//! ```text
//! height (1 byte, 0 for a leaf) · number of entries · length of the common prefix · prefix
//! · for each entry the lengths of the rest of its key and of its value · for each entry that rest, and the value
//! ```
//!
//! with lengths and numbers in groups of seven bits, the lowest first. In the file a header of nine bytes precedes the
//! page: its compression, the length of the page, and the length of the following data. The parent stores the checksum
//! of header and page with the handle. An outdated page is therefore detected too.

use std::cmp::Ordering;

#[cfg(any(test, debug_assertions, feature = "testing"))]
use super::merge::Run;
use crate::Compression;

/// Unit of offsets and lengths in the file, in bytes.
pub(super) const UNIT: usize = 512;
/// Length of the header of a page in the file.
const HEADER_BYTES: usize = 9;
/// Maximum compression ratio: Zstandard packs 128 KB into about ten bytes.
const RATIO_MAX: usize = 1 << 15;
/// Minimum saving, as one part in so many. A page that saves less is stored uncompressed.
const MIN_SAVING: usize = 8;
/// Number of consecutive incompressible leaves of a tree after which one leaf in two is tried, then in four, eight,
/// sixteen.
const FAILURES_MAX: u32 = 4;

/// Offset, length and checksum of a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PageHandle {
    /// Offset in units.
    pub(super) offset: u64,
    /// Length in units.
    pub(super) units: u32,
    /// CRC-32C of the header and the data.
    pub(super) sum: u32,
}

impl PageHandle {
    /// Encoded length of a handle.
    pub(super) const BYTES: usize = 12;

    /// Encodes a handle: offset in 40 bits, length in 24, checksum in 32.
    pub(super) fn encode(self) -> [u8; PageHandle::BYTES] {
        debug_assert!(self.offset < 1 << 40, "the offset of a page has more than 40 bits: {self:?}");
        debug_assert!((1..1 << 24).contains(&self.units), "the length of a page has no 24 bits: {self:?}");
        let location = self.offset << 24 | u64::from(self.units);
        let mut bytes = [0; PageHandle::BYTES];
        let (first, last) = bytes.split_at_mut(8);
        first.copy_from_slice(&location.to_le_bytes());
        last.copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (location, sum) = bytes.split_first_chunk::<8>()?;
        let location = u64::from_le_bytes(*location);
        let sum = u32::from_le_bytes(sum.try_into().ok()?);
        Some(PageHandle { offset: location >> 24, units: (location & 0xFF_FFFF) as u32, sum })
    }
}

/// A page in memory: its bytes and the positions of its entries.
#[derive(Debug)]
pub(super) struct Page {
    bytes: Box<[u8]>,
    /// Start and end of the common prefix in `bytes`.
    prefix: (usize, usize),
    /// Number of entries.
    len: usize,
    entries: Offsets,
    /// Height above the leaves: 0 for a leaf.
    height: u8,
}

/// Start and end of each key, and the end of the page. A value extends from the end of its key to the next key. Most
/// pages are short, and 16-bit positions leave more of the cache for pages.
#[derive(Debug)]
enum Offsets {
    Short(Box<[(u16, u16)]>),
    Long(Box<[(u32, u32)]>),
}

impl Offsets {
    /// Returns the start and end of a key.
    #[inline]
    fn get(&self, at: usize) -> Option<(usize, usize)> {
        match self {
            Offsets::Short(offsets) => {
                offsets.get(at).map(|(from, to)| (usize::from(*from), usize::from(*to)))
            }
            Offsets::Long(offsets) => offsets.get(at).map(|(from, to)| (*from as usize, *to as usize)),
        }
    }
}

impl Page {
    /// Parses the lengths; `None` if they are invalid.
    pub(super) fn read(bytes: Box<[u8]>) -> Option<Self> {
        let len = u32::try_from(bytes.len()).ok()?;
        let (height, mut rest) = bytes.split_first()?;
        let count = number(&mut rest)? as usize;
        let prefix_len = number(&mut rest)?;
        // Two lengths take at least two bytes.
        if count > rest.len() / 2 {
            return None;
        }
        let prefix_at = len - rest.len() as u32;
        rest = rest.get(prefix_len as usize..)?;
        let mut lengths = Vec::with_capacity(count);
        for _ in 0..count {
            lengths.push((number(&mut rest)?, number(&mut rest)?));
        }
        let mut at = len - rest.len() as u32;
        let mut ends = Vec::with_capacity(count + 1);
        for (key, value) in lengths {
            let key_end = at.checked_add(key)?;
            ends.push((at, key_end));
            at = key_end.checked_add(value)?;
        }
        ends.push((at, at));
        let (height, prefix) = (*height, (prefix_at as usize, (prefix_at + prefix_len) as usize));
        debug_assert_eq!(ends.len(), count + 1, "one end for each entry, and the end of the page");
        let entries = match u16::try_from(len) {
            Ok(_) => Offsets::Short(ends.iter().map(|(from, to)| (*from as u16, *to as u16)).collect()),
            Err(_) => Offsets::Long(ends.into_boxed_slice()),
        };
        debug_assert!(prefix.1 <= bytes.len(), "the common prefix is outside of the page");
        (at == len).then_some(Page { bytes, prefix, len: count, entries, height })
    }

    /// Returns the height above the leaves: 0 for a leaf.
    pub(super) fn height(&self) -> u8 {
        self.height
    }

    /// Returns the number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the approximate memory of the page.
    pub(super) fn memory(&self) -> u64 {
        let offsets = match &self.entries {
            Offsets::Short(offsets) => size_of_val(&**offsets),
            Offsets::Long(offsets) => size_of_val(&**offsets),
        };
        // Includes the overhead of the cache.
        (self.bytes.len() + offsets + 160) as u64
    }

    fn part(&self, (from, to): (usize, usize)) -> &[u8] {
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// Returns the common prefix of its keys.
    #[inline]
    pub(super) fn prefix(&self) -> &[u8] {
        self.part(self.prefix)
    }

    /// Returns the key of an entry after the prefix.
    #[inline]
    pub(super) fn rest(&self, at: usize) -> &[u8] {
        debug_assert!(at <= self.len, "entry {at} of {}", self.len);
        self.entries.get(at).map_or(&[], |key| self.part(key))
    }

    /// Returns the value of an entry.
    #[inline]
    pub(super) fn value(&self, at: usize) -> &[u8] {
        match (self.entries.get(at), self.entries.get(at + 1)) {
            (Some((_, from)), Some((to, _))) => self.part((from, to)),
            _ => &[],
        }
    }

    /// Prefetches the start of an entry into the processor's cache.
    #[inline]
    pub(super) fn fetch(&self, at: usize) {
        if let Some((from, _)) = self.entries.get(at) {
            prefetch(self.bytes.get(from..).unwrap_or_default());
        }
    }

    /// Returns the whole key of an entry.
    pub(super) fn key(&self, at: usize) -> Vec<u8> {
        [self.prefix(), self.rest(at)].concat()
    }

    /// Returns the handle of a child by the index of its entry in an inner page.
    #[inline]
    pub(super) fn handle(&self, at: usize) -> Option<PageHandle> {
        PageHandle::decode(self.value(at))
    }

    /// Returns the index of a key, or of the first greater key as an error.
    #[inline]
    pub(super) fn find(&self, key: &[u8]) -> std::result::Result<usize, usize> {
        let prefix = self.prefix();
        let Some(rest) = key.strip_prefix(prefix) else {
            return Err(if key < prefix { 0 } else { self.len() });
        };
        let (mut low, mut high) = (0, self.len());
        while low < high {
            let middle = low + (high - low) / 2;
            match self.rest(middle).cmp(rest) {
                Ordering::Less => low = middle + 1,
                Ordering::Equal => return Ok(middle),
                Ordering::Greater => high = middle,
            }
        }
        Err(low)
    }

    /// Returns the index of the child that may contain a key.
    #[inline]
    pub(super) fn child(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }
}

/// Prefetches the first two cache lines of bytes.
#[inline]
#[allow(unsafe_code)]
fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = bytes.as_ptr().cast::<i8>();
        // SAFETY: a prefetch has no observable effect, whatever the address. Without it, a scan of documents waits for
        // each one that is in no processor cache.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(first);
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// Decodes a number in groups of seven bits from the front.
#[inline]
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let mut decoded = 0u64;
    for shift in (0..).step_by(7).take(5) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        decoded |= u64::from(first & 0x7F) << shift;
        if first & 0x80 == 0 {
            return u32::try_from(decoded).ok();
        }
    }
    None
}

/// Encodes pages for the file, one after the other, with a reused buffer.
pub(super) struct Framer {
    compression: Compression,
    /// Its length only grows: after the present page it holds older bytes.
    buffer: Vec<u8>,
    /// Length of the present page in whole units.
    len: usize,
    /// Hash table of LZ4, reused between pages.
    table: lz4_flex::block::CompressTable,
    /// Compressibility of the present tree's leaves.
    compressibility: Compressibility,
}

/// Recent compressibility of a tree's leaves.
#[derive(Default)]
struct Compressibility {
    /// Number of failed attempts since the last success.
    failures: u32,
    /// Number of leaves to skip.
    skip: u32,
}

impl Compressibility {
    /// Returns true if compression of the next leaf should be tried.
    fn should_try(&mut self) -> bool {
        let should_try = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        should_try
    }

    /// Records whether compression of a leaf was worth it.
    fn record(&mut self, succeeded: bool) {
        self.failures = if succeeded { 0 } else { self.failures + 1 };
        debug_assert_eq!(self.skip, 0, "a leaf was tried that had to be skipped");
        let doublings = (self.failures + 1).saturating_sub(FAILURES_MAX).min(4);
        self.skip = (1 << doublings) - 1;
    }
}

impl Framer {
    pub(super) fn new(compression: Compression) -> Framer {
        let table = lz4_flex::block::CompressTable::default();
        Framer { compression, buffer: Vec::new(), len: 0, table, compressibility: Compressibility::default() }
    }

    /// Resets the compressibility for another tree.
    pub(super) fn begin(&mut self) {
        self.compressibility = Compressibility::default();
    }

    /// Encodes a page, padded to whole units, and returns its checksum.
    pub(super) fn frame(&mut self, page: &[u8]) -> u32 {
        debug_assert!(!page.is_empty(), "a page has at least its height");
        debug_assert!(u32::try_from(page.len()).is_ok(), "the frame has 32 bits for the length");
        let capacity =
            (HEADER_BYTES + lz4_flex::block::get_maximum_output_size(page.len())).next_multiple_of(UNIT);
        if self.buffer.len() < capacity {
            self.buffer.resize(capacity, 0);
        }
        let Framer { compression, buffer, table, compressibility, .. } = self;
        let Some((frame, body)) = buffer.split_first_chunk_mut::<HEADER_BYTES>() else { return 0 };
        let is_leaf = page.first() == Some(&0);
        let is_tried = !is_leaf || compressibility.should_try();
        let compressed = match compression {
            _ if !is_tried => None,
            Compression::None => None,
            Compression::Lz4 => lz4_flex::block::compress_into_with_table(page, body, table).ok(),
            Compression::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                let compressed = ruzstd::encoding::compress_to_vec(page, level);
                body.get_mut(..compressed.len()).map(|to| {
                    to.copy_from_slice(&compressed);
                    compressed.len()
                })
            }
        };
        let compressed = compressed.filter(|len| *len < page.len() - page.len() / MIN_SAVING);
        if is_leaf && is_tried {
            compressibility.record(compressed.is_some());
        }
        let (kind, len) = match compressed {
            Some(len) => (*compression, len),
            None => {
                if let Some(to) = body.get_mut(..page.len()) {
                    to.copy_from_slice(page);
                }
                (Compression::None, page.len())
            }
        };
        frame[0] = kind as u8;
        frame[1..5].copy_from_slice(&(page.len() as u32).to_le_bytes());
        frame[5..].copy_from_slice(&(len as u32).to_le_bytes());
        debug_assert!(len <= page.len(), "compression made a page longer");
        let end = HEADER_BYTES + len;
        self.len = end.next_multiple_of(UNIT);
        debug_assert!(self.len <= buffer.len(), "the frame is longer than its buffer");
        if let Some(rest) = buffer.get_mut(end..self.len) {
            rest.fill(0);
        }
        crc32c::crc32c(buffer.get(..end).unwrap_or_default())
    }

    /// Returns the last encoded page.
    pub(super) fn framed(&self) -> &[u8] {
        debug_assert!(self.len > 0 && self.len.is_multiple_of(UNIT), "{} bytes are no frame", self.len);
        self.buffer.get(..self.len).unwrap_or_default()
    }
}

/// Decodes a page; `None` if its bytes are not the written ones.
pub(super) fn unframe(framed: &[u8], sum: u32) -> Option<Page> {
    let (kind, rest) = framed.split_first()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (compressed_len, rest) = rest.split_first_chunk::<4>()?;
    let (len, compressed_len) =
        (u32::from_le_bytes(*len) as usize, u32::from_le_bytes(*compressed_len) as usize);
    let compressed = rest.get(..compressed_len)?;
    // A ratio beyond any compression is invalid.
    if len > compressed_len.saturating_mul(RATIO_MAX) {
        return None;
    }
    if crc32c::crc32c(framed.get(..HEADER_BYTES + compressed_len)?) != sum {
        return None;
    }
    let page: Box<[u8]> = match kind {
        0 => compressed.into(),
        1 => {
            let mut page = vec![0; len].into_boxed_slice();
            (lz4_flex::block::decompress_into(compressed, &mut page).ok()? == len).then_some(page)?
        }
        2 => {
            let mut page = Vec::with_capacity(len);
            let mut decoder = ruzstd::decoding::FrameDecoder::new();
            decoder.decode_all_to_vec(compressed, &mut page).ok()?;
            page.into_boxed_slice()
        }
        _ => return None,
    };
    (page.len() == len).then(|| Page::read(page)).flatten()
}

/// Encodes a page of entries as in the file.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) fn framed(entries: &[(&[u8], &[u8])], compression: Compression) -> Vec<u8> {
    let mut run = Run::default();
    entries.iter().for_each(|(key, value)| run.push(&[], key, value));
    let (mut page, mut framer) = (Vec::new(), Framer::new(compression));
    run.take(entries.len(), 0, &mut page);
    framer.frame(&page);
    framer.framed().to_vec()
}

/// Returns the entries of an encoded page, without a check of its checksum.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) fn entries(framed: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let compressed_len = u32::from_le_bytes(*framed.get(5..)?.first_chunk()?) as usize;
    let sum = crc32c::crc32c(framed.get(..HEADER_BYTES.checked_add(compressed_len)?)?);
    let page = unframe(framed, sum)?;
    Some((0..page.len()).map(|at| (page.key(at), page.value(at).to_vec())).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entries() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
        let key = prop_oneof![
            prop::collection::vec(0u8..3, 0..6),
            (0u8..3, 100usize..300).prop_map(|(byte, len)| vec![byte; len]),
        ];
        prop::collection::btree_map(key, prop::collection::vec(any::<u8>(), 0..200), 1..80)
            .prop_map(|map| map.into_iter().collect())
    }

    fn page_of(entries: &[(Vec<u8>, Vec<u8>)], compression: Compression) -> Page {
        let mut run = Run::default();
        entries.iter().for_each(|(key, value)| run.push(&[], key, value));
        let (mut page, mut framer) = (Vec::new(), Framer::new(compression));
        run.take(entries.len(), 3, &mut page);
        // Longer and incompressible: no part of it may remain.
        framer.frame(
            &(0..40_000u32)
                .flat_map(|number| crc32c::crc32c(&number.to_le_bytes()).to_le_bytes())
                .collect::<Vec<_>>(),
        );
        let sum = framer.frame(&page);
        let framed = framer.framed();
        assert!(run.is_empty() && framed.len() % UNIT == 0);
        let compressed_len = u32::from_le_bytes(framed[5..9].try_into().unwrap()) as usize;
        assert!(framed[HEADER_BYTES + compressed_len..].iter().all(|byte| *byte == 0));
        assert!(unframe(framed, sum ^ 1).is_none());
        unframe(framed, sum).unwrap()
    }

    #[test]
    fn incompressible_data_is_tried_occasionally() {
        let random = |seed: u32| {
            let numbers = (0..2_000u32).map(|number| crc32c::crc32c(&(seed ^ number << 8).to_le_bytes()));
            [vec![0], numbers.flat_map(u32::to_le_bytes).collect()].concat()
        };
        let mut framer = Framer::new(Compression::Lz4);
        let mut tried = |page: &[u8]| {
            let was = framer.compressibility.skip == 0;
            framer.frame(page);
            (was, framer.framed().len() < page.len())
        };
        let leaves: Vec<bool> = (0..100).map(|seed| tried(&random(seed)).0).collect();
        assert!(leaves[..4].iter().all(|tried| *tried));
        assert_eq!(leaves.iter().filter(|tried| **tried).count(), 4 + 3 + 5, "{leaves:?}");
        // An inner page is always compressed. The first compressible leaf makes all later ones be tried.
        assert!(tried(&[vec![1], vec![7; 8000]].concat()).1);
        let compressed =
            (0..40).map(|_| tried(&vec![0; 8000])).skip_while(|(tried, _)| !tried).collect::<Vec<_>>();
        assert!(compressed.len() > 24 && compressed.iter().all(|(tried, compressed)| *tried && *compressed));
    }

    proptest! {
        #[test]
        fn a_page_has_its_entries(entries in entries(), searched in prop::collection::vec(0u8..3, 0..6)) {
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                let page = page_of(&entries, compression);
                prop_assert_eq!((page.len(), page.height()), (entries.len(), 3));
                for (at, (key, value)) in entries.iter().enumerate() {
                    prop_assert_eq!(&page.key(at), key);
                    prop_assert_eq!(page.value(at), value.as_slice());
                    prop_assert_eq!(page.find(key), Ok(at));
                }
                let expected = entries.binary_search_by(|(key, _)| key.as_slice().cmp(&searched));
                prop_assert_eq!(page.find(&searched), expected);
            }
        }

        #[test]
        fn bytes_that_are_no_page_are_none(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Some(page) = Page::read(bytes.into()) {
                (0..page.len()).for_each(|at| drop((page.key(at), page.value(at).len())));
            }
        }
    }
}
