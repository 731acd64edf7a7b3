//! What happened, as it is told: a record for each connection and each refusal, the totals, and the
//! budgets that they use up.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use palyra_core::{
    Clock, ConnectionRecord, EgressBudget, EgressEnd, EgressVia, SecretRef, Timestamp,
};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::egress::Summary;
use crate::refusal::{EgressCode, Refusal, shown};

/// Refusals of one kind that are recorded one by one; the rest are counted. A call that is told no
/// a million times fills no journal.
const MOST_ALIKE: u32 = 500;

/// The records, totals and budgets of one call.
pub(crate) struct Ledger {
    clock: Arc<dyn Clock>,
    records: mpsc::Sender<ConnectionRecord>,
    bytes_left: AtomicU64,
    connections_left: AtomicU64,
    book: Mutex<Book>,
}

#[derive(Default)]
struct Book {
    summary: Summary,
    alike: HashMap<EgressCode, u32>,
    lookups: HashSet<String>,
    /// Of connections that were cut off: sent when the call is finished.
    left_over: Vec<ConnectionRecord>,
}

impl Ledger {
    pub(crate) fn new(
        clock: Arc<dyn Clock>,
        records: mpsc::Sender<ConnectionRecord>,
        budget: EgressBudget,
    ) -> Self {
        Self {
            clock,
            records,
            bytes_left: AtomicU64::new(budget.bytes),
            connections_left: AtomicU64::new(budget.connections),
            book: Mutex::default(),
        }
    }

    fn with<T>(&self, work: impl FnOnce(&mut Book) -> T) -> T {
        work(&mut self.book.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes one connection from the budget.
    pub(crate) fn take_connection(&self) -> Result<(), Refusal> {
        if self.records.is_closed() {
            let why = "nobody takes the records of this call, so nothing is let out";
            return Err(Refusal::new(EgressCode::NotRecorded, why));
        }
        let one_less = |left: u64| left.checked_sub(1);
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.connections_left.fetch_update(set, fetch, one_less) {
            Ok(_) => Ok(()),
            Err(_) => {
                let why = "this call has made all the connections that its budget allows";
                Err(Refusal::new(EgressCode::ConnectionsUsedUp, why))
            }
        }
    }

    /// Takes bytes from the budget, after they moved.
    fn take_bytes(&self, count: u64) -> Result<(), Refusal> {
        let before = self.bytes_left.load(Ordering::Relaxed);
        let less = |left: u64| Some(left.saturating_sub(count));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let taken = self.bytes_left.fetch_update(set, fetch, less);
        match taken.unwrap_or(before) >= count {
            true => Ok(()),
            false => Err(Refusal::used_up()),
        }
    }

    /// Begins a record.
    pub(crate) fn open(self: &Arc<Self>, via: EgressVia, name: &str, port: u16) -> Open {
        let meter = Meter {
            ledger: Arc::clone(self),
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            used_up: AtomicBool::new(false),
        };
        Open {
            started: Instant::now(),
            meter: Arc::new(meter),
            record: Some(Box::new(ConnectionRecord {
                at: self.clock.now(),
                via,
                name: (!name.is_empty()).then(|| shown(name)),
                port,
                address: None,
                rule: None,
                sent: 0,
                received: 0,
                millis: 0,
                credentials: Vec::new(),
                end: EgressEnd::Closed,
            })),
        }
    }

    /// Records something that was refused and had no connection.
    pub(crate) async fn refused(
        self: &Arc<Self>,
        via: EgressVia,
        name: &str,
        port: u16,
        refusal: Refusal,
    ) {
        self.open(via, name, port).end(Err(refusal)).await;
    }

    /// Whether the refusal of a name was not recorded before: clients ask again and again.
    pub(crate) fn is_new_lookup(&self, name: &str) -> bool {
        self.with(|book| {
            let fresh = book.lookups.len() < 2 * MOST_ALIKE as usize
                && book.lookups.insert(name.to_owned());
            if !fresh {
                book.summary.refused += 1;
                book.summary.unrecorded += 1;
            }
            fresh
        })
    }

    async fn tell(&self, record: ConnectionRecord, code: Option<EgressCode>) {
        let told = self.with(|book| book.count(&record, code));
        if told && self.records.send(record).await.is_err() {
            tracing::warn!("the record of a connection was lost: nobody takes it");
        }
    }

    /// The totals, once the records of connections that were cut off are sent too.
    pub(crate) async fn close(&self) -> Summary {
        for record in self.with(|book| std::mem::take(&mut book.left_over)) {
            self.tell(record, Some(EgressCode::CallEnded)).await;
        }
        self.with(|book| book.summary.clone())
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl Book {
    /// Adds to the totals; whether the record is to be sent.
    fn count(&mut self, record: &ConnectionRecord, code: Option<EgressCode>) -> bool {
        let summary = &mut self.summary;
        summary.sent += record.sent;
        summary.received += record.received;
        if record.address.is_some() {
            summary.connections += 1;
            let name = record.name.as_deref().unwrap_or("?");
            if summary.names.len() < 1_000 {
                summary.names.insert(format!("{name}:{}", record.port));
            }
        }
        let refused = matches!(record.end, EgressEnd::Refused { .. });
        summary.refused += u64::from(refused);
        let Some(code) = code.filter(|_| record.address.is_none()) else {
            return true;
        };
        let alike = self.alike.entry(code).or_default();
        *alike += 1;
        let told = *alike <= MOST_ALIKE;
        self.summary.unrecorded += u64::from(!told);
        told
    }
}

/// Counts the bytes of one connection.
pub(crate) struct Meter {
    ledger: Arc<Ledger>,
    sent: AtomicU64,
    received: AtomicU64,
    used_up: AtomicBool,
}

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    /// From the call to a host.
    Out,
    /// From a host to the call.
    In,
}

impl Meter {
    /// Counts bytes that moved. An error when that was the last of the budget.
    pub(crate) fn moved(&self, way: Way, count: usize) -> Result<(), Refusal> {
        let count = count as u64;
        let side = match way {
            Way::Out => &self.sent,
            Way::In => &self.received,
        };
        side.fetch_add(count, Ordering::Relaxed);
        let taken = self.ledger.take_bytes(count);
        if taken.is_err() {
            self.used_up.store(true, Ordering::Relaxed);
        }
        taken
    }
}

/// The record of something that goes on. One that is dropped was cut off by the end of the call.
pub(crate) struct Open {
    started: Instant,
    meter: Arc<Meter>,
    record: Option<Box<ConnectionRecord>>,
}

impl Open {
    pub(crate) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }

    /// What the client asked for turned out to be this name.
    pub(crate) fn named(&mut self, name: &str, port: u16) {
        if let Some(record) = &mut self.record {
            record.name = Some(shown(name));
            record.port = port;
        }
    }

    pub(crate) fn ruled(&mut self, rule: Option<String>) {
        if let Some(record) = &mut self.record {
            record.rule = rule;
        }
    }

    pub(crate) fn reached(&mut self, address: SocketAddr) {
        if let Some(record) = &mut self.record {
            record.address = Some(address);
        }
    }

    pub(crate) fn carried(&mut self, secrets: &[SecretRef]) {
        let Some(record) = &mut self.record else {
            return;
        };
        for secret in secrets {
            if !record.credentials.contains(secret) {
                record.credentials.push(secret.clone());
            }
        }
    }

    /// Whether a host was reached.
    pub(crate) fn has_reached(&self) -> bool {
        self.record
            .as_ref()
            .is_some_and(|record| record.address.is_some())
    }

    /// Ends the record and sends it.
    pub(crate) async fn end(mut self, how: Result<(), Refusal>) {
        // Somewhere on the way this became an error of I/O.
        let how = match self.meter.used_up.load(Ordering::Relaxed) {
            true => how.and(Err(Refusal::used_up())),
            false => how,
        };
        let code = how.as_ref().err().map(|refusal| refusal.code);
        let end = how.map_or_else(Refusal::into_end, |()| EgressEnd::Closed);
        if let Some(record) = self.ended(end) {
            self.meter.ledger.tell(record, code).await;
        }
    }

    fn ended(&mut self, end: EgressEnd) -> Option<ConnectionRecord> {
        let mut record = self.record.take()?;
        record.sent = self.meter.sent.load(Ordering::Relaxed);
        record.received = self.meter.received.load(Ordering::Relaxed);
        record.millis = u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX);
        record.end = end;
        Some(*record)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        let why = "the call ended while this was open";
        let end = Refusal::new(EgressCode::CallEnded, why).into_end();
        if let Some(record) = self.ended(end) {
            let ledger = Arc::clone(&self.meter.ledger);
            ledger.with(|book| book.left_over.push(record));
        }
    }
}
