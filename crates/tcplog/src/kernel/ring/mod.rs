//! The reader's side of the ring protocol, for any memory: the kernel's, or a model of it.

mod sys;

pub(super) use sys::{Mapped, Reader};
