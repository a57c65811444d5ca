//! A page: a sorted run of entries, as it lies in memory and, perhaps compressed, in the file.
//!
//! Leaves hold the entries of a tree; the pages above them hold, for each page below, the least key that may be in
//! it and its [`Place`]. What all keys of a page begin with is in it once. Uncompressed a page is
//!
//! ```text
//! height (1 byte, 0 for a leaf) · number of entries · length of the common prefix · prefix
//! · for each entry the lengths of the rest of its key and of its value · for each entry that rest, and the value
//! ```
//!
//! with lengths and numbers in groups of seven bits, the least first. In the file a frame of nine bytes stands before
//! it: how it is compressed, the length of the page, and the length of what follows. The checksum of frame and page is
//! kept with the place, in the page above: so a page that is not the one that was written there last is found, too.

use std::cmp::Ordering;

#[cfg(any(test, debug_assertions, feature = "testing"))]
use super::merge::Run;
use crate::Compression;

/// Places and lengths in the file are counted in units of so many bytes.
pub(super) const UNIT: usize = 512;
/// How long the frame before a page is.
const FRAME: usize = 9;
/// No page is so many times as long as it is compressed: Zstandard packs 128 KB into some ten bytes.
const RATIO_MAX: usize = 1 << 15;
/// A page that doesn't become shorter by an eighth is stored as it is.
const WORTH: usize = 8;
/// After so many leaves of a tree that did not, one behind the other, one of two is tried, then of four, of eight, of sixteen.
const TRIED_IN_VAIN: u32 = 4;

/// Where a page lies, and what its bytes add up to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The offset, in units.
    pub(super) offset: u64,
    /// How much room it takes, in units.
    pub(super) units: u32,
    /// The CRC-32C of its frame and what follows.
    pub(super) sum: u32,
}

impl Place {
    /// How long a place is as stored.
    pub(super) const BYTES: usize = 12;

    pub(super) fn encode(self) -> [u8; Place::BYTES] {
        let where_it_is = self.offset << 24 | u64::from(self.units);
        let mut bytes = [0; Place::BYTES];
        let (first, last) = bytes.split_at_mut(8);
        first.copy_from_slice(&where_it_is.to_le_bytes());
        last.copy_from_slice(&self.sum.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (where_it_is, sum) = bytes.split_first_chunk::<8>()?;
        let where_it_is = u64::from_le_bytes(*where_it_is);
        let sum = u32::from_le_bytes(sum.try_into().ok()?);
        Some(Place { offset: where_it_is >> 24, units: (where_it_is & 0xFF_FFFF) as u32, sum })
    }
}

/// A page in memory: its bytes, and where in them its entries are.
#[derive(Debug)]
pub(super) struct Page {
    bytes: Box<[u8]>,
    prefix: (usize, usize),
    len: usize,
    entries: Places,
    height: u8,
}

/// Where each key begins and ends, and at last where the page ends; a value lies from the end of its key to where the
/// next begins. Nearly all pages are short, and short numbers leave the cache more room for pages.
#[derive(Debug)]
enum Places {
    Short(Box<[(u16, u16)]>),
    Long(Box<[(u32, u32)]>),
}

impl Places {
    #[inline]
    fn get(&self, at: usize) -> Option<(usize, usize)> {
        match self {
            Places::Short(places) => places.get(at).map(|(from, to)| (usize::from(*from), usize::from(*to))),
            Places::Long(places) => places.get(at).map(|(from, to)| (*from as usize, *to as usize)),
        }
    }
}

impl Page {
    /// Reads the lengths; `None` if they make no sense.
    pub(super) fn read(bytes: Box<[u8]>) -> Option<Self> {
        let len = u32::try_from(bytes.len()).ok()?;
        let (height, mut rest) = bytes.split_first()?;
        let count = number(&mut rest)? as usize;
        let prefix_len = number(&mut rest)?;
        // Two lengths take two bytes at least.
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
        let entries = match u16::try_from(len) {
            Ok(_) => Places::Short(ends.iter().map(|(from, to)| (*from as u16, *to as u16)).collect()),
            Err(_) => Places::Long(ends.into_boxed_slice()),
        };
        (at == len).then_some(Page { bytes, prefix, len: count, entries, height })
    }

    /// How far it is from the leaves: 0 for a leaf.
    pub(super) fn height(&self) -> u8 {
        self.height
    }

    /// How many entries it has.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The memory that it takes, about.
    pub(super) fn memory(&self) -> u64 {
        let places = match &self.entries {
            Places::Short(places) => size_of_val(&**places),
            Places::Long(places) => size_of_val(&**places),
        };
        // With what the cache takes for it.
        (self.bytes.len() + places + 160) as u64
    }

    fn part(&self, (from, to): (usize, usize)) -> &[u8] {
        self.bytes.get(from..to).unwrap_or_default()
    }

    /// What all its keys begin with.
    #[inline]
    pub(super) fn prefix(&self) -> &[u8] {
        self.part(self.prefix)
    }

    /// What the key of an entry has behind the prefix.
    #[inline]
    pub(super) fn rest(&self, at: usize) -> &[u8] {
        self.entries.get(at).map_or(&[], |key| self.part(key))
    }

    /// The value of an entry.
    #[inline]
    pub(super) fn value(&self, at: usize) -> &[u8] {
        match (self.entries.get(at), self.entries.get(at + 1)) {
            (Some((_, from)), Some((to, _))) => self.part((from, to)),
            _ => &[],
        }
    }

    /// Has the processor fetch the beginning of an entry, which is about to be read.
    #[inline]
    pub(super) fn fetch(&self, at: usize) {
        if let Some((from, _)) = self.entries.get(at) {
            prefetch(self.bytes.get(from..).unwrap_or_default());
        }
    }

    /// The whole key of an entry.
    pub(super) fn key(&self, at: usize) -> Vec<u8> {
        [self.prefix(), self.rest(at)].concat()
    }

    /// Where a page below is, by the number of its entry in a page that is no leaf.
    #[inline]
    pub(super) fn place(&self, at: usize) -> Option<Place> {
        Place::decode(self.value(at))
    }

    /// The entry with a key, or else the first behind it.
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

    /// The entry of the page below that a key would be in.
    #[inline]
    pub(super) fn child(&self, key: &[u8]) -> usize {
        match self.find(key) {
            Ok(at) => at,
            Err(at) => at.saturating_sub(1),
        }
    }
}

/// Has the processor fetch where bytes begin, the first two lines of its cache.
#[inline]
#[allow(unsafe_code)]
fn prefetch(bytes: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let first = bytes.as_ptr().cast::<i8>();
        // SAFETY: a prefetch reads nothing as far as the program can tell, whatever the address. A scan of documents that are
        // in no cache of the processor waits for each of them otherwise.
        unsafe {
            _mm_prefetch::<_MM_HINT_T0>(first);
            _mm_prefetch::<_MM_HINT_T0>(first.wrapping_add(64));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = bytes;
}

/// A number in groups of seven bits, taken from the front.
#[inline]
fn number(bytes: &mut &[u8]) -> Option<u32> {
    let mut found = 0u64;
    for shift in (0..).step_by(7).take(5) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        found |= u64::from(first & 0x7F) << shift;
        if first & 0x80 == 0 {
            return u32::try_from(found).ok();
        }
    }
    None
}

/// Puts pages as they lie in the file, one after the other; the memory that it takes is used again.
pub(super) struct Framer {
    compression: Compression,
    /// As long as it ever had to be: behind the page that it holds lies what was there before.
    room: Vec<u8>,
    /// How long that page is, in whole units.
    len: usize,
    table: lz4_flex::block::CompressTable,
    luck: Luck,
}

/// Whether the leaves of a tree are worth being compressed, as far as those before tell.
#[derive(Default)]
struct Luck {
    /// How many were tried in vain since one was worth it.
    in_vain: u32,
    /// How many are not tried from now on.
    skip: u32,
}

impl Luck {
    /// Whether the next one is to be tried.
    fn tries(&mut self) -> bool {
        let tries = self.skip == 0;
        self.skip = self.skip.saturating_sub(1);
        tries
    }

    fn note(&mut self, was_worth: bool) {
        self.in_vain = if was_worth { 0 } else { self.in_vain + 1 };
        let doublings = (self.in_vain + 1).saturating_sub(TRIED_IN_VAIN).min(4);
        self.skip = (1 << doublings) - 1;
    }
}

impl Framer {
    pub(super) fn new(compression: Compression) -> Framer {
        let table = lz4_flex::block::CompressTable::default();
        Framer { compression, room: Vec::new(), len: 0, table, luck: Luck::default() }
    }

    /// Forgets what the pages so far tell of others: those that come are of another tree.
    pub(super) fn begin(&mut self) {
        self.luck = Luck::default();
    }

    /// Puts a page into its frame, filled up to whole units, and returns its checksum.
    pub(super) fn frame(&mut self, page: &[u8]) -> u32 {
        let most = (FRAME + lz4_flex::block::get_maximum_output_size(page.len())).next_multiple_of(UNIT);
        if self.room.len() < most {
            self.room.resize(most, 0);
        }
        let Framer { compression, room, table, luck, .. } = self;
        let Some((frame, body)) = room.split_first_chunk_mut::<FRAME>() else { return 0 };
        let is_leaf = page.first() == Some(&0);
        let is_tried = !is_leaf || luck.tries();
        let packed = match compression {
            _ if !is_tried => None,
            Compression::None => None,
            Compression::Lz4 => lz4_flex::block::compress_into_with_table(page, body, table).ok(),
            Compression::Zstd => {
                let level = ruzstd::encoding::CompressionLevel::Fastest;
                let packed = ruzstd::encoding::compress_to_vec(page, level);
                body.get_mut(..packed.len()).map(|to| {
                    to.copy_from_slice(&packed);
                    packed.len()
                })
            }
        };
        let packed = packed.filter(|len| *len < page.len() - page.len() / WORTH);
        if is_leaf && is_tried {
            luck.note(packed.is_some());
        }
        let (kind, len) = match packed {
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
        let end = FRAME + len;
        self.len = end.next_multiple_of(UNIT);
        if let Some(rest) = room.get_mut(end..self.len) {
            rest.fill(0);
        }
        crc32c::crc32c(room.get(..end).unwrap_or_default())
    }

    /// The page that was put in last, as it lies in the file.
    pub(super) fn framed(&self) -> &[u8] {
        self.room.get(..self.len).unwrap_or_default()
    }
}

/// The page in its frame; `None` if its bytes aren't those that were written.
pub(super) fn unframe(framed: &[u8], sum: u32) -> Option<Page> {
    let (kind, rest) = framed.split_first()?;
    let (len, rest) = rest.split_first_chunk::<4>()?;
    let (packed_len, rest) = rest.split_first_chunk::<4>()?;
    let (len, packed_len) = (u32::from_le_bytes(*len) as usize, u32::from_le_bytes(*packed_len) as usize);
    let packed = rest.get(..packed_len)?;
    // What no compression reaches is no length.
    if len > packed_len.saturating_mul(RATIO_MAX) {
        return None;
    }
    if crc32c::crc32c(framed.get(..FRAME + packed_len)?) != sum {
        return None;
    }
    let page: Box<[u8]> = match kind {
        0 => packed.into(),
        1 => {
            let mut page = vec![0; len].into_boxed_slice();
            (lz4_flex::block::decompress_into(packed, &mut page).ok()? == len).then_some(page)?
        }
        2 => {
            let mut page = Vec::with_capacity(len);
            let mut decoder = ruzstd::decoding::FrameDecoder::new();
            decoder.decode_all_to_vec(packed, &mut page).ok()?;
            page.into_boxed_slice()
        }
        _ => return None,
    };
    (page.len() == len).then(|| Page::read(page)).flatten()
}

/// A page of entries in its frame, as the file has it.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) fn framed(entries: &[(&[u8], &[u8])], compression: Compression) -> Vec<u8> {
    let mut run = Run::default();
    entries.iter().for_each(|(key, value)| run.push(&[], key, value));
    let (mut page, mut framer) = (Vec::new(), Framer::new(compression));
    run.take(entries.len(), 0, &mut page);
    framer.frame(&page);
    framer.framed().to_vec()
}

/// The entries of a page in its frame, whatever its checksum would be.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub(crate) fn entries(framed: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let packed_len = u32::from_le_bytes(*framed.get(5..)?.first_chunk()?) as usize;
    let sum = crc32c::crc32c(framed.get(..FRAME.checked_add(packed_len)?)?);
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
        // Longer, and nothing that could be packed: none of it is to be left.
        framer.frame(
            &(0..40_000u32)
                .flat_map(|number| crc32c::crc32c(&number.to_le_bytes()).to_le_bytes())
                .collect::<Vec<_>>(),
        );
        let sum = framer.frame(&page);
        let framed = framer.framed();
        assert!(run.is_empty() && framed.len() % UNIT == 0);
        let packed_len = u32::from_le_bytes(framed[5..9].try_into().unwrap()) as usize;
        assert!(framed[FRAME + packed_len..].iter().all(|byte| *byte == 0));
        assert!(unframe(framed, sum ^ 1).is_none());
        unframe(framed, sum).unwrap()
    }

    #[test]
    fn what_is_not_worth_being_compressed_is_tried_now_and_then() {
        let random = |seed: u32| {
            let numbers = (0..2_000u32).map(|number| crc32c::crc32c(&(seed ^ number << 8).to_le_bytes()));
            [vec![0], numbers.flat_map(u32::to_le_bytes).collect()].concat()
        };
        let mut framer = Framer::new(Compression::Lz4);
        let mut tried = |page: &[u8]| {
            let was = framer.luck.skip == 0;
            framer.frame(page);
            (was, framer.framed().len() < page.len())
        };
        let leaves: Vec<bool> = (0..100).map(|seed| tried(&random(seed)).0).collect();
        assert!(leaves[..4].iter().all(|tried| *tried));
        assert_eq!(leaves.iter().filter(|tried| **tried).count(), 4 + 3 + 5, "{leaves:?}");
        // A page above the leaves is compressed at all times, and the first leaf that is worth it has all others tried.
        assert!(tried(&[vec![1], vec![7; 8000]].concat()).1);
        let packed =
            (0..40).map(|_| tried(&vec![0; 8000])).skip_while(|(tried, _)| !tried).collect::<Vec<_>>();
        assert!(packed.len() > 24 && packed.iter().all(|(tried, packed)| *tried && *packed));
    }

    proptest! {
        #[test]
        fn a_page_has_what_was_put_into_it(entries in entries(), sought in prop::collection::vec(0u8..3, 0..6)) {
            for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
                let page = page_of(&entries, compression);
                prop_assert_eq!((page.len(), page.height()), (entries.len(), 3));
                for (at, (key, value)) in entries.iter().enumerate() {
                    prop_assert_eq!(&page.key(at), key);
                    prop_assert_eq!(page.value(at), value.as_slice());
                    prop_assert_eq!(page.find(key), Ok(at));
                }
                let expected = entries.binary_search_by(|(key, _)| key.as_slice().cmp(&sought));
                prop_assert_eq!(page.find(&sought), expected);
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
