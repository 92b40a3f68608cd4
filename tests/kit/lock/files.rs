//! The file: what it says, that it is read as it was written, and what is said about it.
