//! Secrets: random bytes and comparison in constant time.

use subtle::ConstantTimeEq;

/// Returns unpredictable bytes from the operating system.
///
/// Errors: a system without random bytes. The caller must then give up the operation.
pub fn random<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
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
    fn equal_bytes_are_equal() {
        assert!(equal(b"abc", b"abc") && equal(b"", b""));
        assert!(!equal(b"abc", b"abd") && !equal(b"abc", b"ab"));
    }
}
