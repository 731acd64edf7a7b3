//! The body of a request, looked at for placeholders as it goes by.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use palyra_core::InjectionTable;

use crate::refusal::Refusal;
use crate::watch::{Watch, misdirected};

/// The body. It breaks off at a placeholder.
pub(crate) struct Watched {
    body: Incoming,
    table: Arc<InjectionTable>,
    watch: Option<Watch>,
    caught: Arc<OnceLock<Refusal>>,
}

impl Watched {
    pub(crate) fn new(body: Incoming, table: &Arc<InjectionTable>) -> Self {
        Self {
            body,
            table: Arc::clone(table),
            watch: Watch::over(table),
            caught: Arc::default(),
        }
    }

    /// Where it is told what broke the body off.
    pub(crate) fn caught(&self) -> Arc<OnceLock<Refusal>> {
        Arc::clone(&self.caught)
    }

    fn look(&mut self, frame: &Frame<Bytes>) -> Result<(), Refusal> {
        let Some(watch) = &mut self.watch else {
            return Ok(());
        };
        if let Some(data) = frame.data_ref() {
            watch.look(data)?;
        }
        for (name, value) in frame.trailers_ref().into_iter().flatten() {
            let parts = [name.as_str().as_bytes(), value.as_bytes()];
            let found = parts
                .iter()
                .find_map(|part| misdirected(&self.table, part, "in a trailer"));
            found.map_or(Ok(()), Err)?;
        }
        Ok(())
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error.into()))),
            Some(Ok(frame)) => frame,
        };
        match self.look(&frame) {
            Ok(()) => Poll::Ready(Some(Ok(frame))),
            Err(refusal) => {
                let _ = self.caught.set(refusal.clone());
                Poll::Ready(Some(Err(refusal.into())))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
