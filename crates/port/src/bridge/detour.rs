//! An interface that this host itself uses, whose frames take a way over two others: over a bridge in user space between these two.
//!
//! Nothing of the interface changes, neither addresses nor routes: programs of traffic control (Linux 6.6) send its frames on,
//! and let those pass that have been there. They end with this value or with the process, however it ends, and the interface
//! then is as it was.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use crate::PortError;
use crate::bpf::{AttachedTc, Attachment, End, Program, object};
use crate::kernel::Interface;

/// `BPF_F_INGRESS`: as if it had come in there.
const INWARD: u32 = 1;
const OUTWARD: u32 = 0;

/// What hangs where: the kernel keeps a program for as long as its link.
type Hung = Vec<(String, AttachedTc)>;

/// The way round.
#[derive(Debug)]
pub struct Detour {
    hung: Arc<Hung>,
    broken: (Sender<PortError>, Receiver<PortError>),
}

/// Looks after the programs of a way round, in the thread of a [`Watch`](super::Watch): asking for them waits for the kernel's
/// lock of all interfaces.
#[derive(Debug)]
pub struct DetourGuard {
    hung: Weak<Hung>,
    told: Sender<PortError>,
}

impl Detour {
    /// Begins it: what the host sends by `interface` comes out of the far end of `inner`, what comes in of that of `outer`, and what
    /// comes back by either goes on at `interface`.
    ///
    /// # Errors
    /// `Denied` without the right, `Unusable` on a kernel before Linux 6.6, else when there is no such interface.
    pub fn begin(interface: &str, inner: &str, outer: &str) -> Result<Self, PortError> {
        let [interface, inner, outer] = [interface, inner, outer].map(Interface::named);
        let (interface, inner, outer) = (interface?, inner?, outer?);
        let hang = |name, at: &Interface, end, to: &Interface, flags: u32| {
            let constants = [to.index.to_ne_bytes(), flags.to_ne_bytes()].concat();
            let program = Program::load(name, object!("detour.bpf.o"), &constants)?;
            let hung = program.attach_tc(at, end).map_err(|error| refused(&at.name, &error))?;
            Ok((at.name.clone(), hung))
        };
        // First the ways back: no frame is to leave that could not return.
        let hung = [
            hang("come_back", &inner, End::In, &interface, INWARD),
            hang("come_back", &outer, End::In, &interface, OUTWARD),
            hang("leave", &interface, End::Out, &inner, OUTWARD),
            hang("leave", &interface, End::In, &outer, OUTWARD),
        ];
        // And the other way round at the end.
        let hung = hung.into_iter().rev().collect::<Result<Hung, PortError>>()?;
        Ok(Self { hung: Arc::new(hung), broken: channel() })
    }

    /// What a watch is to look after.
    pub fn guard(&self) -> DetourGuard {
        DetourGuard { hung: Arc::downgrade(&self.hung), told: self.broken.0.clone() }
    }

    /// Takes what the watch has found.
    ///
    /// # Errors
    /// `TakenAway` where a program is gone: frames of the interface are emulated no more, or only one way.
    pub fn heed(&self) -> Result<(), PortError> {
        self.broken.1.try_recv().map_or(Ok(()), Err)
    }
}

impl DetourGuard {
    /// Looks whether its programs hang where they did.
    pub(super) fn look(&self) {
        let Some(hung) = self.hung.upgrade() else { return };
        for (name, hung) in &*hung {
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
            let _ = self.told.send(PortError::TakenAway { object: name.clone(), problem });
        }
    }
}

fn refused(name: &str, error: &io::Error) -> PortError {
    let problem = format!("no program of traffic control can be attached ({error}): that needs Linux 6.6 or later");
    PortError::Unusable { object: name.to_owned(), problem }
}
