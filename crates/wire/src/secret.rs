//! Secrets: random bytes and comparison in constant time.

use subtle::ConstantTimeEq;

#[cfg(any(test, debug_assertions, feature = "testing"))]
thread_local! {
    static SIMULATED: std::cell::RefCell<Option<base::random::Random>> = const { std::cell::RefCell::new(None) };
}

/// Takes the bytes of this thread from a seed, for a simulation; `None` returns to the operating system's.
#[cfg(any(test, debug_assertions, feature = "testing"))]
pub fn simulate(seed: Option<u64>) {
    SIMULATED.set(seed.map(base::random::Random::new));
}

/// Returns unpredictable bytes from the operating system.
///
/// Errors: a system without random bytes. The caller must then give up the operation.
pub fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    #[cfg(any(test, debug_assertions, feature = "testing"))]
    if SIMULATED.with_borrow(|random| {
        let drawn = bytes.iter_mut().zip(std::iter::from_fn(|| Some(random.as_ref()?.draw() as u8)));
        drawn.for_each(|(byte, drawn)| *byte = drawn);
        random.is_some()
    }) {
        return Ok(bytes);
    }
    getrandom::fill(&mut bytes).map_err(|error| {
        format!(
            "cannot read random numbers from the system: \
     {error}"
        )
    })?;
    Ok(bytes)
}

/// Compares two secrets in a time that does not depend on where they differ.
pub fn equal(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_the_same() {
        assert_ne!(random::<16>().unwrap(), random::<16>().unwrap());
    }

    #[test]
    fn a_simulated_thread_repeats_its_bytes() {
        let [first, second] = [7, 7].map(|seed| {
            simulate(Some(seed));
            [random::<16>().unwrap(), random::<16>().unwrap()]
        });
        simulate(None);
        assert!(first == second && first[0] != first[1]);
        assert_ne!(random::<16>().unwrap(), first[0]);
    }

    #[test]
    fn equal_bytes_are_equal() {
        assert!(equal(b"abc", b"abc") && equal(b"", b""));
        assert!(!equal(b"abc", b"abd") && !equal(b"abc", b"ab"));
    }
}
