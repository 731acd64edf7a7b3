//! A caller's hold on a call: what happens to it, how it ends, and that somebody still wants it.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use palyra_core::CallId;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::drive::{CallReport, Event};
use crate::error::{Refusal, RefusalKind};

/// What a call's driver and everyone who waits for it share.
pub(crate) struct CallShared {
    pub(crate) call: CallId,
    pub(crate) cancel: CancellationToken,
    interested: AtomicUsize,
    report: watch::Receiver<Option<Arc<CallReport>>>,
}

/// One caller's hold on a call. When the last one lets go, the call is cancelled.
pub struct CallHandle {
    pub(crate) shared: Arc<CallShared>,
    events: mpsc::Receiver<Event>,
    report: watch::Receiver<Option<Arc<CallReport>>>,
}

pub(crate) type ReportSender = watch::Sender<Option<Arc<CallReport>>>;

impl CallHandle {
    pub(crate) fn new(call: CallId) -> (Self, Arc<CallShared>, ReportSender, mpsc::Sender<Event>) {
        let (report_sender, report) = watch::channel(None);
        let (event_sender, events) = mpsc::channel(64);
        let shared = Arc::new(CallShared {
            call,
            cancel: CancellationToken::new(),
            interested: AtomicUsize::new(1),
            report: report.clone(),
        });
        let handle = Self {
            shared: Arc::clone(&shared),
            events,
            report,
        };
        (handle, shared, report_sender, event_sender)
    }

    /// A further hold, unless the last one has just let go.
    pub(crate) fn joined(shared: &Arc<CallShared>, first: Event) -> Option<Self> {
        let more = |count: usize| (count > 0).then_some(count + 1);
        shared
            .interested
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, more)
            .ok()?;
        let (sender, events) = mpsc::channel(1);
        let _ = sender.try_send(first);
        Some(Self {
            shared: Arc::clone(shared),
            events,
            report: shared.report.clone(),
        })
    }

    /// The call.
    #[must_use]
    pub fn call(&self) -> &CallId {
        &self.shared.call
    }

    /// What happens next; `None` when only the end is left to wait for.
    pub async fn next(&mut self) -> Option<Event> {
        self.events.recv().await
    }

    /// The end.
    ///
    /// # Errors
    /// The call's driver broke; the journal knows how far it came.
    pub async fn finish(mut self) -> Result<Arc<CallReport>, Refusal> {
        self.events.close();
        let ended = self.report.wait_for(Option::is_some).await;
        let report = ended.ok().and_then(|report| report.clone());
        report.ok_or_else(|| {
            Refusal::new(
                RefusalKind::Unavailable,
                "internal_error",
                format!("the call `{}` broke inside the daemon", self.shared.call),
                format!(
                    "see `palyra calls show {}` and the daemon's log",
                    self.shared.call
                ),
            )
        })
    }
}

impl Drop for CallHandle {
    fn drop(&mut self) {
        if self.shared.interested.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.cancel.cancel();
        }
    }
}
