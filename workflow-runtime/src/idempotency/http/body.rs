//! Bodies: read up to a limit, and handed on.
//!
//! Owns the body types that the layer puts between server and handler. Never holds more than its limit.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http_body::{Body, Frame, SizeHint};

/// A body that was read, or one that is handed on as it comes, or what was read of one and then the rest.
pub struct LayerBody<B: Body> {
    /// What was read.
    read: Option<Bytes>,
    /// What it failed with, to be told behind what was read.
    failed: Option<Box<B::Error>>,
    rest: Option<Pin<Box<B>>>,
}

impl<B: Body<Data = Bytes>> LayerBody<B> {
    /// A body that was read as a whole.
    pub(super) fn whole(bytes: Bytes) -> Self {
        Self {
            read: Some(bytes).filter(|bytes| !bytes.is_empty()),
            failed: None,
            rest: None,
        }
    }

    /// A body that nobody read.
    pub(super) fn untouched(body: B) -> Self {
        Self {
            read: None,
            failed: None,
            rest: Some(Box::pin(body)),
        }
    }
}

impl<B: Body<Data = Bytes>> Body for LayerBody<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.get_mut();
        if let Some(read) = this.read.take() {
            return Poll::Ready(Some(Ok(Frame::data(read))));
        }
        if let Some(error) = this.failed.take() {
            return Poll::Ready(Some(Err(*error)));
        }
        match &mut this.rest {
            Some(rest) => rest.as_mut().poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_none()
            && self.failed.is_none()
            && self.rest.as_ref().is_none_or(|rest| rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read = self.read.as_ref().map_or(0, Bytes::len) as u64;
        let rest = match &self.rest {
            Some(rest) => rest.size_hint(),
            None => SizeHint::with_exact(0),
        };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower().saturating_add(read));
        // The end of a body that failed is not known: whoever was told a length would not see that it broke off.
        if self.failed.is_none()
            && let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(read))
        {
            hint.set_upper(upper);
        }
        hint
    }
}

/// What reading a body came to.
pub(super) enum Read<B: Body> {
    /// All of it. Trailers are dropped.
    Whole(Bytes),
    /// It is longer than the limit. Nothing was lost: this is the body.
    TooLong(LayerBody<B>),
    /// It failed. Nothing was lost: this is the body.
    Failed(LayerBody<B>),
}

/// Reads a body up to a limit.
pub(super) async fn read<B: Body<Data = Bytes>>(body: B, limit: usize) -> Read<B> {
    if body.size_hint().lower() > limit as u64 {
        return Read::TooLong(LayerBody::untouched(body));
    }
    let mut body = Box::pin(body);
    let mut read = BytesMut::new();
    loop {
        let (failed, rest) = match poll_fn(|cx| body.as_mut().poll_frame(cx)).await {
            None => return Read::Whole(read.freeze()),
            Some(Ok(frame)) => {
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                read.extend_from_slice(&data);
                if read.len() <= limit {
                    continue;
                }
                (None, Some(body))
            }
            Some(Err(error)) => (Some(Box::new(error)), None),
        };
        let has_failed = failed.is_some();
        let body = LayerBody {
            read: Some(read.freeze()).filter(|bytes| !bytes.is_empty()),
            failed,
            rest,
        };
        return match has_failed {
            true => Read::Failed(body),
            false => Read::TooLong(body),
        };
    }
}
