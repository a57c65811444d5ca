//! What every layer of Vellum talks in: BSON bytes, key strings, namespaces, errors.
