//! User payloads: inputs, outputs and errors as bytes.
//!
//! Owns the choice of MessagePack with field names, the size limit and the codec hook.
//! Self-describing bytes can be read back after a field was added, and shown without their
//! Rust type. Never used for the engine's own records (see `codec`).

mod hook;
mod place;

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::hint::cold_path;
use std::io;
use std::marker::PhantomData;
use std::sync::Arc;

use bytes::Bytes;
use serde::Serialize;
use serde::de::{DeserializeOwned, DeserializeSeed};

use crate::bounded::Bounded;
pub(crate) use hook::ENCRYPTED;
use hook::Hook;
pub use hook::{CodecError, PayloadCodec, PayloadError};
pub(crate) use place::Place;
pub use place::{PayloadContext, PayloadKind};

/// The largest encoded payload unless the engine says otherwise. A journal is no file store:
/// what is larger belongs into one, with its name in the journal.
pub(crate) const DEFAULT_LIMIT: usize = 2 * 1024 * 1024;

/// The most room a thread keeps for the next payload; what is larger is not copied out of it.
const KEPT_ROOM: usize = 4 * 1024;

/// How deep a payload may nest when it is read or shown.
const MAX_DEPTH: usize = 256;

/// How an engine turns values into payload bytes.
#[derive(Clone)]
pub(crate) struct Payloads {
    limit: usize,
    hook: Option<Arc<Hook>>,
    place: Place,
}

impl Default for Payloads {
    fn default() -> Self {
        Self {
            limit: DEFAULT_LIMIT,
            hook: None,
            place: Place::NOWHERE,
        }
    }
}

impl Payloads {
    pub(crate) fn new(
        limit: usize,
        codec: Option<Arc<dyn PayloadCodec>>,
        namespace: &Arc<str>,
    ) -> Self {
        let hook = codec.map(|codec| {
            let namespace = namespace.clone();
            Arc::new(Hook { codec, namespace })
        });
        Self {
            limit,
            hook,
            place: Place::NOWHERE,
        }
    }

    /// The same for payloads that stand at a place.
    pub(crate) fn at(&self, place: Place) -> Self {
        Self {
            place,
            ..self.clone()
        }
    }

    /// The codec hook, if there is one.
    #[cfg(feature = "export")]
    pub(crate) fn codec(&self) -> Option<&dyn PayloadCodec> {
        self.hook.as_ref().map(|hook| &*hook.codec)
    }

    /// Says whether payloads open at their own place only.
    pub(crate) fn binds(&self) -> bool {
        self.hook.as_ref().is_some_and(|hook| hook.codec.binds())
    }

    /// Brings a payload of another place to this one, if payloads are bound to their places at all.
    pub(crate) fn moved_from(&self, from: Place, payload: &Bytes) -> Result<Bytes, PayloadError> {
        match &self.hook {
            Some(hook) if hook.codec.binds() && from != self.place => {
                let plain = hook.decode(payload, from)?;
                Ok(hook.encode(plain, self.place)?.into())
            }
            _ => Ok(payload.clone()),
        }
    }

    /// The most bytes that a payload may have.
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    /// Encodes a value; fails as soon as the limit is passed, so that an oversized value
    /// costs no more memory than the limit.
    pub(crate) fn encode<T: Serialize + ?Sized>(&self, value: &T) -> Result<Bytes, PayloadError> {
        self.encode_within(value, self.limit)
    }

    fn encode_within<T: Serialize + ?Sized>(
        &self,
        value: &T,
        limit: usize,
    ) -> Result<Bytes, PayloadError> {
        let plain = serialized(value, limit)?;
        if self.hook.is_some() || plain.len() > KEPT_ROOM {
            return self.code(plain, limit);
        }
        let payload = Bytes::copy_from_slice(&plain);
        keep_room(plain);
        Ok(payload)
    }

    /// Encodes the arguments of a workflow, given as one value: the only argument, or a tuple of all.
    pub(crate) fn encode_arguments<T: Serialize + ?Sized>(
        &self,
        names: &[&str],
        value: &T,
    ) -> Result<Bytes, PayloadError> {
        let plain = serialized(value, self.limit)?;
        let read = rmpv::decode::read_value_with_max_depth(&mut &*plain, MAX_DEPTH);
        let read = read.map_err(|error| PayloadError::Serialize(error.to_string()))?;
        let values = match (names, read) {
            ([_], value) => vec![value],
            (_, rmpv::Value::Array(values)) => values,
            ([], rmpv::Value::Nil) => Vec::new(),
            (_, other) => vec![other],
        };
        if values.len() != names.len() {
            return Err(PayloadError::Serialize(format!(
                "{} arguments were given where {} are taken: give a tuple of all of them",
                values.len(),
                names.len()
            )));
        }
        let names = names.iter().map(|name| rmpv::Value::from(*name));
        let map = rmpv::Value::Map(names.zip(values).collect());
        let mut named = Vec::with_capacity(plain.len() + 64);
        rmpv::encode::write_value(&mut named, &map)
            .map_err(|error| PayloadError::Serialize(error.to_string()))?;
        self.code(named, self.limit)
    }

    /// Encodes a value that was serialized before an engine was at hand.
    pub(crate) fn encode_bytes(&self, plain: &Bytes) -> Result<Bytes, PayloadError> {
        match self.hook {
            None if plain.len() <= self.limit => Ok(plain.clone()),
            _ => self.encode_plain(plain),
        }
    }

    /// As [`Payloads::encode_bytes`], of bytes that are not shared.
    pub(crate) fn encode_plain(&self, plain: &[u8]) -> Result<Bytes, PayloadError> {
        if plain.len() > self.limit {
            return Err(PayloadError::TooLarge { limit: self.limit });
        }
        self.code(plain.to_vec(), self.limit)
    }

    /// Serializes a value without any engine's codec.
    pub(crate) fn plain_of<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, PayloadError> {
        serialized(value, usize::MAX)
    }

    fn code(&self, plain: Vec<u8>, limit: usize) -> Result<Bytes, PayloadError> {
        let Some(hook) = &self.hook else {
            return Ok(plain.into());
        };
        let coded = hook.encode(plain, self.place)?;
        if coded.len() > limit {
            return Err(PayloadError::TooLarge { limit });
        }
        Ok(coded.into())
    }

    /// Encodes a value that is kept only if it is small; `None` if it is not, or has no
    /// payload form.
    pub(crate) fn encode_if_small<T: Serialize + ?Sized>(
        &self,
        value: &T,
        limit: usize,
    ) -> Option<Bytes> {
        if limit == 0 {
            return None;
        }
        self.encode_within(value, limit.min(self.limit)).ok()
    }

    /// The same, for whoever needs the payload for a moment only: it is read where it was encoded.
    pub(crate) fn with_encoded_if_small<T: Serialize + ?Sized, R>(
        &self,
        value: &T,
        limit: usize,
        read: impl FnOnce(Option<&[u8]>) -> R,
    ) -> R {
        let limit = limit.min(self.limit);
        if limit == 0 {
            return read(None);
        }
        match serialized(value, limit) {
            Ok(plain) if self.hook.is_none() => {
                let answer = read(Some(&plain));
                keep_room(plain);
                answer
            }
            Ok(plain) => read(self.code(plain, limit).ok().as_deref()),
            Err(_) => read(None),
        }
    }

    /// Decodes a payload as `T`.
    pub(crate) fn decode<T: DeserializeOwned>(&self, payload: &[u8]) -> Result<T, PayloadError> {
        self.decode_seed(PhantomData::<T>, payload)
    }

    /// Decodes the arguments of a step as one value: nothing, the only argument, or a tuple of all.
    #[cfg(feature = "testing")]
    pub(crate) fn decode_arguments<T: DeserializeOwned>(
        &self,
        names: &[&str],
        payload: &[u8],
    ) -> Result<T, PayloadError> {
        let mut named = match self.value(payload)? {
            rmpv::Value::Map(named) => named,
            _ => Vec::new(),
        };
        let mut take = |name: &&str| {
            let at = named.iter().position(|(key, _)| key.as_str() == Some(name));
            at.map_or(rmpv::Value::Nil, |at| named.swap_remove(at).1)
        };
        let value = match names {
            [] => rmpv::Value::Nil,
            [only] => take(only),
            all => rmpv::Value::Array(all.iter().map(take).collect()),
        };
        let mut plain = Vec::with_capacity(payload.len());
        rmpv::encode::write_value(&mut plain, &value)
            .map_err(|error| PayloadError::Serialize(error.to_string()))?;
        self.without_codec().decode(&plain)
    }

    /// Decodes a payload with a seed.
    pub(crate) fn decode_seed<S, T>(&self, seed: S, payload: &[u8]) -> Result<T, PayloadError>
    where
        for<'de> S: DeserializeSeed<'de, Value = T>,
    {
        let plain = self.plain(payload)?;
        let mut decoder = rmp_serde::Deserializer::from_read_ref(&*plain);
        decoder.set_max_depth(MAX_DEPTH);
        seed.deserialize(&mut decoder)
            .map_err(|error| self.unreadable(payload, std::any::type_name::<T>(), &error))
    }

    /// Decodes a payload without its type, to show it.
    pub(crate) fn value(&self, payload: &[u8]) -> Result<rmpv::Value, PayloadError> {
        let plain = self.plain(payload)?;
        rmpv::decode::read_value_with_max_depth(&mut &*plain, MAX_DEPTH)
            .map_err(|error| self.unreadable(payload, "any value", &error))
    }

    fn unreadable(
        &self,
        payload: &[u8],
        type_name: &'static str,
        error: &dyn fmt::Display,
    ) -> PayloadError {
        match (payload.first(), &self.hook) {
            (Some(&ENCRYPTED), None) => PayloadError::Locked(
                "it is encrypted, and this engine has no key: open it with `.payload_codec(Encryption::new(..))` and \
                 the key that it was written with"
                    .to_owned(),
            ),
            _ => PayloadError::Deserialize {
                type_name,
                message: error.to_string(),
            },
        }
    }

    /// The same limit without the codec hook, for what is coded elsewhere.
    pub(crate) fn without_codec(&self) -> Self {
        Self {
            hook: None,
            ..self.clone()
        }
    }

    /// The same with a limit that is no larger than this, less a few bytes for what stands around a payload.
    pub(crate) fn at_most(&self, limit: usize) -> Self {
        Self {
            limit: self.limit.min(limit.saturating_sub(16)),
            ..self.clone()
        }
    }

    /// Has the codec hook transform bytes that are no payload of this; `None` if there is no hook.
    pub(crate) fn recode(&self, plain: &[u8]) -> Result<Option<Bytes>, PayloadError> {
        let hook = self.hook.as_ref();
        let coded = hook.map(|hook| hook.encode(plain.to_vec(), self.place));
        Ok(coded.transpose()?.map(Bytes::from))
    }

    /// Undoes [`Payloads::recode`].
    pub(crate) fn uncode(&self, coded: &[u8]) -> Result<Option<Vec<u8>>, PayloadError> {
        let hook = self.hook.as_ref();
        hook.map(|hook| hook.decode(coded, self.place)).transpose()
    }

    /// Undoes what the codec hook did.
    fn plain<'a>(&self, payload: &'a [u8]) -> Result<Cow<'a, [u8]>, PayloadError> {
        match &self.hook {
            None => Ok(Cow::Borrowed(payload)),
            Some(hook) => hook.decode(payload, self.place).map(Cow::Owned),
        }
    }
}

impl fmt::Debug for Payloads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Payloads")
            .field("limit", &self.limit)
            .field("codec", &self.hook.is_some())
            .finish()
    }
}

thread_local! {
    /// Room for a value while it is encoded: every step has an input and an output.
    static ROOM: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Gives the thread a payload's room for its next one.
fn keep_room(plain: Vec<u8>) {
    if plain.capacity() <= KEPT_ROOM {
        ROOM.set(plain);
    }
}

/// Serializes a value, in the thread's room as long as that is enough.
fn serialized<T: Serialize + ?Sized>(value: &T, limit: usize) -> Result<Vec<u8>, PayloadError> {
    let mut bytes = ROOM.take();
    bytes.clear();
    let mut out = Limited {
        bytes,
        limit,
        hit: false,
    };
    let mut serializer = rmp_serde::Serializer::new(&mut out).with_struct_map();
    let encoded = value.serialize(Bounded::new(&mut serializer));
    if out.hit {
        return Err(PayloadError::TooLarge { limit });
    }
    encoded.map_err(|error| PayloadError::Serialize(error.to_string()))?;
    Ok(out.bytes)
}

/// A buffer that refuses to grow past a limit.
struct Limited {
    bytes: Vec<u8>,
    limit: usize,
    hit: bool,
}

impl io::Write for Limited {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes).map(|()| bytes.len())
    }

    /// In one go: a payload is written byte by byte where it is markers.
    #[inline]
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.bytes.len() + bytes.len() > self.limit {
            cold_path();
            self.hit = true;
            return Err(io::Error::other("payload limit"));
        }
        match bytes {
            [byte] => self.bytes.push(*byte),
            bytes => self.bytes.extend_from_slice(bytes),
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use serde::Deserialize;

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(tag = "kind")]
    enum Tagged {
        Card { last4: String },
        Cash,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Rich {
        amount: f64,
        by_number: HashMap<u32, String>,
        #[serde(skip_serializing_if = "Option::is_none", default)]
        note: Option<String>,
        #[serde(flatten)]
        rest: HashMap<String, u8>,
        how: Vec<Tagged>,
        big: u128,
    }

    #[test]
    fn what_serde_can_say_comes_back_equal() {
        let payloads = Payloads::default();
        let rich = Rich {
            amount: f64::INFINITY,
            by_number: HashMap::from([(1, "one".into()), (2, "two".into())]),
            note: None,
            rest: HashMap::from([("x".into(), 1)]),
            how: vec![
                Tagged::Cash,
                Tagged::Card {
                    last4: "4242".into(),
                },
            ],
            big: u128::MAX,
        };
        let bytes = payloads.encode(&rich).expect("encodes");
        assert_eq!(payloads.decode::<Rich>(&bytes), Ok(rich));
    }

    #[test]
    fn an_added_field_with_a_default_reads_old_payloads() {
        #[derive(Serialize)]
        struct V1 {
            a: u8,
            b: u8,
        }
        #[derive(Debug, PartialEq, Deserialize)]
        struct V2 {
            b: u8,
            #[serde(default)]
            c: u8,
            a: u8,
        }
        let payloads = Payloads::default();
        let bytes = payloads.encode(&V1 { a: 1, b: 2 }).expect("encodes");
        assert_eq!(payloads.decode(&bytes), Ok(V2 { a: 1, b: 2, c: 0 }));
    }

    #[test]
    fn a_payload_past_the_limit_is_refused_by_name() {
        let payloads = Payloads::new(100, None, &"".into());
        assert!(payloads.encode(&vec![0u8; 90]).is_ok());
        assert_eq!(
            payloads.encode(&"x".repeat(101)),
            Err(PayloadError::TooLarge { limit: 100 })
        );
    }

    #[test]
    fn hostile_bytes_are_an_error_not_a_panic_or_an_allocation() {
        let payloads = Payloads::default();
        let claims_4_gib = [0xdd, 0xff, 0xff, 0xff, 0xff];
        assert!(payloads.decode::<Vec<u64>>(&claims_4_gib).is_err());
        assert!(payloads.value(&claims_4_gib).is_err());
        let nested = vec![0x91; 10_000];
        assert!(payloads.value(&nested).is_err());
    }
}
