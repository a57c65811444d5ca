//! An embeddable document database without sockets: catalog, collections, indexes, plans, commits.
