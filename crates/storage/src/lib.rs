//! Ordered keys and values: the engine traits and the memory engine.
