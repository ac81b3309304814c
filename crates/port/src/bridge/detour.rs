//! Detours the frames of an interface that this host itself uses over two others, and so over a bridge in user space.
//!
//! Changes neither addresses nor routes of the interface: tc programs (tcx, Linux 6.6) redirect its frames, and pass
//! those that have been over the detour. The programs are detached when this value is dropped or the process ends; the
//! interface then is as before.

use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use crate::PortError;
use crate::bpf::{AttachedTc, Attachment, End, Program, object};
use crate::kernel::Interface;

/// `BPF_F_INGRESS`: redirect to the ingress of the interface.
const INWARD: u32 = 1;
const OUTWARD: u32 = 0;

/// The attached programs, with their interfaces' names: the kernel keeps a program for as long as its link.
type Hung = Vec<(String, AttachedTc)>;

/// An active detour.
#[derive(Debug)]
pub struct Detour {
    hung: Arc<Hung>,
    broken: (Sender<PortError>, Receiver<PortError>),
}

/// Monitors the programs of a detour in the thread of a [`Watch`](super::Watch): querying them waits for the kernel's
/// RTNL lock.
#[derive(Debug)]
pub struct DetourGuard {
    hung: Weak<Hung>,
    told: Sender<PortError>,
}

impl Detour {
    /// Starts it: egress frames of `interface` leave by `inner`, its ingress frames leave by `outer`, and frames
    /// received on either continue at `interface`.
    ///
    /// # Errors
    /// `Denied` without permission, `Unusable` on a kernel before Linux 6.6, else when there is no such interface.
    pub fn begin(interface: &str, inner: &str, outer: &str) -> Result<Self, PortError> {
        let [interface, inner, outer] = [interface, inner, outer].map(Interface::named);
        let (interface, inner, outer) = (interface?, inner?, outer?);
        let hang = |name, at: &Interface, end, to: &Interface, flags: u32| {
            let constants = [to.index.to_ne_bytes(), flags.to_ne_bytes()].concat();
            let program = Program::load(name, object!("detour.bpf.o"), &constants)?;
            let hung = program.attach_tc(at, end).map_err(|error| refused(&at.name, &error))?;
            Ok((at.name.clone(), hung))
        };
        // Attach the return programs first: no frame may leave that could not return.
        let hung = [
            hang("come_back", &inner, End::In, &interface, INWARD),
            hang("come_back", &outer, End::In, &interface, OUTWARD),
            hang("leave", &interface, End::Out, &inner, OUTWARD),
            hang("leave", &interface, End::In, &outer, OUTWARD),
        ];
        // Reversed, so that they are detached in the opposite order.
        let hung = hung.into_iter().rev().collect::<Result<Hung, PortError>>()?;
        Ok(Self { hung: Arc::new(hung), broken: channel() })
    }

    /// What a watch monitors.
    pub fn guard(&self) -> DetourGuard {
        DetourGuard { hung: Arc::downgrade(&self.hung), told: self.broken.0.clone() }
    }

    /// Returns the error that the watch detected.
    ///
    /// # Errors
    /// `TakenAway` where a program was removed: frames of the interface are no longer emulated, or only in one
    /// direction.
    pub fn heed(&self) -> Result<(), PortError> {
        self.broken.1.try_recv().map_or(Ok(()), Err)
    }
}

impl DetourGuard {
    /// Checks that its programs are still attached.
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
