//! Convert samples from the kernel into rows in the units of the tables. Sequence numbers and 32-bit counters wrap.

use sojourn_record::{Filling, Number, Value, kind, tcp};
use sojourn_time::Time;

use crate::layout::{Sample, State, point};

const MICROSECONDS: i64 = 1_000_000;

/// The value of `packet` in a sample without a packet.
const NO_PACKET: u64 = u64::MAX;

// From include/net/tcp_states.h.
const SYN_SENT: u8 = 2;
const SYN_RECV: u8 = 3;
const FIN_WAIT1: u8 = 4;
const CLOSE_WAIT: u8 = 8;
const LAST_ACK: u8 = 9;
const CLOSING: u8 = 11;

/// The context of a sample that its bytes do not hold.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// The block's number.
    pub block: i32,
    /// The flow's number.
    pub flow: i32,
    /// The CPU that took it.
    pub cpu: u32,
    /// Jiffies per second.
    pub hz: u32,
}

/// A sample with its context.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    /// The sample.
    pub sample: Sample,
    /// Its context.
    pub place: Place,
}

/// Return the row of a sample.
#[must_use]
pub fn row(sample: &Sample, place: Place) -> tcp::Sample {
    tcp::Sample {
        block: place.block,
        flow: place.flow,
        cpu: place.cpu,
        number: sample.number,
        time: Time(sample.time_ns.cast_signed()),
        point: sample.point,
        before: before(sample),
        packet: is_of_packet(sample).then(|| packet_of(sample)),
        state: state_of(sample, place.hz),
    }
}

/// Append samples to the columns of `tcp_samples`, column by column. The values equal those of [`row`], without the
/// cost of building rows.
pub fn fill(samples: &[Placed], to: &mut Filling<'_>) {
    put::<kind::Int32, _>(samples, &[], to, |_, place| place.block);
    put::<kind::Int32, _>(samples, &[], to, |_, place| place.flow);
    put::<kind::Int32, _>(samples, &[], to, |_, place| place.cpu);
    put::<kind::Int64, _>(samples, &[], to, |sample, _| sample.number);
    put::<kind::Int64, _>(samples, &[], to, |sample, _| Time(sample.time_ns.cast_signed()));
    put::<kind::Name, _>(samples, &tcp::POINTS, to, |sample, _| sample.point);
    put::<kind::Int32, _>(samples, &[], to, |sample, _| before(sample));
    put_of_packet::<kind::Int64, _>(samples, to, |sample| sample.packet);
    put_of_packet::<kind::Int64, _>(samples, to, |sample| sample.seq);
    put_of_packet::<kind::Int64, _>(samples, to, |sample| sample.ack);
    put_of_packet::<kind::Int32, _>(samples, to, |sample| sample.tcp_flags);
    put_of_packet::<kind::Int32, _>(samples, to, |sample| sample.window);
    put_of_packet::<kind::Int32, _>(samples, to, |sample| sample.packet_bytes);
    put_of_packet::<kind::Int32, _>(samples, to, |sample| sample.payload_bytes);
    put_of_packet::<kind::Int32, _>(samples, to, |sample| sample.segments);
    put_of_packet::<kind::Int32, _>(samples, to, |sample| sample.ip_id);
    put_of_packet::<kind::Int32, _>(samples, to, |sample| sample.tos);
    fill_state(samples, to);
}

/// Append one column.
fn put<K: Number, V: Value<K>>(
    samples: &[Placed],
    names: &[&str],
    to: &mut Filling<'_>,
    of: impl Fn(&Sample, &Place) -> V + Copy,
) {
    to.numbers::<K>(samples.iter().map(move |placed| of(&placed.sample, &placed.place).cell(names)));
}

/// Append one column that is null for samples without a packet.
fn put_of_packet<K: Number, V: Value<K>>(samples: &[Placed], to: &mut Filling<'_>, of: impl Fn(&Sample) -> V + Copy) {
    put::<K, _>(samples, &[], to, |sample, _| is_of_packet(sample).then(|| of(sample)));
}

fn is_of_packet(sample: &Sample) -> bool {
    sample.packet != NO_PACKET
}

fn before(sample: &Sample) -> Option<u8> {
    matches!(sample.point, point::STATE | point::RECOVERY).then_some(sample.detail.to_be_bytes()[0])
}

/// The connection's state; at a change, the new state.
fn state_told(sample: &Sample) -> u8 {
    if sample.point == point::STATE { sample.detail.to_be_bytes()[1] } else { sample.state.state }
}

/// The state of congestion control; at a change, the new state.
fn ca_state_told(sample: &Sample) -> u8 {
    if sample.point == point::RECOVERY { sample.detail.to_be_bytes()[1] } else { sample.state.ca_state }
}

fn packet_of(sample: &Sample) -> tcp::SampledPacket {
    tcp::SampledPacket {
        number: sample.packet,
        seq: sample.seq,
        ack: sample.ack,
        tcp_flags: sample.tcp_flags,
        window: sample.window,
        packet_bytes: sample.packet_bytes,
        payload_bytes: sample.payload_bytes,
        segments: sample.segments,
        ip_id: sample.ip_id,
        tos: sample.tos,
    }
}

/// Generate the conversion of each column of the control block from its declaration: the field of the same name,
/// another field, or a function of several fields. Also generate the list of source fields of each column.
macro_rules! convert {
    ($(#[$meta:meta])* (nullable) State; {$(
        $field:ident: $type:ty => $column:ident: $kind:ident $(of $names:ident)? ($unit:literal) $(or $null:ident)?
        $(since $since:literal)? $doc:literal $(from $($from:ident),+ $(as $how:ident)?)?;
    )*}) => {
        fn state_of(sample: &Sample, hz: u32) -> tcp::State {
            tcp::State { $($field: convert!(@value sample (hz) $field [$($($from)+)?] [$($($how)?)?]),)* }
        }

        fn fill_state(samples: &[Placed], to: &mut Filling<'_>) {
            $(put::<kind::$kind, _>(samples, convert!(@names $($names)?), to, |sample, _place| {
                convert!(@value sample (_place.hz) $field [$($($from)+)?] [$($($how)?)?])
            });)*
        }

        /// The columns, each with its source fields of [`State`].
        pub(crate) const COLUMNS: &[(&str, &[&str])] =
            &[$((stringify!($column), convert!(@fields $field $($($from)+)?)),)*];
    };
    (@value $sample:ident $hz:tt state [] []) => { state_told($sample) };
    (@value $sample:ident $hz:tt ca_state [] []) => { ca_state_told($sample) };
    (@value $sample:ident $hz:tt $field:ident [] []) => { $sample.state.$field };
    (@value $sample:ident $hz:tt $field:ident [$from:ident] []) => { $sample.state.$from };
    (@value $sample:ident ($hz:expr) $field:ident [$($from:ident)+] [$how:ident]) => { $how(&$sample.state, $hz) };
    (@names) => { &[] };
    (@names $names:ident) => { &tcp::$names };
    (@fields $field:ident) => { &[stringify!($field)] };
    (@fields $field:ident $($from:ident)+) => { &[$(stringify!($from)),+] };
}

sojourn_record::tcp_state!(convert);

fn microseconds(jiffies: u32, hz: u32) -> i64 {
    i64::from(jiffies) * MICROSECONDS / i64::from(hz.max(1))
}

fn rto(state: &State, hz: u32) -> i64 {
    microseconds(state.rto_jiffies, hz)
}

fn busy(state: &State, hz: u32) -> i64 {
    let all = [state.chrono_busy_jiffies, state.chrono_rwnd_jiffies, state.chrono_sndbuf_jiffies];
    all.into_iter().map(|jiffies| microseconds(jiffies, hz)).sum()
}

fn receiver_limited(state: &State, hz: u32) -> i64 {
    microseconds(state.chrono_rwnd_jiffies, hz)
}

fn buffer_limited(state: &State, hz: u32) -> i64 {
    microseconds(state.chrono_sndbuf_jiffies, hz)
}

fn limited_by(state: &State, _: u32) -> Option<u8> {
    (usize::from(state.chrono) < tcp::LIMITS.len()).then_some(state.chrono)
}

fn srtt(state: &State, _: u32) -> Option<f64> {
    eighths(state.srtt_us8)
}

fn rcv_rtt(state: &State, _: u32) -> Option<f64> {
    eighths(state.rcv_rtt_us8)
}

fn rttvar(state: &State, _: u32) -> Option<f64> {
    (state.srtt_us8 != 0).then(|| f64::from(state.rttvar_us4) / 4.0)
}

fn mdev(state: &State, _: u32) -> Option<f64> {
    (state.srtt_us8 != 0).then(|| f64::from(state.mdev_us4) / 4.0)
}

fn rtt_last(state: &State, _: u32) -> Option<u32> {
    (state.rtt_last_us != 0).then_some(state.rtt_last_us)
}

fn rtt_min(state: &State, _: u32) -> Option<u32> {
    (state.rtt_min_us != u32::MAX).then_some(state.rtt_min_us)
}

fn in_flight(state: &State, _: u32) -> u32 {
    behind(state.snd_nxt, state.snd_una)
}

/// Convert an RTT that the kernel keeps in eighths; 0 means that there is none yet.
fn eighths(us: u32) -> Option<f64> {
    (us != 0).then(|| f64::from(us) / 8.0)
}

/// Return how far `end` is ahead of `start`; 0 where it is behind.
fn behind(end: u32, start: u32) -> u32 {
    end.wrapping_sub(start).cast_signed().max(0).cast_unsigned()
}

/// User data that is unsent or unacknowledged. SYN and FIN take one sequence number each and are no data.
fn snd_queued(state: &State, _: u32) -> u32 {
    let is_off_by_one = matches!(state.state, SYN_SENT | SYN_RECV | FIN_WAIT1 | LAST_ACK | CLOSING);
    behind(state.write_seq, state.snd_una).saturating_sub(is_off_by_one.into())
}

/// User data that can be read, without the peer's FIN.
fn rcv_queued(state: &State, _: u32) -> u32 {
    let is_off_by_one = matches!(state.state, CLOSE_WAIT | LAST_ACK | CLOSING);
    behind(state.rcv_nxt, state.copied_seq).saturating_sub(is_off_by_one.into())
}

fn pacing_rate(state: &State, _: u32) -> i64 {
    // sk_pacing_rate is an unsigned long: all ones means no limit.
    if state.pacing_rate == u64::MAX {
        return -1;
    }
    i64::try_from(state.pacing_rate.saturating_mul(8)).unwrap_or(i64::MAX)
}

/// The computation of tcp_compute_delivery_rate.
fn delivery_rate(state: &State, _: u32) -> Option<f64> {
    let bits = f64::from(state.rate_delivered) * f64::from(state.mss_cache) * 8.0;
    (state.rate_interval_us != 0).then(|| bits * 1e6 / f64::from(state.rate_interval_us))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::collection::vec;
    use proptest::prelude::{any, proptest};
    use sojourn_record::Rows;

    use super::*;
    use crate::Source;
    use crate::decode::{Event, Raw, decode, whole};
    use crate::layout::Options;
    use crate::simulated::{NOTHING_ASKED, Setup, Simulated};

    fn state() -> State {
        whole(&vec![0; State::BYTES]).unwrap()
    }

    fn sample_with(state: State) -> Sample {
        Sample { state, ..whole(&vec![0; Sample::BYTES]).unwrap() }
    }

    fn converted(state: &State) -> tcp::State {
        state_of(&sample_with(*state), 250)
    }

    #[test]
    fn converted_values_have_the_units_of_the_tables() {
        let state = State {
            srtt_us8: 1001,
            mdev_us4: 10,
            rttvar_us4: 7,
            rto_jiffies: 51,
            pacing_rate: 1_000_000,
            rate_delivered: 10,
            rate_interval_us: 1_000,
            mss_cache: 1_448,
            rtt_min_us: 90,
            chrono: 2,
            chrono_busy_jiffies: 100,
            chrono_rwnd_jiffies: 20,
            chrono_sndbuf_jiffies: 5,
            ..state()
        };
        let row = converted(&state);
        assert_eq!(row.srtt_us, Some(125.125));
        assert_eq!((row.mdev_us, row.rttvar_us), (Some(2.5), Some(1.75)));
        assert_eq!(row.rto_us, 204_000);
        assert_eq!(row.pacing_rate_bps, 8_000_000);
        assert_eq!(row.delivery_rate_bps, Some(115_840_000.0));
        assert_eq!((row.busy_us, row.receiver_limited_us, row.buffer_limited_us), (500_000, 80_000, 20_000));
        assert_eq!(row.limited_by.map(|by| tcp::LIMITS[usize::from(by)]), Some("receiver"));
    }

    /// Changing a field changes exactly the columns that are declared to depend on it.
    #[test]
    fn each_column_depends_only_on_its_declared_fields() {
        let shown = |bytes: &[u8]| {
            let state = converted(&whole(bytes).unwrap());
            tcp::Sample { state, ..tcp::Sample::default() }.to_json()
        };
        // Unique values, and small ones for fields with few valid values.
        let numbers = State { srtt_us8: 80_000, snd_una: 1_000, copied_seq: 1_000, state: 1, chrono: 1, ..state() };
        let numbers = State { snd_nxt: 9_000, write_seq: 9_500, rcv_nxt: 9_900, mss_cache: 1_448, ..numbers };
        let numbers = State { rate_delivered: 10, rate_interval_us: 100, ..numbers };
        let mut bytes = Vec::new();
        numbers.put(&mut bytes);
        let before = shown(&bytes);
        for (name, at) in State::FIELDS.iter().take(State::FIELDS.len() - 1) {
            let mut changed = bytes.clone();
            changed[*at] = changed[*at].wrapping_add(if *name == "state" { 3 } else { 2 });
            let after = shown(&changed);
            let is_other = |column: &str| before.get(column) != after.get(column);
            let others: Vec<_> = COLUMNS.iter().map(|(column, _)| *column).filter(|column| is_other(column)).collect();
            let declared = COLUMNS.iter().filter(|(_, fields)| fields.contains(name)).map(|(column, _)| *column);
            let declared: Vec<_> = declared.collect();
            assert!(
                others.iter().all(|column| declared.contains(column)),
                "{name} changes {others:?}, not {declared:?}"
            );
            let is_alone = |column: &&&str| COLUMNS.iter().any(|(one, fields)| one == *column && fields.len() == 1);
            let missing: Vec<_> = declared.iter().filter(is_alone).filter(|column| !others.contains(column)).collect();
            assert!(missing.is_empty(), "{name} does not change {missing:?}");
        }
    }

    #[test]
    fn unset_kernel_values_become_none() {
        let row = converted(&State { rtt_min_us: u32::MAX, pacing_rate: u64::MAX, ..state() });
        assert_eq!((row.srtt_us, row.rttvar_us, row.mdev_us, row.rcv_rtt_us), (None, None, None, None));
        assert_eq!((row.rtt_last_us, row.rtt_min_us, row.delivery_rate_bps), (None, None, None));
        assert_eq!(row.pacing_rate_bps, -1);
        assert_eq!(pacing_rate(&State { pacing_rate: u64::MAX - 1, ..state() }, 250), i64::MAX);
    }

    #[test]
    fn sequence_numbers_wrap() {
        let state = State { state: 1, snd_una: u32::MAX - 9, snd_nxt: 90, write_seq: 190, ..state() };
        let row = converted(&state);
        assert_eq!((row.in_flight_bytes, row.snd_queued_bytes), (100, 200));
        let row = converted(&State { copied_seq: u32::MAX, rcv_nxt: 4, ..state });
        assert_eq!(row.rcv_queued_bytes, 5);
        // Never negative, even while another CPU changes the socket.
        let row = converted(&State { copied_seq: 5, rcv_nxt: 4, ..state });
        assert_eq!(row.rcv_queued_bytes, 0);
    }

    #[test]
    fn syn_and_fin_are_no_data() {
        for (state_now, sent, received) in
            [(1, 100, 50), (2, 99, 50), (4, 99, 50), (5, 100, 50), (8, 100, 49), (9, 99, 49)]
        {
            let state = State { state: state_now, snd_una: 1, write_seq: 101, copied_seq: 1, rcv_nxt: 51, ..state() };
            let row = converted(&state);
            assert_eq!((row.snd_queued_bytes, row.rcv_queued_bytes), (sent, received), "state {state_now}");
        }
    }

    #[test]
    fn state_change_records_the_old_and_the_new_value() {
        let mut sample: Sample = whole(&vec![0; Sample::BYTES]).unwrap();
        sample.packet = NO_PACKET;
        sample.point = point::STATE;
        sample.detail = 2 << 8 | 1;
        let place = Place { block: 0, flow: 1, cpu: 0, hz: 250 };
        let told = row(&sample, place);
        assert_eq!((told.before, told.state.state, told.packet), (Some(2), 1, None));
        sample.point = point::RECOVERY;
        sample.detail = 3;
        let told = row(&sample, place);
        assert_eq!((told.before, told.state.ca_state, told.state.state), (Some(0), 3, 0));
        sample.point = point::OUT;
        sample.packet = 0;
        let told = row(&sample, place);
        assert_eq!((told.before, told.packet.map(|packet| packet.number)), (None, Some(0)));
    }

    /// Convert samples by rows and by columns, and compare the results.
    fn assert_columns_are_those_of_the_rows(samples: &[Placed], absent: &HashSet<String>) {
        let rows: Vec<_> = samples.iter().map(|placed| row(&placed.sample, placed.place)).collect();
        let mut by_rows = Rows::<tcp::Sample>::new(absent);
        let pushed = by_rows.push(&rows, &());
        let mut by_columns = Rows::<tcp::Sample>::new(absent);
        let filled = by_columns.push_by(samples.len(), |to| fill(samples, to));
        assert_eq!(filled, pushed);
        for at in 0..samples.len() {
            assert_eq!(by_columns.json(at), by_rows.json(at), "row {at}");
        }
    }

    proptest! {
        #[test]
        fn any_samples_have_the_columns_of_their_rows(
            bytes in vec((vec(any::<u8>(), Sample::BYTES), any::<bool>(), any::<bool>()), 1..150),
            place in (any::<i32>(), any::<i32>(), 0..1_u32 << 31, 1..2_000_u32),
            lacks_some: bool,
        ) {
            let samples: Vec<_> = bytes.iter().map(|(bytes, is_of_packet, is_early)| {
                let mut sample: Sample = whole(bytes).unwrap();
                sample.point %= point::DESTROY + 1;
                // Keep values in the range of their columns; give early samples what a new connection lacks.
                (sample.number, sample.time_ns) = (sample.number >> 1, sample.time_ns >> 1);
                (sample.packet_bytes, sample.payload_bytes) = (sample.packet_bytes >> 1, sample.payload_bytes >> 1);
                sample.packet = if *is_of_packet { sample.packet >> 1 } else { NO_PACKET };
                if *is_early {
                    (sample.state.srtt_us8, sample.state.rtt_min_us, sample.state.chrono) = (0, u32::MAX, 2);
                }
                let (block, flow, cpu, hz) = place;
                Placed { sample, place: Place { block, flow, cpu, hz } }
            }).collect();
            let absent = ["received_ce", "limited_by", "rcv_ooopack"].map(str::to_owned);
            let absent = if lacks_some { HashSet::from(absent) } else { HashSet::new() };
            assert_columns_are_those_of_the_rows(&samples, &absent);
        }
    }

    #[test]
    fn value_out_of_column_range_is_detected_also_in_batches() {
        let sample = Sample { number: u64::MAX, packet: NO_PACKET, ..sample_with(state()) };
        let placed = Placed { sample, place: Place { block: 0, flow: 1, cpu: 0, hz: 250 } };
        let mut rows = Rows::<tcp::Sample>::new(&HashSet::new());
        let unfit = rows.push_by(1, |to| fill(&[placed], to)).unwrap_err();
        assert_eq!((unfit.column, unfit.value), ("number", Some(i128::from(u64::MAX))));
    }

    #[test]
    fn batches_of_simulated_samples_have_the_same_columns_as_rows() {
        let mut twin = Simulated::new(Setup { seed: 7, ..Setup::default() });
        twin.ask(&Options { enabled: 1, points: (1 << (point::DESTROY + 1)) - 1, ..NOTHING_ASKED }, &[]).unwrap();
        (0..12).for_each(|_| twin.connect(200_000));
        let mut samples = Vec::new();
        while twin.step() && samples.len() < 3_000 {
            twin.drain(&mut |cpu, bytes| {
                if let Ok(Event::Sample(sample)) = decode(bytes) {
                    let flow = i32::try_from(sample.slot).unwrap();
                    samples.push(Placed { sample, place: Place { block: 2, flow, cpu, hz: 1_000 } });
                }
            })
            .unwrap();
        }
        let points = samples.iter().map(|placed| placed.sample.point).collect::<HashSet<_>>();
        assert!(samples.len() >= 1_000 && points.len() > 3, "{} samples at {points:?}", samples.len());
        assert_columns_are_those_of_the_rows(&samples, &HashSet::new());
    }
}
