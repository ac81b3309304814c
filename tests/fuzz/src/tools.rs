//! What other programs and instruments of ours answer: `tc`, a running emulator, the clients of its socket, receivers of
//! streams; records of killed programs; expressions for libpcap.

use std::cell::Cell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;

use sojourn_capture::filter;
use sojourn_instrument::foreign;
use sojourn_port::{Batch, Capabilities, Framing, Port, PortError, Received, Sent, TxTimestamp};
use sojourn_stream::{Auth, Greeting, Head, greet};
use sojourn_time::{Clock, Nanos, Source, Stamp, Time};
use sojourn_wire::stream::{GREETING_BYTES, GreetingTail, GreetingWord, Kind};
use sojourn_wire::{MacAddress, SessionKey, StreamHeader};

use crate::Target;
use crate::chosen::{self, Reader, of_text};

pub(crate) const TARGETS: &[Target] =
    &[Target { name: "tool-answers", read: tool_answers, seeds: || chosen::seeds(READERS) }];

fn tool_answers(bytes: &[u8]) {
    is_told(bytes);
}

/// Whether an input of `tool-answers` is understood.
pub fn is_told(bytes: &[u8]) -> bool {
    chosen::is_read(READERS, bytes)
}

const READERS: &[Reader] = &[
    Reader { read: foreign::qdiscs, seed: || qdiscs().into() },
    Reader { read: |bytes| of_text(foreign::netem_record, bytes), seed: || record().into() },
    Reader { read: foreign::self_test, seed: || br#"[{"path_delay_ns":21000,"frames":300},"AF_XDP"]"#.into() },
    Reader { read: |bytes| of_text(foreign::modules, bytes), seed: || MODULES.into() },
    Reader { read: foreign::requests, seed: || b"{\"do\":\"show\"}\n\n{\"do\":\"stop\"}\n".into() },
    Reader { read: foreign::answer, seed: || b"{\"ok\":true}\n".into() },
    Reader { read: foreign::shown, seed: || shown().into() },
    Reader { read: is_greeted, seed: replies },
    Reader { read: is_filter, seed: || b"vlan 7 and (tcp[tcpflags] & tcp-syn != 0 or net 10.0.0.0/8)".into() },
];

const MODULES: &str =
    "kernel/net/ipv4/tcp_bbr.ko.xz:\nkernel/net/ipv4/tcp_vegas.ko: kernel/net/a.ko\nkernel/fs/fat.ko:\n";

fn qdiscs() -> &'static str {
    r#"[{"kind":"netem","handle":"5abc:","root":true,"refcnt":2,"options":{"limit":1000,"delay":{"delay":0.02}}},{}]"#
}

fn record() -> &'static str {
    r#"{"boot":"9c1d","namespace":4026531840,"index":3,"port":"eth1","handle":"5abc:"}"#
}

fn shown() -> &'static str {
    r#"{"ready":{"left":"eth1","right":"eth2","engine":["AF_XDP","AF_PACKET"],"wait":"spin","fifo":true,"pipes":[{"name":"both","words":"delay 2ms"}],"said":["a note"],"control":"/run/a.sock"},"config":{"pipes":[{"name":"both","link":{"rate_bps":1000000,"overhead_bytes":24}}],"rules":[{"number":100,"on":{"direction":"forward"},"action":{"pipe":{"pipe":"both","class":null}}}]},"report":{"budget_ns":100000,"start_ns":5,"now_ns":9000000000,"pipes":[{"name":"both","arrived":10,"sent":9,"sent_bytes":900,"held":1,"duplicated":1,"most_slots":4,"most_bytes":99,"lost":{"before":1},"accuracy":{"count":9,"late":3,"p50_ns":120,"p99_ns":12000,"p999_ns":40000,"min_ns":-300,"max_ns":1200000},"queueing_delay":{"count":9,"mean_ns":5.2e6,"p50_ns":4000000,"p99_ns":9000000,"max_ns":12000000},"since_change":{"at_ns":7,"arrived":4,"sent":3,"sent_bytes":300,"lost":1}}],"rules":[{"number":100,"packets":7}],"unmatched":{"forward":1,"backward":2},"lost_by_rules":1,"ports":[{"name":"eth1","engine":"AF_XDP","received":10,"sent":7,"local_drops":1,"refused":1}],"log":{"skipped":1,"stopped":"full","unwritten":2},"calibration":{"cost_ns":5210,"guard_ns":100000,"wait":"spin"},"memory":{"held_bytes":1,"most_bytes":2,"limit_bytes":3},"compensated":{"path_delay_ns":7,"frames":9}},"before":{"now_ns":5,"pipes":[{"sent":1,"sent_bytes":9}]}}"#
}

// --- receivers of streams ---------------------------------------------------------------------------------------------

const KEY: SessionKey = SessionKey(7);
const FLOW: u16 = 1;
const PATIENCE: Nanos = Nanos::seconds(2);
/// What is said once, and again to each receiver that wants to see its cookie again.
const MOST_SENT: usize = 20 + 256 * 20;

/// A host whose frames arrive one at each wait, and its clock.
#[derive(Clone)]
struct Host {
    now: Rc<Cell<Time>>,
    sent: Rc<Cell<usize>>,
    frames: Vec<Vec<u8>>,
    is_waiting: bool,
}

impl Clock for Host {
    fn now(&self) -> Time {
        self.now.get()
    }

    fn wait_until(&self, deadline: Time, _: Nanos) -> Time {
        self.now.set(self.now.get().max(deadline));
        self.now.get()
    }

    fn thread_time(&self) -> Nanos {
        Nanos::ZERO
    }
}

impl Port for Host {
    fn transmit(&mut self, _: &[u8]) -> Result<Sent, PortError> {
        self.sent.set(self.sent.get() + 1);
        Ok(Sent { number: 0, called: self.now() })
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Result<Option<Received>, PortError> {
        let Some(frame) = self.frames.pop_if(|_| self.is_waiting) else { return Ok(None) };
        self.is_waiting = false;
        let length = frame.len().min(buffer.len());
        buffer[..length].copy_from_slice(&frame[..length]);
        let arrived = Stamp { at: self.now(), source: Source::Kernel };
        Ok(Some(Received { length, arrived, returned: self.now(), from: None, to_group: false }))
    }

    fn tx_timestamp(&mut self) -> Result<Option<TxTimestamp>, PortError> {
        Ok(None)
    }

    fn wait(&mut self, deadline: Time) -> Result<(), PortError> {
        self.is_waiting = true;
        self.now.set(if self.frames.is_empty() { deadline } else { self.now() + Nanos::millis(1) });
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities { framing: Framing::Udp, max_frame: 1_500, tx_timestamps: false }
    }

    fn local_drops(&mut self) -> u64 {
        0
    }
}

impl Batch for Host {
    fn engine(&self) -> &str {
        "of a search"
    }
}

/// The user data of frames that arrive after a greeting, each behind its length; the first byte says whether a group was
/// greeted. Each has the header and the checksum of a reply.
fn is_greeted(bytes: &[u8]) -> bool {
    let Some(([is_group], mut rest)) = bytes.split_first_chunk::<1>() else { return false };
    let mut frames = Vec::new();
    while let Some(([length], behind)) = rest.split_first_chunk::<1>() {
        let (tail, behind) = behind.split_at(usize::from(*length).min(behind.len()));
        frames.push(reply(tail));
        rest = behind;
    }
    frames.reverse();
    let number = frames.len();
    let mut host = Host { now: Rc::new(Cell::new(Time(5))), sent: Rc::new(Cell::new(0)), frames, is_waiting: false };
    let clock = host.clone();
    let auth = Auth::from(None);
    let greeting = Greeting { head: Head::Udp, key: KEY, flow: FLOW, auth: &auth, is_group: is_group % 2 == 1 };
    let Ok(greeted) = greet(&mut host, &clock, greeting, PATIENCE, &AtomicBool::new(false)) else { return false };
    assert!(greeted.receivers() <= number);
    // One each 100 ms for as long as each of the receivers may keep it waiting, and one for each frame.
    assert!(host.sent.get() <= MOST_SENT + number);
    greeted.receivers() > 0 || greeted.refusal.is_some()
}

/// A reply to the greeting, with these bytes behind its header.
fn reply(tail: &[u8]) -> Vec<u8> {
    let header_bytes = sojourn_wire::stream::HEADER_BYTES;
    let mut payload = vec![0; header_bytes];
    payload.extend_from_slice(tail);
    let (kind, now) = (Kind::GreetingReply, Time(5));
    StreamHeader { kind, node: 0, flow: FLOW, key: KEY, seq: 0, intended: now, sent: now }.write(&mut payload);
    payload
}

/// A group of which one receiver asks for its cookie, one accepts and one refuses.
fn replies() -> Vec<u8> {
    let of = |(cookie, word)| {
        let mut payload = vec![0; GREETING_BYTES];
        GreetingTail { cookie, word }.write(&mut payload);
        let tail = &payload[sojourn_wire::stream::HEADER_BYTES..];
        [&[tail.len() as u8][..], tail].concat()
    };
    let words = [(7, GreetingWord::Again), (7, GreetingWord::Accepted), (8, GreetingWord::Taken)];
    [vec![1], words.map(of).concat()].concat()
}

// --- filters ----------------------------------------------------------------------------------------------------------

/// The words of pcap-filter(7). libpcap looks any other one up as a name, which may ask a name server.
const WORDS: &str = "and or not host net mask port portrange src dst ether ip ip6 arp rarp tcp udp icmp icmp6 sctp proto \
                     protochain gateway broadcast multicast vlan mpls less greater len inbound outbound tcpflags tcp-syn \
                     tcp-ack tcp-fin tcp-rst tcp-push tcp-urg icmptype icmp-echo icmp-echoreply pppoes geneve llc link";
const MOST_BYTES: usize = 200;

/// An expression of known words, numbers and addresses: libpcap compiles it, or says what is wrong in it.
fn is_filter(bytes: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(bytes) else { return false };
    let is_in_word = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter) || !letter.is_ascii();
    let mut words = text.split(|letter: char| !is_in_word(letter) && letter != ':').filter(|word| !word.is_empty());
    let is_address = |word: &str| word.parse::<IpAddr>().is_ok() || word.parse::<MacAddress>().is_ok();
    let is_known = |word: &str| word.split(':').all(|part| part.parse::<u32>().is_ok() || is_word(part));
    if bytes.len() > MOST_BYTES || text.contains('\\') || !words.all(|word| is_address(word) || is_known(word)) {
        return false;
    }
    match filter::check(text) {
        Ok(()) => true,
        Err(filter::FilterError::NoLibrary) => text.contains("vlan"),
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

fn is_word(word: &str) -> bool {
    word.is_empty() || WORDS.split_whitespace().any(|known| known == word)
}
