//! Two ports of a bridge without a kernel, and the stations at their far ends: exact, in simulated time.

use std::cell::{RefCell, RefMut};
use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::rc::Rc;

use rustix::event::{EventfdFlags, eventfd};
use sojourn_time::{Clock, SimulatedClock, Source, Stamp, Time};

use super::BridgePort;
use crate::{PortError, Received};

/// The longest frame that goes through.
pub const LONGEST_FRAME: usize = 9018;

/// A port of a bridge.
#[derive(Debug)]
pub struct SimPort {
    cable: Cable,
    clock: SimulatedClock,
    name: &'static str,
    put: Vec<Vec<u8>>,
    readable: OwnedFd,
}

/// The far end of a port's cable.
#[derive(Clone, Debug)]
pub struct Station {
    cable: Cable,
    readable: Rc<OwnedFd>,
}

type Cable = Rc<RefCell<State>>;

#[derive(Debug)]
struct State {
    /// Towards the bridge, with the time at which each frame arrives there.
    inbound: VecDeque<(Time, Vec<u8>)>,
    /// From the bridge, with the time at which each left it.
    outbound: VecDeque<(Time, Vec<u8>)>,
    /// How many frames may be put before they are flushed.
    room: usize,
    is_down: bool,
    is_gone: bool,
    lost: u64,
}

/// Makes the two ports of a bridge, each with the station at the other end of its cable, in the time of `clock`.
///
/// # Errors
/// When the kernel gives no descriptors.
pub fn pair(clock: &SimulatedClock) -> Result<[(SimPort, Station); 2], PortError> {
    Ok([one(clock, "left")?, one(clock, "right")?])
}

fn one(clock: &SimulatedClock, name: &'static str) -> Result<(SimPort, Station), PortError> {
    let refused = |source| PortError::System { operation: "open", object: "an event descriptor".to_owned(), source };
    let readable = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(|errno| refused(errno.into()))?;
    let also = readable.try_clone().map_err(refused)?;
    let state = State {
        inbound: VecDeque::new(),
        outbound: VecDeque::new(),
        room: usize::MAX,
        is_down: false,
        is_gone: false,
        lost: 0,
    };
    let cable = Rc::new(RefCell::new(state));
    let port = SimPort { cable: Rc::clone(&cable), clock: clock.clone(), name, put: Vec::new(), readable };
    Ok((port, Station { cable, readable: Rc::new(also) }))
}

impl Station {
    /// Sends a frame that arrives at the bridge at this time; frames arrive in the order in which they are sent.
    pub fn send(&self, frame: &[u8], arrives: Time) {
        let mut state = self.cable.borrow_mut();
        if state.is_down {
            state.lost += 1;
            return;
        }
        state.inbound.push_back((arrives, frame.to_vec()));
        // Its counter cannot overflow within a test.
        let _ = rustix::io::write(&self.readable, &1_u64.to_ne_bytes());
    }

    /// Takes the next frame that the bridge has sent, and when it left.
    pub fn take(&self) -> Option<(Time, Vec<u8>)> {
        self.cable.borrow_mut().outbound.pop_front()
    }

    /// Lets the port hold so many frames before they are flushed.
    pub fn set_room(&self, frames: usize) {
        self.cable.borrow_mut().room = frames;
    }

    /// Switches the port's interface off, or on again.
    pub fn set_down(&self, is_down: bool) {
        self.cable.borrow_mut().is_down = is_down;
    }

    /// Takes the port's interface away for good.
    pub fn vanish(&self) {
        self.cable.borrow_mut().is_gone = true;
    }

    /// When the next frame arrives that the bridge has not seen yet.
    pub fn next_arrival(&self) -> Option<Time> {
        self.cable.borrow_mut().inbound.front().map(|(at, _)| *at)
    }
}

impl BridgePort for SimPort {
    fn receive(&mut self, most: usize, each: &mut dyn FnMut(&[u8], Received)) -> Result<usize, PortError> {
        let returned = self.clock.now();
        let mut count = 0;
        while count < most {
            let mut state = self.present()?;
            if state.inbound.front().is_none_or(|(at, _)| *at > returned) {
                break;
            }
            let Some((at, frame)) = state.inbound.pop_front() else { break };
            if state.inbound.is_empty() {
                let _ = rustix::io::read(&self.readable, &mut [0_u8; 8]);
            }
            // Whoever looks at a frame may use the station.
            drop(state);
            each(&frame, Received { length: frame.len(), arrived: Stamp { at, source: Source::Simulated }, returned });
            count += 1;
        }
        Ok(count)
    }

    fn put(&mut self, frame: &[u8]) -> Result<bool, PortError> {
        let state = self.present()?;
        if state.is_down || self.put.len() >= state.room || frame.len() > LONGEST_FRAME {
            return Ok(false);
        }
        drop(state);
        self.put.push(frame.to_vec());
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), PortError> {
        let put = std::mem::take(&mut self.put);
        let now = self.clock.now();
        let mut state = self.present()?;
        if state.is_down {
            state.lost += put.len() as u64;
        } else {
            state.outbound.extend(put.into_iter().map(|frame| (now, frame)));
        }
        Ok(())
    }

    fn descriptor(&self) -> BorrowedFd<'_> {
        self.readable.as_fd()
    }

    fn engine(&self) -> &str {
        "simulated"
    }

    fn own_drops(&mut self) -> u64 {
        self.cable.borrow_mut().lost
    }

    fn longest(&self) -> usize {
        LONGEST_FRAME
    }

    fn name(&self) -> &str {
        self.name
    }
}

impl SimPort {
    fn present(&self) -> Result<RefMut<'_, State>, PortError> {
        let state = self.cable.borrow_mut();
        if state.is_gone {
            let problem = "the interface has vanished while it was bridged; start again when it is back".to_owned();
            return Err(PortError::Unusable { object: self.name.to_owned(), problem });
        }
        Ok(state)
    }
}
