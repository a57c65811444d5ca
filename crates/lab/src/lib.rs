//! Experiments and load tests over the wire: a place kept, nothing is here yet.
//!
//! It will measure any server alike, through an ordinary driver, so it may import `base` alone. Until
//! then single operations are measured by `bench/operations`.
