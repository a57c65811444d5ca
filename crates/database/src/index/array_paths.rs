//! Which paths of a wildcard index have arrays on them: as many bits as an index can always keep, whatever
//! documents look like. A path may be taken for one with arrays that has none, never the other way round.
//!
//! The bits are stored with the index, so the way from a path to its bits must stay as it is.

/// How many words of bits there are.
pub(super) const WORDS: usize = 8;

/// Notes that some document has an array at a path.
pub(super) fn note(path: &str, words: &mut [u32]) {
    for bit in bits(path) {
        if let Some(word) = words.get_mut(bit / 32) {
            *word |= 1 << (bit % 32);
        }
    }
}

/// Whether a document may have an array at a path.
pub(super) fn may_have(path: &str, words: &[u32]) -> bool {
    bits(path).into_iter().all(|bit| words.get(bit / 32).is_some_and(|word| word & (1 << (bit % 32)) != 0))
}

/// The two bits of a path, by FNV-1a.
fn bits(path: &str) -> [usize; 2] {
    let hash = path.bytes().fold(0xCBF2_9CE4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01B3)
    });
    let within = |hash: u64| (hash % (32 * WORDS as u64)) as usize;
    [within(hash), within(hash >> 32)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_paths_are_taken_for_others() {
        let mut words = [0; WORDS];
        let path = |number: usize| format!("field{number}.list");
        (0..10).for_each(|number| note(&path(number), &mut words));
        assert!((0..10).all(|number| may_have(&path(number), &words)));
        let mistaken = (10..1010).filter(|number| may_have(&path(*number), &words)).count();
        assert!(mistaken < 30, "{mistaken}");
        assert!(!may_have("a", &[0; WORDS]));
    }

    #[test]
    fn bits_stay_as_they_are() {
        assert_eq!((bits(""), bits("a"), bits("a.b")), ([37, 228], [140, 76], [44, 25]));
    }
}
