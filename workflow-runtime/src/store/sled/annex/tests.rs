//! The annex: its bytes, its files, what is counted of them.
