//! One end of a connection: a minimal Reno over a path with random losses.
//!
//! It opens, sends or receives a number of bytes, and is closed or reset. The simulation asks for one event at a time:
//! a packet that passes the programs, with the state before TCP processes it, or an event after TCP has acted.

use std::collections::VecDeque;

use super::draws::Draws;
use super::programs::nothing;
use crate::layout::{State, flag, point};

/// User data per segment, in bytes.
pub const MSS: u32 = 1448;
/// IP and TCP headers of a packet, in bytes.
const HEADERS: u32 = 52;
/// The maximum number of segments in a packet (GSO, GRO).
const MOST_SEGMENTS: u64 = 45;
const INFINITE: u32 = 0x7fff_ffff;

const ESTABLISHED: u8 = 1;
const SYN_SENT: u8 = 2;
const FIN_WAIT: u8 = 4;
const CLOSE: u8 = 7;

const FIN: u16 = 1;
const SYN: u16 = 2;
const RST: u16 = 4;
const ACK: u16 = 16;

const OPEN: u8 = 0;
const RECOVERY: u8 = 3;
const LOSS: u8 = 4;

/// A packet that passes the programs.
#[derive(Clone, Copy, Debug)]
pub struct Packet {
    /// [`point::IN`] or [`point::OUT`].
    pub way: u8,
    /// The number of segments.
    pub segments: u16,
    /// Of the TCP header.
    pub seq: u32,
    /// Of the TCP header.
    pub ack: u32,
    /// Of the TCP header.
    pub flags: u16,
    /// The size of the user data.
    pub payload_bytes: u32,
    /// The size of the packet.
    pub packet_bytes: u32,
    /// The state before TCP processes the packet.
    pub state: State,
}

/// An event of a connection.
#[derive(Clone, Copy, Debug)]
pub enum Happening {
    /// A packet passes.
    Packet(Packet),
    /// An event after TCP has acted: its point, its detail, and the state then.
    Event(u8, u16, State),
    /// The socket is destroyed.
    Destroyed(State),
}

/// One end of a connection.
#[derive(Clone, Debug)]
pub struct Connection {
    state: State,
    is_sender: bool,
    /// Bytes of user data still to be sent.
    left: u64,
    /// Segments in flight: sequence number, and whether it will be lost.
    flight: VecDeque<(u32, bool)>,
    losses_permille: u64,
    ends_in_reset: bool,
    rtt_us: u32,
    phase: Phase,
    /// Events that precede all others.
    due: VecDeque<Happening>,
    draws: Draws,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Opening,
    Sending,
    Closing,
    Over,
}

impl Connection {
    /// Create the sender's or the receiver's end of a connection that will carry `bytes` bytes.
    pub fn new(bytes: u64, losses_permille: u64, seed: u64) -> Self {
        let mut draws = Draws::new(seed);
        let start = draws.any() as u32;
        let rtt_us = 500 + draws.below(50_000) as u32;
        let state = State {
            state: SYN_SENT,
            snd_cwnd: 10,
            snd_ssthresh: INFINITE,
            mss_cache: MSS,
            snd_wnd: 65_535 << 3,
            rcv_wnd: 65_535,
            snd_una: start,
            snd_nxt: start,
            write_seq: start,
            sndbuf: 87_040,
            rcvbuf: 131_072,
            rtt_min_us: u32::MAX,
            rto_jiffies: 250,
            reordering: 3,
            advmss: MSS as u16,
            flags: flag::SACK | flag::TIMESTAMPS | flag::WINDOW_SCALING,
            ..nothing()
        };
        Self {
            state,
            is_sender: draws.happens(700),
            left: bytes,
            flight: VecDeque::new(),
            losses_permille,
            ends_in_reset: draws.happens(200),
            rtt_us,
            phase: Phase::Opening,
            due: VecDeque::new(),
            draws,
        }
    }

    /// Return the next event; `None`: the connection is over.
    pub fn next(&mut self) -> Option<Happening> {
        loop {
            if let Some(happening) = self.due.pop_front() {
                return Some(happening);
            }
            match self.phase {
                Phase::Opening => self.open(),
                Phase::Sending => self.send_or_hear(),
                Phase::Closing => self.close(),
                Phase::Over => return None,
            }
        }
    }

    fn open(&mut self) {
        self.out(SYN, 1, 0);
        self.state.snd_nxt = self.state.snd_nxt.wrapping_add(1);
        self.state.write_seq = self.state.snd_nxt;
        self.hear(SYN | ACK, 1, 0);
        self.state.snd_una = self.state.snd_nxt;
        self.state.rcv_nxt = self.draws.any() as u32;
        self.state.copied_seq = self.state.rcv_nxt;
        self.change_state(ESTABLISHED);
        self.out(ACK, 1, 0);
        self.phase = Phase::Sending;
    }

    fn send_or_hear(&mut self) {
        if self.left == 0 && self.flight.is_empty() {
            self.phase = Phase::Closing;
        } else if !self.is_sender {
            self.receive();
        } else if self.left > 0 && self.has_room() && (self.flight.is_empty() || self.draws.happens(600)) {
            self.send();
        } else if self.flight.front().is_some_and(|&(_, is_lost)| is_lost) {
            self.recover();
        } else {
            self.take_acknowledgement();
        }
    }

    fn has_room(&self) -> bool {
        self.flight.len() < self.state.snd_cwnd as usize
    }

    fn send(&mut self) {
        let window = u64::from(self.state.snd_cwnd) - self.flight.len() as u64;
        let wanted = self.left.div_ceil(u64::from(MSS)).min(window).min(1 + self.draws.below(MOST_SEGMENTS));
        let payload = self.left.min(wanted * u64::from(MSS)) as u32;
        self.out(ACK, wanted as u16, payload);
        for _ in 0..wanted {
            self.flight.push_back((self.state.snd_nxt, self.draws.happens(self.losses_permille)));
            let part = u64::from(MSS).min(self.left);
            self.state.snd_nxt = self.state.snd_nxt.wrapping_add(part as u32);
            self.left -= part;
        }
        self.state.write_seq = self.state.snd_nxt;
        self.state.packets_out = self.flight.len() as u32;
        self.state.bytes_sent += u64::from(payload);
    }

    /// Receive an acknowledgement of up to two segments (RFC 5681).
    fn take_acknowledgement(&mut self) {
        self.hear(ACK, 1, 0);
        let most = 1 + self.draws.below(2) as usize;
        let acked = self.flight.iter().take(most).take_while(|(_, is_lost)| !is_lost).count();
        self.flight.drain(..acked);
        self.acknowledge(acked as u32);
        self.grow(acked as u32);
        self.measure_rtt();
        if self.state.ca_state != OPEN {
            self.change_recovery(OPEN);
        }
    }

    fn acknowledge(&mut self, segments: u32) {
        let una = self.flight.front().map_or(self.state.snd_nxt, |&(seq, _)| seq);
        self.state.bytes_acked += u64::from(una.wrapping_sub(self.state.snd_una));
        self.state.snd_una = una;
        self.state.delivered += segments;
        self.state.packets_out = self.flight.len() as u32;
        self.state.backoff = 0;
        self.state.retransmits = 0;
    }

    /// Grow the window: slow start, or congestion avoidance by counting.
    fn grow(&mut self, acked: u32) {
        let state = &mut self.state;
        if state.snd_cwnd < state.snd_ssthresh {
            state.snd_cwnd += acked;
            return;
        }
        state.snd_cwnd_cnt += acked;
        if state.snd_cwnd_cnt >= state.snd_cwnd {
            state.snd_cwnd_cnt -= state.snd_cwnd;
            state.snd_cwnd += 1;
        }
    }

    fn measure_rtt(&mut self) {
        let rtt = self.rtt_us + self.draws.below(u64::from(self.rtt_us / 4)) as u32;
        let state = &mut self.state;
        let off = i64::from(rtt) - i64::from(state.srtt_us8 >> 3);
        state.srtt_us8 = if state.srtt_us8 == 0 { rtt << 3 } else { (i64::from(state.srtt_us8) + off) as u32 };
        state.rtt_last_us = rtt;
        state.rtt_min_us = state.rtt_min_us.min(rtt);
        self.after(point::RTT, 0);
    }

    /// Detect the loss of the oldest segment, by three segments received after it or by timeout.
    fn recover(&mut self) {
        let behind = self.flight.iter().skip(1).filter(|(_, is_lost)| !is_lost).count();
        self.state.prior_cwnd = self.state.snd_cwnd;
        self.state.snd_ssthresh = (self.flight.len() as u32 / 2).max(2);
        self.state.lost += 1;
        if behind >= 3 {
            (0..3).for_each(|_| self.hear(ACK, 1, 0));
            self.change_recovery(RECOVERY);
            self.state.snd_cwnd = self.state.snd_ssthresh;
        } else {
            self.change_recovery(LOSS);
            self.state.snd_cwnd = 1;
            self.state.total_rto += 1;
            self.state.retransmits += 1;
            self.state.backoff += 1;
        }
        self.state.total_retrans += 1;
        self.state.bytes_retrans += u64::from(MSS);
        self.after(point::RETRANSMIT, 0);
        let nxt = std::mem::replace(&mut self.state.snd_nxt, self.state.snd_una);
        self.out(ACK, 1, MSS);
        self.state.snd_nxt = nxt;
        // The retransmission may be lost again.
        let is_lost = self.draws.happens(self.losses_permille);
        if let Some(first) = self.flight.front_mut() {
            first.1 = is_lost;
        }
    }

    /// Receive data, and acknowledge it.
    fn receive(&mut self) {
        let segments = self.left.div_ceil(u64::from(MSS)).min(1 + self.draws.below(MOST_SEGMENTS));
        let payload = self.left.min(segments * u64::from(MSS)) as u32;
        self.hear(ACK, segments as u16, payload);
        self.left -= u64::from(payload);
        self.state.rcv_nxt = self.state.rcv_nxt.wrapping_add(payload);
        self.state.bytes_received += u64::from(payload);
        if self.draws.happens(700) {
            self.state.copied_seq = self.state.rcv_nxt;
            self.out(ACK, 1, 0);
        }
    }

    fn close(&mut self) {
        if self.ends_in_reset {
            self.hear(RST, 1, 0);
            self.after(point::RESET_IN, 0);
        } else {
            self.out(FIN | ACK, 1, 0);
            self.change_state(FIN_WAIT);
            self.hear(FIN | ACK, 1, 0);
            self.out(ACK, 1, 0);
        }
        self.change_state(CLOSE);
        self.due.push_back(Happening::Destroyed(self.state));
        // A packet in flight may arrive at the destroyed socket.
        if self.draws.happens(300) {
            self.hear(ACK, 1, 0);
        }
        self.phase = Phase::Over;
    }

    fn change_state(&mut self, to: u8) {
        let old = std::mem::replace(&mut self.state.state, to);
        self.after(point::STATE, u16::from(old) << 8 | u16::from(to));
    }

    fn change_recovery(&mut self, to: u8) {
        let old = self.state.ca_state;
        self.after(point::RECOVERY, u16::from(old) << 8 | u16::from(to));
        self.state.ca_state = to;
    }

    fn after(&mut self, point: u8, detail: u16) {
        self.due.push_back(Happening::Event(point, detail, self.state));
    }

    fn out(&mut self, flags: u16, segments: u16, payload: u32) {
        self.pass(point::OUT, flags, segments, payload, (self.state.snd_nxt, self.state.rcv_nxt));
        self.state.segs_out += u32::from(segments);
        self.state.data_segs_out += if payload > 0 { u32::from(segments) } else { 0 };
    }

    fn hear(&mut self, flags: u16, segments: u16, payload: u32) {
        self.pass(point::IN, flags, segments, payload, (self.state.rcv_nxt, self.state.snd_una));
        self.state.segs_in += u32::from(segments);
        self.state.data_segs_in += if payload > 0 { u32::from(segments) } else { 0 };
    }

    fn pass(&mut self, way: u8, flags: u16, segments: u16, payload_bytes: u32, (seq, ack): (u32, u32)) {
        let packet_bytes = HEADERS + payload_bytes;
        let state = self.state;
        self.due.push_back(Happening::Packet(Packet {
            way,
            segments,
            seq,
            ack,
            flags,
            payload_bytes,
            packet_bytes,
            state,
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packets(mut connection: Connection) -> Vec<Packet> {
        std::iter::from_fn(|| connection.next())
            .filter_map(|happening| if let Happening::Packet(packet) = happening { Some(packet) } else { None })
            .collect()
    }

    fn sender(bytes: u64, losses_permille: u64, seed: u64) -> Connection {
        Connection { is_sender: true, ..Connection::new(bytes, losses_permille, seed) }
    }

    #[test]
    fn all_bytes_arrive() {
        for seed in 0..50 {
            let last = packets(sender(1_000_000, 30, seed)).last().expect("it sends").state;
            assert_eq!((last.bytes_acked, last.packets_out, last.snd_una), (1_000_000, 0, last.snd_nxt));
            let own = Connection { is_sender: false, ..Connection::new(1_000_000, 0, seed) };
            assert_eq!(packets(own).last().expect("it receives").state.bytes_received, 1_000_000);
        }
    }

    #[test]
    fn cwnd_halves_on_loss_and_then_grows_by_one_segment_per_rtt() {
        let sent = packets(sender(3_000_000, 10, 7));
        let falls: Vec<_> = sent.windows(2).filter(|pair| pair[1].state.snd_cwnd < pair[0].state.snd_cwnd).collect();
        assert!(falls.len() > 5);
        for pair in &falls {
            let (before, after) = (pair[0].state, pair[1].state);
            let is_timeout = after.total_rto > before.total_rto;
            assert!(is_timeout && after.snd_cwnd == 1 || after.snd_cwnd == after.snd_ssthresh);
            assert_eq!(after.snd_ssthresh, (before.packets_out / 2).max(2));
        }
        for pair in sent.windows(2).filter(|pair| pair[0].state.snd_cwnd >= pair[0].state.snd_ssthresh) {
            assert!(pair[1].state.snd_cwnd <= pair[0].state.snd_cwnd + 1);
        }
    }

    #[test]
    fn without_loss_nothing_is_retransmitted() {
        let sent = packets(sender(500_000, 0, 3));
        assert!(sent.iter().all(|packet| packet.state.total_retrans == 0 && packet.state.ca_state == OPEN));
        let payload: u64 = sent.iter().map(|packet| u64::from(packet.payload_bytes)).sum();
        assert_eq!(payload, 500_000);
    }
}
