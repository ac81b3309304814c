//! The reader's side of a ring's protocol, whatever memory the ring lies in: the kernel's, or a model of it.

mod sys;

pub(super) use sys::{Mapped, Reader};
