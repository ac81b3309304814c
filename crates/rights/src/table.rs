//! The privileges that each command uses during its set-up, and those that it keeps afterwards.
//! `docs/reference/rights.md` is generated from this declaration, and the tests compare it with `/proc/PID/status` of
//! running commands.

use std::io;

use crate::calls::{self, Calls};
use crate::files::{self, Folders, Landlock};
use crate::identity::Identity;
use crate::{Right, keep_only};

/// The privileges that a command needs, and until when.
#[derive(Clone, Copy, Debug)]
pub struct Needs {
    /// The command, without the program's name.
    pub command: &'static str,
    /// What it does during set-up, with all privileges that it was started with.
    pub set_up: &'static str,
    /// The capabilities that only the set-up uses.
    pub dropped: &'static [Dropped],
    /// The capabilities that it keeps; the set-up may use them too.
    pub kept: &'static [Kept],
    /// The user that it becomes, if root started it.
    pub user: Who,
    /// The groups of system calls that it may make.
    pub calls: &'static [Calls],
    /// What it may still create, open for writing and remove.
    pub writes: &'static str,
}

/// A capability that a command drops when it is set up.
#[derive(Clone, Copy, Debug)]
pub struct Dropped {
    /// The capability.
    pub right: Right,
    /// Its purpose.
    pub purpose: &'static str,
}

/// A capability that a command keeps.
#[derive(Clone, Copy, Debug)]
pub struct Kept {
    /// The capability.
    pub right: Right,
    /// Its purpose.
    pub purpose: &'static str,
    /// Until when it is kept.
    pub until: &'static str,
}

/// The user that a command becomes after its set-up, if root started it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    /// The user that ran sudo, otherwise nobody.
    Unprivileged,
    /// The user that ran sudo if the command's files can belong to it, otherwise root without capabilities; with the
    /// reason.
    Caller(&'static str),
    /// The owner of a folder if it can write in it, otherwise root without capabilities; with the folder and the
    /// reason.
    Owner(&'static str),
    /// The user that started it; with the reason.
    Unchanged(&'static str),
}

impl Needs {
    /// Drop what only the set-up needed, for this thread and those that it starts later: the user, the capabilities in
    /// every set, and new privileges through exec. Running threads must call it too.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn drop_privileges(&self) -> io::Result<()> {
        self.drop_privileges_keeping(&[])
    }

    /// Like [`Self::drop_privileges`], but also keep `more` for now.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn drop_privileges_keeping(&self, more: &[Right]) -> io::Result<()> {
        if let Some(user) = self.becomes() {
            user.assume_with_rights().map_err(io::Error::other)?;
        }
        let kept: Vec<Right> = self.kept.iter().map(|kept| kept.right).chain(more.iter().copied()).collect();
        keep_only(&kept).map_err(in_words("give up capabilities"))
    }

    /// Return the user for a command that needs no more files of its present user; `None`: the user is unchanged.
    pub fn becomes(&self) -> Option<Identity> {
        Identity::unprivileged().filter(|_| self.user == Who::Unprivileged)
    }

    /// Make only the folders in `writable` writable for this thread and those that it starts. Open files stay open, and
    /// everything can still be read. Return how much of this the kernel enforces.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn write_only_below(&self, writable: Folders) -> io::Result<Landlock> {
        files::write_only_below(writable).map_err(in_words("restrict by Landlock what is written"))
    }

    /// Restrict this thread and those that it starts to the system calls of this command.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn restrict_calls(&self) -> io::Result<()> {
        calls::allow_only(self.calls).map_err(in_words("restrict system calls by seccomp"))
    }

    /// Apply all restrictions, for a command that opens no more files for writing.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn confine(&self) -> io::Result<()> {
        self.drop_privileges()?;
        self.write_only_below(Folders::default())?;
        self.restrict_calls()
    }

    /// Return the capabilities that it keeps, as a mask of `/proc/PID/status`.
    pub fn mask(&self) -> u64 {
        self.kept.iter().fold(0, |mask, kept| mask | kept.right.bit())
    }

    /// Return every capability that it uses, during its set-up or later.
    pub fn rights(&self) -> impl Iterator<Item = Right> {
        self.dropped.iter().map(|dropped| dropped.right).chain(self.kept.iter().map(|kept| kept.right))
    }
}

/// Return a function that says of an error what was refused.
fn in_words(operation: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{operation}: {error}"))
}

/// Until when a command has what its set-up alone uses.
pub const SET_UP: &str = "it is set up";
const END: &str = "its end";
const PRIORITY: Dropped =
    Dropped { right: Right::SysNice, purpose: "its priority: nice -20, and SCHED_FIFO where `--fifo` asks for it" };
const LARGE_BUFFERS: Dropped = Dropped {
    right: Right::NetAdmin,
    purpose: "socket buffers beyond the system's limit, which hold what comes after a stall",
};
const LOW_PORT: Dropped = Dropped { right: Right::NetBindService, purpose: "a port below 1024 to listen at" };
const LOCKED: Kept = Kept {
    right: Right::IpcLock,
    purpose: "memory beyond the limit: all of it is locked, so that the next allocation would fail",
    until: END,
};
const RAW: Kept = Kept { right: Right::NetRaw, purpose: "raw and packet sockets, opened for each block", until: END };
const BUFFERS: Kept = Kept {
    right: Right::NetAdmin,
    purpose: "socket buffers that hold what comes after a stall, of each socket opened later",
    until: END,
};
const ATTACH: Kept = Kept {
    right: Right::NetAdmin,
    purpose: "socket buffers, programs hung on interfaces as streams ask for them, and the tap of live frames",
    until: END,
};
const LOAD: Kept = Kept {
    right: Right::Bpf,
    purpose: "maps and programs, loaded as streams ask for them and cleared between",
    until: END,
};
const COMPUTE: Kept = Kept {
    right: Right::Perfmon,
    purpose: "programs that compute where in a map they write, which the verifier lets nobody do without it",
    until: END,
};
const CONGESTION: &str = "congestion control that the kernel lets nobody choose without it";
const NO_FILE: &str = "nothing: its records are open";

/// Measure one block started by hand; its socket is opened during set-up.
pub const PROBE: Needs = Needs {
    command: "probe icmp, udp, raw; stamp send",
    set_up: "priority, locked memory, records, a socket, clocks of interfaces",
    dropped: &[
        PRIORITY,
        Dropped { right: Right::NetRaw, purpose: "a raw socket for ICMP, a packet socket for Ethernet frames" },
        LARGE_BUFFERS,
    ],
    kept: &[LOCKED],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets],
    writes: NO_FILE,
};

/// Measure the blocks of a study, each to a destination that its request names.
pub const PROBE_BLOCKS: Needs = Needs {
    command: "probe blocks",
    set_up: "priority, locked memory, records, clocks of interfaces",
    dropped: &[PRIORITY],
    kept: &[RAW, BUFFERS, LOCKED],
    ..PROBE
};

/// Answer probes of other hosts.
pub const RESPOND: Needs = Needs {
    command: "probe respond, stamp reflect",
    set_up: "priority, locked memory, sockets",
    dropped: &[
        PRIORITY,
        Dropped { right: Right::NetRaw, purpose: "a packet socket, for `--raw`" },
        LARGE_BUFFERS,
        LOW_PORT,
    ],
    kept: &[LOCKED],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets],
    writes: "nothing",
};

/// Measure other hosts' clocks.
pub const CLOCK: Needs = Needs {
    command: "clock",
    set_up: "priority, locked memory, a socket for each peer, records",
    dropped: &[PRIORITY, LARGE_BUFFERS],
    kept: &[LOCKED],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets],
    writes: NO_FILE,
};

/// Read captures from any source.
pub const MATCH: Needs = Needs {
    command: "match, match-slice",
    set_up: "captures and records to read, records to write",
    dropped: &[],
    kept: &[],
    user: Who::Unprivileged,
    calls: &[Calls::Basic],
    writes: NO_FILE,
};

/// Match the packets that its own taps capture.
pub const MATCH_LIVE: Needs = Needs {
    command: "match --live",
    set_up: "priority, a packet socket and a ring for each interface, filters, clocks of interfaces, records to write",
    dropped: &[
        PRIORITY,
        Dropped { right: Right::NetRaw, purpose: "a packet socket and a ring for each interface" },
        LARGE_BUFFERS,
    ],
    kept: &[],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets],
    writes: NO_FILE,
};

/// Send or receive over TCP, started by hand; connections are made, or the listener is open, during set-up.
pub const TCP: Needs = Needs {
    command: "tcp send, receive",
    set_up: "the record, connections of the sender, the socket that listens",
    dropped: &[
        Dropped { right: Right::NetAdmin, purpose: CONGESTION },
        Dropped { right: Right::NetBindService, purpose: "ports below 1024, to listen at or to send from" },
    ],
    kept: &[],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets],
    writes: NO_FILE,
};

/// Send and receive over TCP for a study, with sockets that requests name.
pub const TCP_SERVE: Needs = Needs {
    command: "tcp serve",
    set_up: "the record",
    dropped: &[],
    kept: &[
        Kept { right: Right::NetAdmin, purpose: CONGESTION, until: END },
        Kept { right: Right::NetBindService, purpose: "ports below 1024, of each listener", until: END },
    ],
    ..TCP
};

/// Pass requests to a running emulator.
pub const EMULATE_ASK: Needs = Needs {
    command: "emulate ask",
    set_up: "the emulator's control socket",
    dropped: &[],
    kept: &[],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets],
    writes: "nothing",
};

/// Read logs of an emulator from any source.
pub const EMULATE_REPLAY: Needs = Needs {
    command: "emulate replay",
    set_up: "the logs to read",
    dropped: &[],
    kept: &[],
    user: Who::Unprivileged,
    calls: &[Calls::Basic],
    writes: "nothing",
};

/// Write complete files from logs that were cut.
pub const EMULATE_RECOVER: Needs = Needs {
    command: "emulate recover",
    set_up: "the logs to read, the folder to write to",
    dropped: &[],
    kept: &[],
    user: Who::Owner("the folder that it writes to, which is to have files of that user's"),
    calls: &[Calls::Basic, Calls::Files],
    writes: "the folder that was named for it",
};

/// Run the frames of a capture through the emulator.
pub const EMULATE_OFFLINE: Needs = Needs {
    command: "emulate offline",
    set_up: "the configuration, the capture to read, the one to write",
    dropped: &[],
    kept: &[],
    user: Who::Caller("the capture that it writes is that user's, who removes it where nothing can be written"),
    calls: &[Calls::Basic, Calls::Files],
    writes: "the folder of its output",
};

/// Convert the TCP log that a killed process left.
pub const TCPLOG_RECOVER: Needs = Needs {
    command: "tcplog recover",
    set_up: "the folder of the log",
    dropped: &[],
    kept: &[],
    user: Who::Owner("the log's folder, whose files are that user's"),
    calls: &[Calls::Basic, Calls::Sockets, Calls::Files],
    writes: "the folder of the log",
};

/// Receive a TCP log from another host.
pub const TCPLOG_RECEIVE: Needs = Needs {
    command: "tcplog receive",
    set_up: "a socket that listens, the folder of the log",
    dropped: &[LOW_PORT],
    kept: &[],
    user: Who::Caller("the log is that user's, who can make its folder"),
    calls: &[Calls::Basic, Calls::Sockets, Calls::Files],
    writes: "the folder of the log",
};

/// Print the output of a running TCP log.
pub const TCPLOG_CLIENT: Needs = Needs {
    command: "tcplog watch of a running log",
    set_up: "the log's control socket",
    dropped: &[],
    kept: &[],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets],
    writes: "nothing",
};

/// Send or receive one stream started by hand, over UDP or packet sockets; everything it needs is opened during set-up.
pub const STREAM: Needs = Needs {
    command: "stream send, recv: UDP, --engine packet",
    set_up: "priority, locked memory, records, sockets, clocks of interfaces",
    dropped: &[PRIORITY, Dropped { right: Right::NetRaw, purpose: "packet sockets" }, LARGE_BUFFERS, LOW_PORT],
    kept: &[LOCKED],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets],
    writes: NO_FILE,
};

/// The same by programs in the kernel. They are loaded and attached during set-up; descriptors are enough to write and
/// read their maps, to run them, to ask for their state and to detach them.
pub const STREAM_BY_PROGRAMS: Needs = Needs {
    command: "stream send, recv: --engine xdp, live",
    set_up: "priority, locked memory, records, sockets, programs in the kernel, clocks of interfaces",
    dropped: &[
        PRIORITY,
        Dropped { right: Right::NetRaw, purpose: "packet and AF_XDP sockets" },
        Dropped {
            right: Right::NetAdmin,
            purpose: "socket buffers, programs loaded for XDP and attached to interfaces",
        },
        Dropped { right: Right::Bpf, purpose: "programs and their maps, loaded" },
        Dropped { right: Right::Perfmon, purpose: "live frames: programs that compute where in a map they write" },
    ],
    calls: &[Calls::Basic, Calls::Sockets, Calls::Programs],
    ..STREAM
};

/// Send and receive streams for a study.
pub const STREAM_SERVE: Needs = Needs {
    command: "stream serve",
    user: Who::Unchanged(
        "requests name interfaces, whose clocks (/dev/ptp) root alone may open, and files of departures, which may lie where \
         another user reads nothing; the right to read all files would be more than root without capabilities has",
    ),
    set_up: "priority, locked memory, records, the device that makes taps",
    dropped: &[PRIORITY],
    kept: &[RAW, ATTACH, LOAD, COMPUTE, LOCKED],
    calls: &[Calls::Basic, Calls::Sockets, Calls::Programs, Calls::Priority],
    ..STREAM_BY_PROGRAMS
};

/// Capture the packets of interfaces, started by hand; everything it needs is opened during set-up.
pub const CAPTURE: Needs = Needs {
    command: "capture",
    set_up: "priority, a packet socket and a ring or, with --tap bpf, programs for each interface, filters, clocks of interfaces, the folder",
    dropped: &[
        PRIORITY,
        Dropped { right: Right::NetRaw, purpose: "a packet socket and a ring for each interface" },
        Dropped { right: Right::NetAdmin, purpose: "large buffers; with `--tap bpf`, programs attached to interfaces" },
        Dropped { right: Right::Bpf, purpose: "programs and their maps, for `--tap bpf`" },
        Dropped { right: Right::Perfmon, purpose: "programs that read packets at computed places, for `--tap bpf`" },
    ],
    kept: &[],
    user: Who::Caller("the capture is that user's, who can make its folder"),
    calls: &[Calls::Basic, Calls::Sockets, Calls::Files],
    writes: "the folder of the capture",
};

/// Capture the packets of interfaces, trial by trial for a study.
pub const CAPTURE_SERVE: Needs = Needs {
    command: "capture serve",
    set_up: "priority, clocks of interfaces, the library of filters",
    dropped: &[PRIORITY],
    kept: &[
        Kept { right: Right::NetRaw, purpose: "a packet socket for each tap, opened for each trial", until: END },
        Kept {
            right: Right::DacOverride,
            purpose: "the folder of each trial, below one that is the caller's alone",
            until: END,
        },
    ],
    user: Who::Unchanged(
        "it makes files for each trial in folders that a request names, which are root's while a run goes on: who called sudo \
         must not be able to put a link there",
    ),
    calls: &[Calls::Basic, Calls::Sockets, Calls::Files],
    writes: "all that its user may: requests name the folders",
};

/// Emulate a network path between two ports.
pub const EMULATE: Needs = Needs {
    command: "emulate run",
    set_up: "priority, locked memory, idle processors, both ports and their programs in the kernel, control socket, log",
    dropped: &[
        Dropped { right: Right::NetAdmin, purpose: "socket buffers, and programs attached to the ports" },
        Dropped { right: Right::Bpf, purpose: "programs and their maps, for AF_XDP" },
        Dropped { right: Right::Perfmon, purpose: "programs that compute where they write, for AF_XDP" },
    ],
    kept: &[
        LOCKED,
        Kept { right: Right::NetRaw, purpose: "a longer ring of AF_PACKET where the MTU is raised", until: END },
        Kept { right: Right::SysNice, purpose: "SCHED_FIFO, given up while busy and taken back", until: END },
    ],
    user: Who::Unprivileged,
    calls: &[Calls::Basic, Calls::Sockets, Calls::Programs, Calls::Files, Calls::Priority],
    writes: "nothing where root started it: its log is open, and another process removes its control socket; else the folder of \
             that socket",
};

/// Remove the control socket of an emulator that root started.
pub const EMULATE_REMOVE: Needs = Needs {
    command: "what removes the control socket of emulate run",
    set_up: "the socket's folder",
    dropped: &[],
    kept: &[],
    user: Who::Owner(
        "the socket's folder, from which nobody else may remove it; it reads nothing but the end of a pipe",
    ),
    calls: &[Calls::Basic, Calls::Files],
    writes: "that folder",
};

/// Log TCP's state.
pub const TCPLOG: Needs = Needs {
    command: "tcplog run, watch",
    set_up: "programs in the kernel, COMMAND's user, the priority of the thread that drains",
    dropped: &[
        Dropped { right: Right::SysNice, purpose: "the priority of the thread that drains" },
        Dropped { right: Right::SysAdmin, purpose: "the network namespace that `--netns` names, opened" },
    ],
    kept: &[
        Kept {
            right: Right::Bpf,
            purpose: "maps that change, and programs loaded as other samples are asked for",
            until: END,
        },
        Kept {
            right: Right::NetAdmin,
            purpose: "programs attached to a cgroup as other samples are asked for",
            until: END,
        },
        Kept { right: Right::Perfmon, purpose: "programs that read the kernel's structures", until: END },
    ],
    user: Who::Caller("the log is that user's, who can make its folder"),
    calls: &[Calls::Basic, Calls::Sockets, Calls::Programs, Calls::Files, Calls::Companion, Calls::Priority],
    writes: "the folder of the log",
};

/// Log TCP's state block by block for a study.
pub const TCPLOG_SERVE: Needs = Needs {
    command: "tcplog serve",
    set_up: "nothing: programs are loaded for each block",
    dropped: &[],
    kept: &[
        Kept { right: Right::Bpf, purpose: "maps and programs, loaded for each block", until: END },
        Kept { right: Right::NetAdmin, purpose: "programs attached to a cgroup for each block", until: END },
        Kept { right: Right::Perfmon, purpose: "programs that read the kernel's structures", until: END },
        Kept { right: Right::SysAdmin, purpose: "what programs cost: the kernel's statistics of them", until: END },
        Kept {
            right: Right::DacOverride,
            purpose: "the folder of each block, below one that is the caller's alone",
            until: END,
        },
        Kept { right: Right::SysNice, purpose: "the priority of the thread that drains, for each block", until: END },
    ],
    user: Who::Unchanged(
        "it makes a folder for each block in one that a request names, which is root's while a run goes on: who called sudo must \
         not be able to put a link there",
    ),
    calls: &[Calls::Basic, Calls::Sockets, Calls::Programs, Calls::Files, Calls::Namespaces, Calls::Priority],
    writes: "all that its user may: requests name the folders",
};

/// All commands.
pub const ALL: [&Needs; 24] = [
    &PROBE,
    &PROBE_BLOCKS,
    &RESPOND,
    &CLOCK,
    &MATCH,
    &MATCH_LIVE,
    &TCP,
    &TCP_SERVE,
    &STREAM,
    &STREAM_BY_PROGRAMS,
    &STREAM_SERVE,
    &CAPTURE,
    &CAPTURE_SERVE,
    &EMULATE,
    &EMULATE_REMOVE,
    &EMULATE_ASK,
    &EMULATE_REPLAY,
    &EMULATE_RECOVER,
    &EMULATE_OFFLINE,
    &TCPLOG,
    &TCPLOG_SERVE,
    &TCPLOG_RECOVER,
    &TCPLOG_RECEIVE,
    &TCPLOG_CLIENT,
];
