//! What the disk gives to a log that is nothing but a file.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::thread::JoinHandle;
use std::time::Instant;

use tokio::runtime::Runtime;
use tokio::sync::{mpsc, oneshot};

use crate::{APPENDERS, ENTRY_BYTES, WINDOW, per_second};

const FILE_BYTES: u64 = 32 << 20;

/// A file whose blocks are there and were written, so that a sync has no metadata to write.
pub(crate) fn preallocated(path: &Path) -> File {
    let file = OpenOptions::new()
        .create_new(true)
        .write(true)
        .open(path)
        .unwrap();
    let zeros = vec![0; 1 << 20];
    for place in 0..FILE_BYTES >> 20 {
        file.write_all_at(&zeros, place << 20).unwrap();
    }
    file.sync_all().unwrap();
    file
}

/// Appends groups and syncs each; starts over at the end of a preallocated file.
pub(crate) struct Log {
    file: File,
    offset: u64,
    end: u64,
}

impl Log {
    pub(crate) const fn within(file: File) -> Self {
        Self {
            file,
            offset: 0,
            end: FILE_BYTES,
        }
    }

    pub(crate) const fn growing(file: File) -> Self {
        Self {
            file,
            offset: 0,
            end: u64::MAX,
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        if self.offset + bytes.len() as u64 > self.end {
            self.offset = 0;
        }
        self.file.write_all_at(bytes, self.offset).unwrap();
        self.file.sync_data().unwrap();
        self.offset += bytes.len() as u64;
    }

    /// Groups of these sizes one after the other for one window: nobody waits, nobody is woken.
    pub(crate) fn replay(&mut self, sizes: &[usize]) -> f64 {
        let buffer = vec![b'x'; ENTRY_BYTES * sizes.iter().max().unwrap()];
        let start = Instant::now();
        let mut count = 0;
        for size in sizes.iter().cycle() {
            self.append(buffer.get(..size * ENTRY_BYTES).unwrap());
            count += *size as u64;
            if start.elapsed() >= WINDOW {
                break;
            }
        }
        per_second(count, start)
    }
}

type Request = (Vec<u8>, oneshot::Sender<()>);

/// The same appenders, queue and answers as the journal's, with a bare file behind them.
pub(crate) struct GroupCommitted {
    queue: mpsc::Sender<Request>,
    _writer: JoinHandle<()>,
}

impl GroupCommitted {
    pub(crate) fn on(mut log: Log) -> Self {
        let (queue, mut requests) = mpsc::channel::<Request>(1_024);
        let writer = std::thread::spawn(move || {
            let (mut bytes, mut waiting) = (Vec::new(), Vec::new());
            while let Some(first) = requests.blocking_recv() {
                let mut next = Some(first);
                while let Some((entry, reply)) = next {
                    bytes.extend_from_slice(&entry);
                    waiting.push(reply);
                    next = requests.try_recv().ok();
                }
                log.append(&bytes);
                bytes.clear();
                for reply in waiting.drain(..) {
                    let _gone = reply.send(());
                }
            }
        });
        Self {
            queue,
            _writer: writer,
        }
    }

    pub(crate) fn round(&self, runtime: &Runtime) -> f64 {
        let start = Instant::now();
        let count = runtime.block_on(async {
            let appenders: Vec<_> = (0..APPENDERS)
                .map(|_| tokio::spawn(appender(self.queue.clone(), start + WINDOW)))
                .collect();
            let mut count = 0;
            for appender in appenders {
                count += appender.await.unwrap();
            }
            count
        });
        per_second(count, start)
    }
}

async fn appender(queue: mpsc::Sender<Request>, end: Instant) -> u64 {
    let mut count = 0;
    while Instant::now() < end {
        let (reply, answer) = oneshot::channel();
        queue.send((vec![b'x'; ENTRY_BYTES], reply)).await.unwrap();
        answer.await.unwrap();
        count += 1;
    }
    count
}
