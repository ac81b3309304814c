//! An interface that this host itself uses, whose frames take a way over two others: over a bridge in user space between these two.
//!
//! Nothing of the interface changes, neither addresses nor routes: programs of traffic control (Linux 6.6) send its frames on,
//! and let those pass that have been there. They end with this value or with the process, however it ends, and the interface
//! then is as it was.

use std::io;

use sojourn_time::{Nanos, Time};

use crate::PortError;
use crate::bpf::{AttachedTc, Attachment, End, Program, object};
use crate::kernel::Interface;

/// How often it is looked whether its programs still hang there.
const LOOK_EVERY: Nanos = Nanos::millis(200);
/// `BPF_F_INGRESS`: as if it had come in there.
const INWARD: u32 = 1;
const OUTWARD: u32 = 0;

/// The way round.
#[derive(Debug)]
pub struct Detour {
    hung: Vec<(String, AttachedTc, Program)>,
    looked: Time,
}

impl Detour {
    /// Begins it: what the host sends by `interface` comes out of the far end of `inner`, what comes in of that of `outer`, and what
    /// comes back by either goes on at `interface`.
    ///
    /// # Errors
    /// `Denied` without the right, `Unusable` on a kernel before Linux 6.6, else when there is no such interface.
    pub fn begin(interface: &str, inner: &str, outer: &str, now: Time) -> Result<Self, PortError> {
        let [interface, inner, outer] = [interface, inner, outer].map(Interface::named);
        let (interface, inner, outer) = (interface?, inner?, outer?);
        let hang = |name, at: &Interface, end, to: &Interface, flags: u32| {
            let constants = [to.index.to_ne_bytes(), flags.to_ne_bytes()].concat();
            let program = Program::load(name, object!("detour.bpf.o"), &constants)?;
            let hung = program.attach_tc(at, end).map_err(|error| refused(&at.name, &error))?;
            Ok((at.name.clone(), hung, program))
        };
        // First the ways back: no frame is to leave that could not return.
        let hung = [
            hang("come_back", &inner, End::In, &interface, INWARD),
            hang("come_back", &outer, End::In, &interface, OUTWARD),
            hang("leave", &interface, End::Out, &inner, OUTWARD),
            hang("leave", &interface, End::In, &outer, OUTWARD),
        ];
        // And the other way round at the end.
        let hung = hung.into_iter().rev().collect::<Result<_, PortError>>()?;
        Ok(Self { hung, looked: now })
    }

    /// Looks now and then whether its programs hang where they did.
    ///
    /// # Errors
    /// `TakenAway` where one does not: frames of the interface are emulated no more, or only one way.
    pub fn look(&mut self, now: Time) -> Result<(), PortError> {
        if now - self.looked < LOOK_EVERY {
            return Ok(());
        }
        self.looked = now;
        for (name, hung, _) in &self.hung {
            let problem = match hung.state() {
                Ok(Attachment::Hangs) => continue,
                Ok(Attachment::Detached) => "its program of traffic control was detached, or it is gone".to_owned(),
                Ok(Attachment::Replaced(other)) => {
                    format!("its program of traffic control was replaced by another one ({other})")
                }
                Err(error) => {
                    format!("the kernel does not say whether its program of traffic control hangs there: {error}")
                }
            };
            return Err(PortError::TakenAway { object: name.clone(), problem });
        }
        Ok(())
    }
}

fn refused(name: &str, error: &io::Error) -> PortError {
    let problem = format!("no program of traffic control can be attached ({error}): that needs Linux 6.6 or later");
    PortError::Unusable { object: name.to_owned(), problem }
}
