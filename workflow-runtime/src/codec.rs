//! The one door to bincode: how the engine's *own* structures become bytes.
//!
//! Owns nothing but the choice of bincode's configuration. User payloads never pass
//! through here (see `payload`): bincode is not self-describing and would turn an added
//! field into an unreadable run.

use serde::Serialize;
use serde::de::DeserializeOwned;

/// What most records take; a larger one grows its buffer.
const ENCODED_LEN: usize = 192;

/// Encodes one of the engine's own structures onto the end of `out`.
pub(crate) fn encode_into<T: Serialize>(value: &T, out: &mut Vec<u8>) {
    bincode::serde::encode_into_std_write(value, out, bincode::config::standard())
        .expect("the engine's own structures have known lengths, and a Vec takes every write");
}

/// Encodes one of the engine's own structures.
pub(crate) fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    let mut out = Vec::with_capacity(ENCODED_LEN);
    encode_into(value, &mut out);
    out
}

/// Decodes one structure that must fill `bytes` exactly.
///
/// A length prefix that claims more than `bytes` holds fails before anything is allocated
/// for it.
///
/// # Errors
///
/// Says what bincode found wrong, or that bytes were left over.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let (value, used) = bincode::serde::decode_from_slice(bytes, bincode::config::standard())
        .map_err(|error| error.to_string())?;
    if used == bytes.len() {
        Ok(value)
    } else {
        Err(format!("{} bytes left over", bytes.len() - used))
    }
}
