//! What the layer itself answers: `application/problem+json`, as RFC 9457 has it.
//!
//! Owns the texts. None of them repeats what the client sent.

use bytes::Bytes;
use http::header::{CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};

/// Why a request was not handed to its handler, or its first response not to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Problem {
    /// A key is required.
    Missing,
    /// The header breaks this rule.
    Malformed(&'static str),
    /// The extractor found no scope.
    NoScope,
    /// The request's body broke off.
    Unread,
    /// The request's body is longer than this.
    TooLong(usize),
    /// The first request is being handled.
    InFlight { retry_after: u64 },
    /// The key was used for another request.
    OtherRequest,
    /// Where keys live failed.
    Unavailable,
    /// What is kept under the key cannot be read.
    Unreadable,
}

impl Problem {
    fn status(self) -> StatusCode {
        match self {
            Self::Missing | Self::Malformed(_) | Self::NoScope | Self::Unread => {
                StatusCode::BAD_REQUEST
            }
            Self::TooLong(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Self::InFlight { .. } => StatusCode::CONFLICT,
            Self::OtherRequest => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Unreadable => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Missing => "Idempotency-Key is missing",
            Self::Malformed(_) => "Idempotency-Key is malformed",
            Self::NoScope => "The request belongs to nobody",
            Self::Unread => "The request's body broke off",
            Self::TooLong(_) => "The request's body is too large",
            Self::InFlight { .. } => "A request with this Idempotency-Key is being handled",
            Self::OtherRequest => "Idempotency-Key was used for another request",
            Self::Unavailable => "Idempotency keys are not available",
            Self::Unreadable => "The first response cannot be read",
        }
    }

    fn detail(self) -> String {
        match self {
            Self::Missing => "This request needs an Idempotency-Key header: send one that no other request has, and the same one with every repetition of this request".into(),
            Self::Malformed(rule) => format!("The header cannot be used: {rule}"),
            Self::NoScope => "Keys belong to a tenant, and the request names none".into(),
            Self::Unread => "The request could not be read to its end; nothing was done".into(),
            Self::TooLong(limit) => format!("A request with an Idempotency-Key may have {limit} bytes; nothing was done"),
            Self::InFlight { .. } => "The first request with this key has no response yet: repeat this one later, with the same key".into(),
            Self::OtherRequest => "The key was used before with another method, path, query or body: use another key for another request".into(),
            Self::Unavailable => "Nothing was done: repeat the request later, with the same key".into(),
            Self::Unreadable => "The request was handled before and is not handled again".into(),
        }
    }

    /// Makes the response.
    pub(super) fn response(self) -> Response<Bytes> {
        // No character of these texts needs an escape, which a test checks.
        let body = format!(
            "{{\"title\":\"{}\",\"status\":{},\"detail\":\"{}\"}}",
            self.title(),
            self.status().as_u16(),
            self.detail()
        );
        let mut response = Response::new(Bytes::from(body));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        if let Self::InFlight { retry_after } = self {
            headers.insert(RETRY_AFTER, retry_after.into());
        }
        if self == Self::Unavailable {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_is_json_with_its_status_and_names_the_way_out() {
        let all = [
            Problem::Missing,
            Problem::Malformed("it is empty"),
            Problem::NoScope,
            Problem::Unread,
            Problem::TooLong(9),
            Problem::InFlight { retry_after: 2 },
            Problem::OtherRequest,
            Problem::Unavailable,
            Problem::Unreadable,
        ];
        for problem in all {
            let response = problem.response();
            assert_eq!(response.headers()[CONTENT_TYPE], "application/problem+json");
            let body = std::str::from_utf8(response.body()).expect("text");
            let texts = [problem.title().to_owned(), problem.detail()];
            assert!(
                texts
                    .iter()
                    .all(|text| !text.contains(['"', '\\']) && text.is_ascii())
            );
            assert!(!body.contains('\n') && body.contains(&response.status().as_u16().to_string()));
        }
        let busy = Problem::InFlight { retry_after: 2 }.response();
        assert_eq!(busy.headers()[RETRY_AFTER], "2");
        assert_eq!(busy.status(), StatusCode::CONFLICT);
    }
}
