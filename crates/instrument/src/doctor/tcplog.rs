//! Checks of what `tcplog` needs: kernel types, a cgroup to attach to, and programs that the kernel's verifier accepts.

use std::path::Path;

use sojourn_tcplog::FieldSet;
use sojourn_tcplog::kernel::{Kernel, KernelError, KernelOptions, cgroup_root};

use super::{Check, Status};

const TYPES: &str = "/sys/kernel/btf/vmlinux";
/// Options for a trial only: no flow is logged.
const SMALL: KernelOptions =
    KernelOptions { attach: None, flows: 1, ring_bytes: 4096, btf: None, fields: FieldSet::EVERY };

pub fn examine() -> Vec<Check> {
    vec![types(), cgroup(), programs()]
}

fn types() -> Check {
    const NAME: &str = "kernel types (BTF)";
    if Path::new(TYPES).exists() {
        return Check::ok(NAME, format!("{TYPES}, for tcplog"));
    }
    Check::new(NAME, Status::Missing, format!("no {TYPES}: tcplog cannot find the kernel's fields"))
        .fix("a kernel with CONFIG_DEBUG_INFO_BTF".to_owned())
}

fn cgroup() -> Check {
    const NAME: &str = "cgroup2";
    match cgroup_root() {
        Ok(root) => Check::ok(NAME, format!("{}, for tcplog", root.display())),
        Err(error) => Check::new(NAME, Status::Missing, error.to_string())
            .fix("mount -t cgroup2 none /sys/fs/cgroup/unified".to_owned()),
    }
}

fn programs() -> Check {
    const NAME: &str = "tcplog";
    match Kernel::open(&SMALL) {
        Ok(kernel) => {
            let absent = kernel.columns().map(|columns| columns.absent).unwrap_or_default();
            let found = match absent.as_slice() {
                [] => "the kernel takes its programs, and has every field".to_owned(),
                _ => format!("the kernel takes its programs; it has no {}", absent.join(", ")),
            };
            Check::ok(NAME, found).value("absent", absent)
        }
        Err(error) => {
            let fix = match error {
                KernelError::Denied(_) => "run as root",
                _ => "Linux 5.15 or later with BTF and cgroup2",
            };
            Check::new(NAME, Status::Missing, error.to_string()).fix(fix.to_owned())
        }
    }
}
