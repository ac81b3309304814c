//! Write files in a second thread, batch by batch in order, so that making columns does not wait for compression.
//!
//! The thread starts with the first large batch, so small files need none. Memory is bounded by the batches that wait
//! ([`WAITING`]). An error is returned once, by a later call, at the latest at the end.

use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::{Batch, Files, RecordError, Shape};
use crate::table::{Row, Rows, Unfit};

/// The maximum number of waiting batches: tables of a log are written in turn, and a small one should not wait for a
/// large one.
const WAITING: usize = 3;

/// Files with their writer.
pub(super) struct Behind {
    shapes: Vec<Shape>,
    writer: Writer,
}

enum Writer {
    /// This thread.
    Here(Files),
    /// Another one.
    There(Other),
    /// No writer: the thread's files are lost.
    Nobody,
}

/// The second thread. It returns the files when no more batches follow, or after a failure.
struct Other {
    to: SyncSender<Batch>,
    thread: JoinHandle<(Files, Result<(), RecordError>)>,
}

impl Behind {
    pub(super) fn new(files: Files) -> Self {
        Self { shapes: files.shapes(), writer: Writer::Here(files) }
    }

    /// Return the batch of rows that were pushed.
    ///
    /// # Errors
    /// When a value does not fit its column.
    pub(super) fn take<R: Row>(&self, rows: &mut Rows<R>, pushed: Result<(), Unfit>) -> Result<Batch, RecordError> {
        let at = self.shapes.iter().position(|shape| shape.table == R::NAME).ok_or(RecordError::Broken)?;
        self.shapes[at].take(at, rows, pushed)
    }

    /// Write a batch, in order.
    ///
    /// # Errors
    /// When this batch or an earlier one cannot be written; what was written before stays readable.
    pub(super) fn write(&mut self, batch: Batch) -> Result<(), RecordError> {
        match &mut self.writer {
            Writer::Here(files) => files.write(&[batch]),
            Writer::There(_) => self.hand_over(batch),
            Writer::Nobody => Err(RecordError::Broken),
        }
    }

    /// Write a large batch in the second thread.
    ///
    /// # Errors
    /// When an earlier batch could not be written; what was written before stays readable.
    pub(super) fn write_later(&mut self, batch: Batch) -> Result<(), RecordError> {
        match mem::replace(&mut self.writer, Writer::Nobody) {
            Writer::Here(files) if !files.is_broken => self.writer = start(files),
            other => self.writer = other,
        }
        self.write(batch)
    }

    /// End the files, as [`Files::finish`].
    ///
    /// # Errors
    /// When ending them or an earlier write fails.
    pub(super) fn finish(&mut self) -> Result<(), RecordError> {
        let written = self.come_back();
        match &mut self.writer {
            Writer::Here(files) => written.and_then(|()| files.finish()),
            _ => written,
        }
    }

    /// Return whether nothing more can be written.
    pub(super) fn is_broken(&self) -> bool {
        matches!(&self.writer, Writer::Here(files) if files.is_broken)
    }

    /// Return the files, if this thread owns them.
    #[cfg(test)]
    pub(super) fn here(&mut self) -> Option<&mut Files> {
        match &mut self.writer {
            Writer::Here(files) => Some(files),
            _ => None,
        }
    }

    fn hand_over(&mut self, batch: Batch) -> Result<(), RecordError> {
        match &self.writer {
            Writer::There(other) if other.to.send(batch).is_ok() => Ok(()),
            // The thread has failed and receives no more.
            _ => self.come_back().and(Err(RecordError::Broken)),
        }
    }

    /// Wait until everything is written, and take the files back.
    fn come_back(&mut self) -> Result<(), RecordError> {
        match mem::replace(&mut self.writer, Writer::Nobody) {
            Writer::There(other) => {
                drop(other.to);
                let (files, written) = other.thread.join().unwrap_or_else(|panic| resume_unwind(panic));
                self.writer = Writer::Here(files);
                written
            }
            other => {
                self.writer = other;
                Ok(())
            }
        }
    }
}

/// On drop, wait until nobody writes the files, because the caller may remove them next.
impl Drop for Behind {
    fn drop(&mut self) {
        if let Writer::There(other) = mem::replace(&mut self.writer, Writer::Nobody) {
            drop(other.to);
            let _ = other.thread.join();
        }
    }
}

/// Start the writing thread; if that fails, this thread writes.
fn start(files: Files) -> Writer {
    let (to, batches) = sync_channel::<Batch>(WAITING);
    // The files are passed only to a running thread, so that a failed start does not lose them.
    let (give, given) = sync_channel::<Files>(1);
    let write = move || {
        let mut files = given.recv().expect("files are given to a thread that has started");
        let outcome = batches.iter().try_for_each(|batch| files.write(&[batch]));
        (files, outcome)
    };
    match Builder::new().name("records".to_owned()).spawn(write) {
        Ok(thread) => {
            // The channel has room for one, and the thread exists, so this succeeds.
            let _ = give.send(files);
            Writer::There(Other { to, thread })
        }
        Err(_) => Writer::Here(files),
    }
}
