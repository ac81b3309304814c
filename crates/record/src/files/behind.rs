//! Files that a second thread writes, batch by batch in their order: who makes columns does not wait while others are compressed.
//!
//! The thread begins with the first batch that is large, so that what is small needs none. Memory is bounded by the batches that
//! wait ([`WAITING`]). What goes wrong is said at a later call, once, and at the end at the latest.

use std::mem;
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};

use super::{Batch, Files, RecordError, Shape};
use crate::table::{Row, Rows, Unfit};

/// How many batches wait for the second thread: tables of a log come in turn, and one that is small is not to wait for a large one.
const WAITING: usize = 3;

/// Files, and who writes them.
pub(super) struct Behind {
    shapes: Vec<Shape>,
    writer: Writer,
}

enum Writer {
    /// This thread.
    Here(Files),
    /// Another one.
    There(Other),
    /// Nobody: a thread could not be had back.
    Nobody,
}

/// The second thread, which gives the files back when nothing more comes, or when it failed.
struct Other {
    to: SyncSender<Batch>,
    thread: JoinHandle<(Files, Result<(), RecordError>)>,
}

impl Behind {
    pub(super) fn new(files: Files) -> Self {
        Self { shapes: files.shapes(), writer: Writer::Here(files) }
    }

    /// Returns the batch of rows that were pushed.
    ///
    /// # Errors
    /// When a value does not fit its column.
    pub(super) fn take<R: Row>(&self, rows: &mut Rows<R>, pushed: Result<(), Unfit>) -> Result<Batch, RecordError> {
        let at = self.shapes.iter().position(|shape| shape.table == R::NAME).ok_or(RecordError::Broken)?;
        self.shapes[at].take(at, rows, pushed)
    }

    /// Writes a batch now.
    ///
    /// # Errors
    /// When it, or one before it, cannot be written; what was written before stays readable.
    pub(super) fn write(&mut self, batch: Batch) -> Result<(), RecordError> {
        match &mut self.writer {
            Writer::Here(files) => files.write(&[batch]),
            Writer::There(_) => self.hand_over(batch),
            Writer::Nobody => Err(RecordError::Broken),
        }
    }

    /// Writes a large batch, later.
    ///
    /// # Errors
    /// When one before it could not be written; what was written before stays readable.
    pub(super) fn write_later(&mut self, batch: Batch) -> Result<(), RecordError> {
        match mem::replace(&mut self.writer, Writer::Nobody) {
            Writer::Here(files) if !files.is_broken => self.writer = start(files),
            other => self.writer = other,
        }
        self.write(batch)
    }

    /// Ends the files, as [`Files::finish`].
    ///
    /// # Errors
    /// When it, or a write before, fails.
    pub(super) fn finish(&mut self) -> Result<(), RecordError> {
        let written = self.come_back();
        match &mut self.writer {
            Writer::Here(files) => written.and_then(|()| files.finish()),
            _ => written,
        }
    }

    /// Whether nothing more can be written.
    pub(super) fn is_broken(&self) -> bool {
        matches!(&self.writer, Writer::Here(files) if files.is_broken)
    }

    /// The files, where this thread has them.
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
            // It takes no more: it failed.
            _ => self.come_back().and(Err(RecordError::Broken)),
        }
    }

    /// Waits until all is written, and takes the files back.
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

/// Whoever gives the files up may remove them next: nobody writes them any more.
impl Drop for Behind {
    fn drop(&mut self) {
        if let Writer::There(other) = mem::replace(&mut self.writer, Writer::Nobody) {
            drop(other.to);
            let _ = other.thread.join();
        }
    }
}

/// Starts a thread that writes; where there can be none, it is done here.
fn start(files: Files) -> Writer {
    let (to, batches) = sync_channel::<Batch>(WAITING);
    // The files go to the thread once it is there, so that they are not lost with one that is not.
    let (give, given) = sync_channel::<Files>(1);
    let write = move || {
        let mut files = given.recv().expect("files are given to a thread that has started");
        let outcome = batches.iter().try_for_each(|batch| files.write(&[batch]));
        (files, outcome)
    };
    match Builder::new().name("records".to_owned()).spawn(write) {
        Ok(thread) => {
            // It has room for one, and is there.
            let _ = give.send(files);
            Writer::There(Other { to, thread })
        }
        Err(_) => Writer::Here(files),
    }
}
