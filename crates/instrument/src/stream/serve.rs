//! `stream serve`: one end of streams, driven by requests on standard input. Makes no decision about what is measured.
//!
//! One thread reads requests while the main thread carries one out, so that a request can finish a reception or stop a sender.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::thread;

use anyhow::Context;
use rustix::event::{EventfdFlags, eventfd};
use serde_json::{Value, json};
use sojourn_port::bpf::Anchor;
use sojourn_record::StreamFolder;
use sojourn_rights::table::STREAM_SERVE;
use sojourn_rights::{self as rights, Right};

use super::by_hand::arguments::Serve;
use super::kept::Kept;
use super::receive::{self, Reception};
use super::request::{Asked, Count, Finish, Receive};
use super::{send, simulate};
use crate::failure::WrongRequest;
use crate::place::{self, Fifo, Place};
use crate::serve::{self, Lines, Records, block_of};
use crate::sys::{self, STOP};

/// The maximum number of requests queued; beyond it, reading waits.
const MOST_REQUESTS: usize = 1024;

/// Set while the current sending must stop.
static STOP_SENDING: AtomicBool = AtomicBool::new(false);

/// The number of stop requests read but not yet processed.
static STOPS: AtomicU32 = AtomicU32::new(0);

/// Set while a reception must check for requests.
static LOOK_UP: AtomicBool = AtomicBool::new(false);

/// Carries out requests until the input ends or a signal arrives.
///
/// # Errors
/// If the machine refuses a basic setting, or records can no longer be written.
pub fn run(arguments: &Serve) -> anyhow::Result<()> {
    let signal = place::stop_signal()?;
    let place = Place::take(&arguments.place, Fifo::IfPermitted)?;
    // Must be opened before privileges are dropped.
    let kept = Kept::held_by(Anchor::prepare());
    let origin = crate::origin(arguments.simulated);
    let folder = StreamFolder::create(&arguments.record, &arguments.name, arguments.part, &origin)?;
    let records = Records::new(folder, arguments.simulated);
    let waker = Waker::new()?;
    let inbox = listen(Lines::new(signal), &waker, place.is_real_time)?;
    // Priority is set and files are open; only ports remain to be opened. The reading thread drops its own privileges.
    STREAM_SERVE.confine()?;
    serve::say(&serve::ready(Some(&place), Value::Null))?;
    let mut end = End { place, records, inbox, waker, kept };
    end.serve()?;
    Ok(end.records.into_folder().finish()?)
}

/// One end of streams.
struct End {
    place: Place,
    records: Records<StreamFolder>,
    inbox: Receiver<Incoming>,
    waker: Waker,
    kept: Kept,
}

/// A line of input: its block, and the parsed request.
struct Incoming {
    block: Option<u32>,
    asked: anyhow::Result<Asked>,
}

impl End {
    fn serve(&mut self) -> anyhow::Result<()> {
        while let Ok(Incoming { block, asked }) = self.inbox.recv() {
            match asked.and_then(|asked| self.carry_out(asked)) {
                Ok(Some(answer)) => serve::say(&answer)?,
                Ok(None) => {}
                Err(error) => serve::refuse(block, error)?,
            }
        }
        Ok(())
    }

    /// Carries out a request; `None` if it has no answer.
    fn carry_out(&mut self, asked: Asked) -> anyhow::Result<Option<Value>> {
        match asked {
            Asked::Receive(asked) => self.receive(&asked),
            Asked::Finish(Finish { block, .. }) | Asked::Count(Count { block }) => {
                Err(WrongRequest(format!("block {block} is not being received")).into())
            }
            Asked::Send(asked) => {
                self.records.folder(false)?;
                let (rows, answer) = send::send(&asked, &self.place, &mut self.kept, &STOP_SENDING)?;
                self.records.folder(false)?.write(&rows)?;
                Ok(Some(answer))
            }
            Asked::Stop => {
                note_stop();
                Ok(None)
            }
            Asked::Simulate(asked) => {
                self.records.folder(true)?;
                let (rows, answer) = simulate::simulate(&asked, &STOP_SENDING)?;
                self.records.folder(true)?.write(&rows)?;
                Ok(Some(answer))
            }
        }
    }

    /// Receives until a `finish` request; `None` if the input ends before it.
    fn receive(&mut self, asked: &Receive) -> anyhow::Result<Option<Value>> {
        self.records.folder(false)?;
        let mut reception = Reception::open(asked, &self.place, &mut self.kept)?;
        serve::say(&reception.began())?;
        let finish = loop {
            // Reset the waker before the check, so that a later request is not missed.
            self.waker.calm();
            let incoming = match self.inbox.try_recv() {
                Ok(incoming) => incoming,
                Err(mpsc::TryRecvError::Disconnected) => return Ok(None),
                Err(mpsc::TryRecvError::Empty) => {
                    reception.run(&LOOK_UP, &[self.waker.as_fd()], &mut |_| false)?;
                    continue;
                }
            };
            match incoming.asked {
                Ok(Asked::Finish(finish)) if finish.block == asked.head.block => match reception.check(&finish.sent) {
                    Ok(()) => break finish,
                    Err(error) => serve::refuse(incoming.block, error.into())?,
                },
                Ok(Asked::Count(count)) if count.block == asked.head.block => {
                    let arrived = reception.arrived()?;
                    serve::say(&json!({ "event": "counted", "block": count.block, "arrived": arrived }))?;
                }
                Ok(Asked::Stop) => note_stop(),
                Ok(_) => serve::refuse(incoming.block, busy(asked.head.block))?,
                Err(error) => serve::refuse(incoming.block, error)?,
            }
        };
        let received = reception.finish(&finish.sent, &mut self.kept)?;
        self.records.folder(false)?.write(&received.rows)?;
        Ok(Some(receive::answer(asked, &received)))
    }
}

/// Allows sending again, unless another stop request or a signal has arrived.
fn note_stop() {
    STOP_SENDING.store(false, Ordering::SeqCst);
    if STOPS.fetch_sub(1, Ordering::SeqCst) > 1 || STOP.load(Ordering::Relaxed) {
        STOP_SENDING.store(true, Ordering::SeqCst);
    }
}

fn busy(block: u32) -> anyhow::Error {
    WrongRequest(format!("block {block} is being received, and one end does one thing at a time: finish it first"))
        .into()
}

/// Reads requests in a separate thread. The thread ends with the input or on a signal; the channel then closes.
///
/// The current sending continues to its end when the input ends, but stops on a signal.
fn listen(mut lines: Lines, waker: &Waker, is_real_time: bool) -> anyhow::Result<Receiver<Incoming>> {
    let (sender, receiver) = mpsc::sync_channel(MOST_REQUESTS);
    let waker = waker.clone();
    let read = move || {
        // The thread sleeps nearly always, and must preempt a sender that never sleeps.
        if is_real_time {
            let _ = sys::run_real_time(place::PRIORITY + 1);
        }
        if rights::keep_only(&[Right::IpcLock]).and_then(|()| STREAM_SERVE.restrict_calls()).is_err() {
            return;
        }
        while let Ok(Some(line)) = lines.next() {
            let asked = serve::parse::<Asked>(&line);
            if matches!(asked, Ok(Asked::Stop)) {
                STOPS.fetch_add(1, Ordering::SeqCst);
                STOP_SENDING.store(true, Ordering::SeqCst);
            }
            // Queue the request before the wake-up for it.
            if sender.send(Incoming { block: block_of(&line), asked }).is_err() {
                break;
            }
            waker.wake();
        }
        if STOP.load(Ordering::Relaxed) {
            STOP_SENDING.store(true, Ordering::Relaxed);
        }
        drop(sender);
        waker.wake();
    };
    thread::Builder::new().name("requests".to_owned()).spawn(read).context("start a thread")?;
    Ok(receiver)
}

/// Wakes the measuring thread.
#[derive(Clone)]
struct Waker(Arc<OwnedFd>);

impl Waker {
    fn new() -> anyhow::Result<Self> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).context("create an eventfd")?;
        Ok(Self(Arc::new(fd)))
    }

    fn wake(&self) {
        LOOK_UP.store(true, Ordering::Relaxed);
        // A full eventfd counter still wakes the poll.
        let _ = rustix::io::write(&*self.0, &1_u64.to_ne_bytes());
    }

    /// Resets all wake-ups so far.
    fn calm(&self) {
        LOOK_UP.store(false, Ordering::Relaxed);
        let _ = rustix::io::read(&*self.0, &mut [0_u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
