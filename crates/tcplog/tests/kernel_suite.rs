//! Run the common suite on the kernel programs, over loopback in a namespace and a cgroup of their own.

mod place;
mod suite;

use std::io::{Read, Write};
use std::net::{Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};

use place::{Place, within};
use sojourn_tcplog::layout::Options;
use sojourn_tcplog::simulated::NOTHING_ASKED;
use sojourn_tcplog::{Kernel, KernelOptions, Mode, Prefix, Source};
use sojourn_time::{Clock, HostClock, Nanos};
use suite::Stand;

/// Each connection's bytes are sent in this many parts, with a turn of the reader between them.
const PARTS: u64 = 32;
const RING_BYTES: usize = 1 << 21;

/// Connections over loopback, and the programs that see both ends of each.
struct Loopback {
    source: Kernel,
    listener: TcpListener,
}

impl Loopback {
    fn new(place: &Place, flows: u32) -> Self {
        let attach = Some(place.path().to_owned());
        let options = KernelOptions { attach, flows, ring_bytes: RING_BYTES, ..KernelOptions::default() };
        let mut source = Kernel::open(&options).expect("loads");
        source.set_mode(Mode::On).expect("attaches");
        let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, 0)).expect("binds");
        Self { source, listener }
    }

    /// Half of the connections use IPv4.
    fn address(&self, connection: usize) -> SocketAddr {
        let host = if connection.is_multiple_of(2) { "127.0.0.1" } else { "::1" };
        SocketAddr::new(host.parse().expect("is an address"), self.port())
    }
}

impl Stand for Loopback {
    type Source = Kernel;

    fn source(&mut self) -> &mut Kernel {
        &mut self.source
    }

    fn carry(&mut self, connections: usize, bytes: usize, meanwhile: &mut dyn FnMut(&mut Kernel)) {
        let turns = AtomicU64::new(0);
        let addresses: Vec<_> = (0..connections).map(|connection| self.address(connection)).collect();
        std::thread::scope(|scope| {
            let listener = &self.listener;
            let server = scope.spawn(move || {
                std::thread::scope(|scope| {
                    for _ in 0..connections {
                        let (stream, _) = listener.accept().expect("accepts");
                        scope.spawn(move || serve(stream));
                    }
                });
            });
            let clients: Vec<_> =
                addresses.iter().map(|address| scope.spawn(|| send(*address, bytes, &turns))).collect();
            while !(server.is_finished() && clients.iter().all(std::thread::ScopedJoinHandle::is_finished)) {
                meanwhile(&mut self.source);
                turns.fetch_add(1, Ordering::Relaxed);
                pause(Nanos::millis(1));
            }
        });
    }

    fn rest(&mut self) {
        let give_up = HostClock.now() + Nanos::seconds(10);
        let mut before = None;
        loop {
            let totals = self.source.totals().expect("counts");
            let seen: u64 = totals.iter().flat_map(|totals| totals.seen).sum();
            if before.replace(seen) == Some(seen) {
                return;
            }
            assert!(HostClock.now() < give_up, "it never stands still");
            pause(Nanos::millis(20));
        }
    }

    fn everything(&self) -> Options {
        Options { enabled: 1, ..NOTHING_ASKED }
    }

    fn port(&self) -> u16 {
        self.listener.local_addr().expect("is bound").port()
    }

    fn prefix(&self) -> Prefix {
        Prefix { address: "127.0.0.0".parse().expect("is one"), length: 8 }
    }

    fn overfull_bytes(&self) -> usize {
        RING_BYTES * 32
    }
}

fn pause(time: Nanos) {
    let clock = HostClock;
    clock.wait_until(clock.now() + time, Nanos(0));
}

fn send(address: SocketAddr, bytes: usize, turns: &AtomicU64) {
    let mut stream = TcpStream::connect(address).expect("connects");
    let part = vec![7; bytes.div_ceil(PARTS as usize)];
    for turn in 0..PARTS {
        while turns.load(Ordering::Relaxed) < turn {
            pause(Nanos::micros(500));
        }
        stream.write_all(&part).expect("sends");
    }
    stream.shutdown(Shutdown::Write).expect("ends");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("is answered");
    assert_eq!(answer.len(), 1);
}

fn serve(mut stream: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).expect("receives") > 0 {}
    stream.write_all(&[1]).expect("answers");
}

#[test]
fn the_kernel_passes_the_suite() {
    within("the_kernel_passes_the_suite", |place| suite::run(|| Loopback::new(place, 1024)));
}

#[test]
fn full_flow_table_conserves_accounting() {
    within("full_flow_table_conserves_accounting", |place| {
        suite::full_flow_table_conserves_accounting(Loopback::new(place, 7), 7)
    });
}
