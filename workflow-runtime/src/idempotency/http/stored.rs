//! A response as it is kept under a key, and what a request is compared by.
//!
//! Owns the bytes of both. Never decides whether a response is kept.

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

use crate::codec;
use crate::digest::Digest;

/// The version of a kept response.
const FORMAT: u8 = 1;

/// What a kept response consists of, in this order.
type Fields = (u16, Vec<(String, Bytes)>, Bytes);

/// Says on a response that it is the first one's, not a new one.
pub(super) const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// Encodes a response: status, the chosen headers, body.
pub(super) fn encode(
    status: StatusCode,
    headers: &HeaderMap,
    chosen: &[HeaderName],
    body: Bytes,
) -> Bytes {
    let kept = headers.iter().filter(|(name, _)| chosen.contains(name));
    let kept = kept.map(|(name, value)| {
        (
            name.as_str().to_owned(),
            Bytes::copy_from_slice(value.as_bytes()),
        )
    });
    let fields: Fields = (status.as_u16(), kept.collect(), body);
    let mut out = vec![FORMAT];
    codec::encode_into(&fields, &mut out);
    out.into()
}

/// Rebuilds a response, marked as a replay.
///
/// # Errors
///
/// Says what is wrong with the bytes.
pub(super) fn decode(bytes: &[u8]) -> Result<Response<Bytes>, String> {
    let fields = match bytes.split_first() {
        Some((&FORMAT, fields)) => fields,
        _ => return Err("it is no response that this release can read".into()),
    };
    let (status, headers, body): Fields = codec::decode(fields)?;
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(status).map_err(|error| error.to_string())?;
    for (name, value) in headers {
        let name = HeaderName::try_from(name).map_err(|error| error.to_string())?;
        let value = HeaderValue::from_bytes(&value).map_err(|error| error.to_string())?;
        let appended = response.headers_mut().try_append(name, value);
        appended.map_err(|error| error.to_string())?;
    }
    let replayed = HeaderValue::from_static("true");
    response.headers_mut().insert(REPLAYED, replayed);
    Ok(response)
}

/// The digest of what a request asks for: method, path, query and body, each preceded by its length.
pub(super) fn digest(parts: &Parts, body: &[u8]) -> Digest {
    let mut hash = blake3::Hasher::new_derive_key("workflow-runtime 2026-11 http request");
    let query = parts.uri.query();
    let fields: [&[u8]; 5] = [
        parts.method.as_str().as_bytes(),
        parts.uri.path().as_bytes(),
        if query.is_some() { b"?" } else { b"" },
        query.unwrap_or_default().as_bytes(),
        body,
    ];
    for field in fields {
        hash.update(&(field.len() as u64).to_le_bytes());
        hash.update(field);
    }
    let mut digest = [0; 16];
    digest.copy_from_slice(&hash.finalize().as_bytes()[..16]);
    Digest::from_bytes(digest)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use http::header::{CONTENT_TYPE, LOCATION, SET_COOKIE};

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|b| format!("{b:02x}")).collect()
    }

    #[test]
    fn the_bytes_of_a_kept_response_are_frozen() {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("a/b"));
        headers.insert(SET_COOKIE, HeaderValue::from_static("secret"));
        let body = Bytes::from_static(b"ok");
        let kept = encode(
            StatusCode::CREATED,
            &headers,
            &[CONTENT_TYPE, LOCATION],
            body,
        );
        assert_eq!(hex(&kept), "01c9010c636f6e74656e742d7479706503612f62026f6b");
        let response = decode(&kept).expect("reads");
        assert_eq!(response.status(), StatusCode::CREATED);
        assert_eq!(response.headers().len(), 2);
        assert_eq!(response.headers()[CONTENT_TYPE], "a/b");
        assert_eq!(response.headers()[REPLAYED], "true");
        assert_eq!(response.body(), "ok");
        for wrong in [&b""[..], &[2, 1], &kept[..5], &[1, 200, 0, 0, 0]] {
            assert!(decode(wrong).is_err(), "{wrong:?}");
        }
    }

    fn parts(method: &str, uri: &str) -> Parts {
        let request = http::Request::builder().method(method).uri(uri);
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn a_request_is_compared_by_method_path_query_and_body() {
        assert_eq!(
            digest(&parts("POST", "/pay?a=1"), b"{}").to_string(),
            "3641d761a89ba84f3a800bf60e9350c9"
        );
        let requests = [
            (parts("POST", "/pay"), "{}"),
            (parts("PATCH", "/pay"), "{}"),
            (parts("POST", "/pay/"), "{}"),
            (parts("POST", "/pay?"), "{}"),
            (parts("POST", "/pay?a"), "{}"),
            (parts("POST", "/pay"), "{} "),
            (parts("POST", "/pay"), ""),
        ];
        let digests = requests
            .iter()
            .map(|(parts, body)| digest(parts, body.as_bytes()));
        assert_eq!(digests.collect::<HashSet<_>>().len(), requests.len());
        let elsewhere = digest(&parts("POST", "http://host/pay"), b"{}");
        assert_eq!(
            elsewhere,
            digest(&parts("POST", "/pay"), b"{}"),
            "the host does not count"
        );
    }
}
