//! How keys and their owners are named where keys live.
//!
//! Owns the derivation of a key's name, which is on disk. Never keeps the key's text: it may be secret,
//! and of any length.

use std::fmt;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::key::Key;

/// The version of the derivation below.
const DERIVATION: u16 = 1;

static CONTEXT: LazyLock<blake3::Hasher> =
    LazyLock::new(|| blake3::Hasher::new_derive_key("workflow-runtime 2026-11 guarded key"));

/// The name under which a key is kept: a hash of what kind of key it is, its scope and its text.
///
/// The text itself is kept nowhere.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyId([u8; 32]);

impl KeyId {
    /// Derives the name of a key. Keys of different kinds, or in different scopes (tenants), never meet.
    pub fn derive(kind: &str, scope: &str, key: &Key) -> Self {
        let mut hash = CONTEXT.clone();
        let version = DERIVATION.to_le_bytes();
        let fields: [&[u8]; 4] = [
            &version,
            kind.as_bytes(),
            scope.as_bytes(),
            key.as_str().as_bytes(),
        ];
        for field in fields {
            hash.update(&(field.len() as u64).to_le_bytes());
            hash.update(field);
        }
        Self(*hash.finalize().as_bytes())
    }

    /// Rebuilds a name from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the name's bytes.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who asks for a key: one execution, in one process.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct OwnerId([u8; 16]);

impl OwnerId {
    /// Makes one that nobody has.
    pub fn next() -> Self {
        static PROCESS: LazyLock<[u8; 8]> = LazyLock::new(|| {
            let random = uuid::Uuid::now_v7().into_bytes();
            *random.last_chunk().expect("16 bytes have a last 8")
        });
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&*PROCESS);
        bytes[8..].copy_from_slice(&COUNT.fetch_add(1, Ordering::Relaxed).to_le_bytes());
        Self(bytes)
    }

    /// Returns the owner's bytes.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl fmt::Debug for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_name_of_a_key_is_frozen() {
        assert_eq!(
            KeyId::derive("once", "", &Key::from("order-1")).to_string(),
            "62a81bd1211435684f7ded8a070b0e6866a36a2d73a8f38193e2daf5b2694131"
        );
        assert_eq!(
            KeyId::derive("http", "acme", &Key::from("order-1")).to_string(),
            "b01a0c2166a667e22fa6eed457bc9d4a10b00f0dee98381ac46f6a0deda1afe6"
        );
    }

    #[test]
    fn no_two_lists_of_kind_scope_and_key_share_a_name() {
        let parts = ["", "a", "ab", "b", "ba"];
        let mut names = HashSet::new();
        for kind in parts {
            for scope in parts {
                for key in parts {
                    assert!(names.insert(KeyId::derive(kind, scope, &Key::from(key))));
                }
            }
        }
    }

    #[test]
    fn no_two_owners_are_equal() {
        let owners: HashSet<_> = (0..1000).map(|_| OwnerId::next()).collect();
        assert_eq!(owners.len(), 1000);
        let bytes: HashSet<_> = owners.iter().map(OwnerId::as_bytes).collect();
        assert_eq!(
            bytes.len(),
            1000,
            "nor are their bytes, which other processes see"
        );
    }
}
