//! Sentences to standard error from threads that must not wait for its reader, such as the one that forwards frames: a
//! thread of its own writes them.

use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, channel, sync_channel};
use std::thread;

use anyhow::{Context, anyhow};
use sojourn_time::{Clock, Nanos, SteadyClock};

/// The number of sentences that may wait for the reader; further ones are only counted.
const ROOM: usize = 64;

/// How long the end waits for the reader.
const PATIENCE: Nanos = Nanos::seconds(1);
const LOOK_EVERY: Nanos = Nanos::millis(2);

static ASIDE: OnceLock<Aside> = OnceLock::new();

struct Aside {
    queue: SyncSender<String>,
    /// The number of sentences that have not been written yet.
    waiting: AtomicUsize,
    /// The number of sentences without room since one had room.
    left_out: AtomicU64,
}

/// Starts the thread, which calls `begin` first: to lower its priority and to give up rights. Call it once.
///
/// # Errors
/// If the thread cannot be started, or `begin` fails.
pub fn start(begin: impl FnOnce() -> io::Result<()> + Send + 'static) -> anyhow::Result<()> {
    let (queue, sentences) = sync_channel(ROOM);
    let (begun, has_begun) = channel();
    let aside = ASIDE.get_or_init(|| Aside { queue, waiting: AtomicUsize::new(0), left_out: AtomicU64::new(0) });
    let run = move || {
        let is_ready = begin();
        let goes_on = is_ready.is_ok();
        let _ = begun.send(is_ready);
        if goes_on {
            write_all(aside, &sentences);
        }
    };
    thread::Builder::new().name("sentences".to_owned()).spawn(run).context("start a thread")?;
    let ready = has_begun.recv().map_err(|_| anyhow!("the thread that prints sentences ended early"))?;
    ready.context("start the thread that prints sentences")
}

/// Prints a sentence, at once where there is no such thread. It may be lost: the reader may have closed standard error,
/// or read nothing for too long.
pub fn say(sentence: &str) {
    let Some(aside) = ASIDE.get() else { return write(sentence) };
    let left_out = aside.left_out.load(Ordering::Relaxed);
    let missing = format!("{left_out} sentences are missing here: standard error was not read");
    if left_out == 0 || aside.queue(&missing) {
        aside.left_out.fetch_sub(left_out, Ordering::Relaxed);
        if aside.queue(sentence) {
            return;
        }
    }
    aside.left_out.fetch_add(1, Ordering::Relaxed);
}

impl Aside {
    /// Returns whether there was room.
    fn queue(&self, sentence: &str) -> bool {
        self.waiting.fetch_add(1, Ordering::AcqRel);
        let has_room = self.queue.try_send(sentence.to_owned()).is_ok();
        if !has_room {
            self.waiting.fetch_sub(1, Ordering::AcqRel);
        }
        has_room
    }
}

/// Waits until all sentences are written, but not long for a reader that reads nothing.
pub fn finish() {
    let Some(aside) = ASIDE.get() else { return };
    let clock = SteadyClock::begin();
    let until = clock.now() + PATIENCE;
    while aside.waiting.load(Ordering::Acquire) > 0 && clock.now() < until {
        clock.wait_until(clock.now() + LOOK_EVERY, Nanos::ZERO);
    }
}

fn write_all(aside: &Aside, sentences: &Receiver<String>) {
    for sentence in sentences {
        write(&sentence);
        aside.waiting.fetch_sub(1, Ordering::AcqRel);
    }
}

fn write(sentence: &str) {
    let _ = writeln!(io::stderr(), "{}: {sentence}", crate::program());
}
