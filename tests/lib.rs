//! The tests that cross crate borders; each theme is one `[[test]]` binary.
