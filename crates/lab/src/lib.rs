//! Experiments and load tests over the wire.
