//! Encryption at rest: a payload codec with authenticated encryption.
//!
//! Owns the bytes of an encrypted payload, the keys, and which of them writes. What passes through it is decided by
//! whoever uses a [`PayloadCodec`]; what does not is listed in `docs/encryption.md`. It never logs, and no text of it
//! quotes a key or a payload.
//!
//! ```text
//! 0xc1 | format 1 | key id, 4 bytes | mark of the key, 4 bytes | nonce, 24 bytes | ciphertext | tag, 16 bytes
//! ```

use std::collections::BTreeMap;
use std::fmt;

use chacha20poly1305::aead::inout::InOutBuf;
use chacha20poly1305::{AeadInOut, KeyInit, Tag, XChaCha20Poly1305, XNonce};
use zeroize::Zeroizing;

use crate::payload::{CodecError, ENCRYPTED, PayloadCodec, PayloadContext};

/// The version of an encrypted payload's bytes.
const FORMAT: u8 = 1;

const NONCE_LEN: usize = 24;
const TAG_LEN: usize = 16;

/// All before the ciphertext.
const HEADER_LEN: usize = 2 + 4 + 4 + NONCE_LEN;

/// Parts what is authenticated here from whatever else is done with the same key.
const DOMAIN: &[u8] = b"workflow-runtime encrypted payload 1";

/// What the mark of a key is derived in.
const MARK_CONTEXT: &str = "workflow-runtime 2026-11 mark of an encryption key";

/// How many bytes encryption adds to a payload.
pub const OVERHEAD: usize = HEADER_LEN + TAG_LEN;

/// Encrypts payloads with XChaCha20-Poly1305.
///
/// Each payload names the key that it was written with, has a random nonce of 24 bytes, and opens only in its own
/// namespace, as what it is, at the run or step that it belongs to. One key writes; any number of older ones read.
///
/// ```
/// # use workflow_runtime::{Engine, Result, workflow};
/// use workflow_runtime::encryption::{Encryption, EncryptionKey};
/// # #[workflow] async fn greet(name: String) -> Result<String> { Ok(format!("hello {name}")) }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<()> {
/// # let dir = tempfile::tempdir()?;
/// # let path = dir.path().join("orders.db");
/// # let (old, new) = ([1; 32], [2; 32]);
/// let encryption = Encryption::new(2, EncryptionKey::from_bytes(new)) // writes and reads
///     .also_reads(1, EncryptionKey::from_bytes(old));
/// let engine = Engine::builder()
///     .payload_codec(encryption)
///     .register::<greet>()
///     .open(path)
///     .await?;
/// # assert_eq!(engine.start(greet("ada".into())).await?.result().await?, "hello ada");
/// # engine.shutdown().await?;
/// # Ok(())
/// # }
/// ```
pub struct Encryption {
    writes: u32,
    keys: BTreeMap<u32, Keyed>,
    unencrypted: Unencrypted,
}

/// What is done with a payload that was written without encryption.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unencrypted {
    Refuse,
    Read,
}

/// A key that is ready for use. The cipher wipes its key when it is dropped.
struct Keyed {
    cipher: XChaCha20Poly1305,
    mark: [u8; 4],
}

/// A secret of 32 random bytes. It is wiped from memory when it is dropped, and shown nowhere.
pub struct EncryptionKey(Zeroizing<[u8; 32]>);

impl EncryptionKey {
    /// Takes the key's bytes, from a secret store say. A passphrase is not one: derive a key from it first.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// Makes a new key from the operating system's random source.
    ///
    /// # Errors
    ///
    /// If that source fails.
    pub fn random() -> std::io::Result<Self> {
        let mut key = Self::from_bytes([0; 32]);
        getrandom::fill(&mut *key.0).map_err(std::io::Error::other)?;
        Ok(key)
    }

    /// Returns the key's bytes, to be put into a secret store.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for EncryptionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EncryptionKey(..)")
    }
}

impl Keyed {
    fn new(key: &EncryptionKey) -> Self {
        let whole = Zeroizing::new(blake3::derive_key(MARK_CONTEXT, key.expose()));
        let mut mark = [0; 4];
        mark.copy_from_slice(&whole[..4]);
        Self {
            cipher: XChaCha20Poly1305::new(key.expose().into()),
            mark,
        }
    }
}

impl Encryption {
    /// Encrypts with a key. Its id is a number of your choice: it stands in clear in every payload, and names this key
    /// for ever.
    pub fn new(id: u32, key: EncryptionKey) -> Self {
        Self {
            writes: id,
            keys: BTreeMap::from([(id, Keyed::new(&key))]),
            unencrypted: Unencrypted::Refuse,
        }
    }

    /// Reads what was written with an older key, too.
    ///
    /// # Panics
    ///
    /// If the id was given before: an id names one key.
    #[must_use]
    pub fn also_reads(mut self, id: u32, key: EncryptionKey) -> Self {
        let before = self.keys.insert(id, Keyed::new(&key));
        assert!(
            before.is_none(),
            "the encryption key id {id} was given twice: an id names one key"
        );
        self
    }

    /// Reads payloads that were written before encryption was switched on; otherwise they are refused.
    ///
    /// Whoever can write to the store can then put payloads there that nobody encrypted: leave it out when the old runs
    /// are gone.
    #[must_use]
    pub fn also_reads_unencrypted(mut self) -> Self {
        self.unencrypted = Unencrypted::Read;
        self
    }

    fn seal(&self, plain: Vec<u8>, context: &PayloadContext<'_>) -> Result<Vec<u8>, String> {
        let mut nonce = [0; NONCE_LEN];
        getrandom::fill(&mut nonce)
            .map_err(|error| format!("the system has no random bytes for a nonce: {error}"))?;
        self.seal_with(nonce, plain, context)
    }

    /// Seals with a nonce that was never used before: only [`Encryption::seal`] may call it, and the tests of the bytes.
    fn seal_with(
        &self,
        nonce: [u8; NONCE_LEN],
        mut plain: Vec<u8>,
        context: &PayloadContext<'_>,
    ) -> Result<Vec<u8>, String> {
        let key = &self.keys[&self.writes];
        let mut sealed = Vec::with_capacity(OVERHEAD + plain.len());
        sealed.extend_from_slice(&[ENCRYPTED, FORMAT]);
        sealed.extend_from_slice(&self.writes.to_be_bytes());
        sealed.extend_from_slice(&key.mark);
        sealed.extend_from_slice(&nonce);
        let bound = bound_to(&sealed, context);
        let tag = key
            .cipher
            .encrypt_inout_detached(&XNonce::from(nonce), &bound, InOutBuf::from(&mut *plain))
            .map_err(|_| "the payload is too large to be encrypted".to_owned())?;
        sealed.extend_from_slice(&plain);
        sealed.extend_from_slice(&tag);
        Ok(sealed)
    }

    fn open(&self, sealed: &[u8], context: &PayloadContext<'_>) -> Result<Vec<u8>, String> {
        match sealed.first() {
            Some(&ENCRYPTED) => {}
            _ if self.unencrypted == Unencrypted::Read => return Ok(sealed.to_vec()),
            _ => {
                return Err(
                    "it is not encrypted, and this engine reads encrypted payloads only: to go on with runs from \
                     before encryption, open the engine with `Encryption::also_reads_unencrypted()`"
                        .to_owned(),
                );
            }
        }
        let Some((header, body)) = sealed.split_first_chunk::<HEADER_LEN>() else {
            return Err("it is encrypted, and was cut off".to_owned());
        };
        let [_, format, a, b, c, d, mark @ ..] = header;
        if *format != FORMAT {
            return Err(format!(
                "it is encrypted in format {format}, this release knows {FORMAT}: upgrade workflow-runtime"
            ));
        }
        let id = u32::from_be_bytes([*a, *b, *c, *d]);
        let Some(key) = self.keys.get(&id) else {
            return Err(format!(
                "it is encrypted with the key {id}, which this engine does not have: give it with \
                 `Encryption::also_reads({id}, key)`"
            ));
        };
        let (mark, nonce) = mark.split_first_chunk().expect("its length is known");
        if *mark != key.mark {
            return Err(format!(
                "it is encrypted with another key {id} than this engine has: give the one that it was written with"
            ));
        }
        let Some((body, tag)) = body.split_last_chunk::<TAG_LEN>() else {
            return Err(format!(
                "it is encrypted with the key {id}, and was cut off"
            ));
        };
        let nonce: [u8; NONCE_LEN] = nonce.try_into().expect("its length is known");
        let mut plain = body.to_vec();
        key.cipher
            .decrypt_inout_detached(
                &XNonce::from(nonce),
                &bound_to(header, context),
                InOutBuf::from(&mut *plain),
                &Tag::from(*tag),
            )
            .map_err(|_| {
                format!(
                    "it does not open with the key {id} as what stands here: it was altered, or moved from another \
                     place, run or namespace"
                )
            })?;
        Ok(plain)
    }
}

/// What is authenticated beside the ciphertext: how it was encrypted, and where it stands.
fn bound_to(header: &[u8], context: &PayloadContext<'_>) -> Vec<u8> {
    let place = context.to_bytes();
    let mut bound = Vec::with_capacity(DOMAIN.len() + header.len() + place.len());
    bound.extend_from_slice(DOMAIN);
    bound.extend_from_slice(header);
    bound.extend_from_slice(&place);
    bound
}

impl PayloadCodec for Encryption {
    fn encode(&self, plain: Vec<u8>) -> Result<Vec<u8>, String> {
        self.seal(plain, &PayloadContext::detached(""))
    }

    fn decode(&self, coded: &[u8]) -> Result<Vec<u8>, String> {
        self.open(coded, &PayloadContext::detached(""))
    }

    fn encode_at(
        &self,
        plain: Vec<u8>,
        context: &PayloadContext<'_>,
    ) -> Result<Vec<u8>, CodecError> {
        self.seal(plain, context).map_err(CodecError::Plain)
    }

    fn decode_at(&self, coded: &[u8], context: &PayloadContext<'_>) -> Result<Vec<u8>, CodecError> {
        self.open(coded, context).map_err(CodecError::Plain)
    }

    fn binds(&self) -> bool {
        true
    }
}

/// Names its keys by their ids.
impl fmt::Debug for Encryption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Encryption")
            .field("writes", &self.writes)
            .field("reads", &self.keys.keys().collect::<Vec<_>>())
            .field("unencrypted", &self.unencrypted)
            .finish()
    }
}

#[cfg(test)]
mod tests;
