//! Written records can be read, and a full disk leaves the earlier ones.

use std::collections::HashSet;
use std::fs;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, Int32Type, Int64Type};
use arrow_ipc::reader::StreamReader;
use sojourn_time::{Nanos, Source, Stamp, Time};

use super::*;
use crate::table::{Columns, Filling};
use crate::tables::probes::{Block, Counts, Probe, Reply};
use crate::tables::streams::StreamBlock;
use crate::tables::tcp::{Account, FieldNames, Flow, Gap, Private, PrivateFields, Sample, SampledPacket, State};

fn origin(is_simulated: bool) -> Origin {
    Origin { instrument: "0.1.0".to_owned(), profile: "debug".to_owned(), is_simulated, ..Origin::default() }
}

fn block(number: u32) -> Block {
    Block {
        block: number,
        device: "bridge".to_owned(),
        round: 1,
        visit: 0,
        cell: 2,
        via: "sim",
        kind: "icmp",
        schedule: "regular",
        interval: Nanos::millis(1),
        count: 2,
        warmup: 0,
        seed: u64::MAX,
        request_payload_bytes: 56,
        response_payload_bytes: 56,
        request_frame_bytes: 102,
        response_frame_bytes: 102,
        timeout: Nanos::millis(200),
        started: Time(1),
        ended: Time(2),
        started_raw: Time(3),
        ended_raw: Time(4),
        clock_error: Nanos(5),
        counts: Counts { sent: 2, received: 1, lost: 1, ..Counts::default() },
        responder_kernel: true,
        wait: "sleep",
        cpu: None,
        fifo: false,
        dscp: None,
    }
}

fn probes() -> Vec<Probe> {
    let answered = Probe {
        reply: Some(Reply {
            arrival: Stamp { at: Time(700), source: Source::Kernel },
            receive_call: Time(710),
            responder: None,
        }),
        replies: 1,
        ..Probe::new(0, false, Time(100), Time(110))
    };
    vec![answered, Probe::new(1, false, Time(1_100), Time(1_110))]
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-record-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

/// Make writes to a file fail, as on a full disk.
fn refuse(file: &mut TableFile) {
    file.file = File::open(&file.shape.path).unwrap();
}

fn read(path: &Path) -> Vec<RecordBatch> {
    StreamReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
}

#[test]
fn records_can_be_read_with_their_units() {
    let folder = folder("read");
    let mut sink = RunFolder::create(&folder, 7, &origin(true)).unwrap();
    sink.write(&block(3), &probes()).unwrap();
    sink.write(&block(4), &probes()).unwrap();
    sink.finish().unwrap();

    let batches = read(&folder.join("probes-007.arrow"));
    assert_eq!(batches.len(), 2);
    let schema = batches[0].schema();
    assert_eq!(schema.metadata()["schema"], "sojourn.probes");
    let arrival = schema.field_with_name("arrival_ns").unwrap();
    assert_eq!((arrival.metadata()["clock"].as_str(), arrival.metadata()["unit"].as_str()), ("simulated", "ns"));
    let arrivals = batches[1].column_by_name("arrival_ns").unwrap().as_primitive::<Int64Type>();
    assert_eq!(arrivals.iter().collect::<Vec<_>>(), [Some(700), None]);
    let sources = batches[1].column_by_name("arrival_source").unwrap().as_dictionary::<Int8Type>();
    assert_eq!(
        sources.downcast_dict::<arrow_array::StringArray>().unwrap().into_iter().flatten().next(),
        Some("kernel")
    );

    let blocks = read(&folder.join("blocks-007.arrow"));
    assert_eq!(blocks[1].column_by_name("lost").unwrap().as_primitive::<Int64Type>().value(0), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn records_are_written_once() {
    let folder = folder("once");
    RunFolder::create(&folder, 0, &origin(false)).unwrap();
    assert!(matches!(RunFolder::create(&folder, 0, &origin(false)), Err(RecordError::Exists(_))));
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn an_unfinished_stream_is_readable_to_its_last_block() {
    let folder = folder("unfinished");
    let mut sink = RunFolder::create(&folder, 0, &origin(false)).unwrap();
    sink.write(&block(0), &probes()).unwrap();
    drop(sink);
    assert_eq!(read(&folder.join("probes-000.arrow")).len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn failed_write_is_rolled_back() {
    let folder = folder("failed");
    let mut sink = RunFolder::create(&folder, 0, &origin(false)).unwrap();
    sink.write(&block(0), &probes()).unwrap();
    refuse(&mut sink.0.files[1]);
    assert!(sink.write(&block(1), &probes()).is_err());
    assert!(matches!(sink.write(&block(2), &probes()), Err(RecordError::Broken)));
    sink.finish().unwrap();
    assert_eq!(read(&folder.join("probes-000.arrow")).len(), 1);
    assert_eq!(read(&folder.join("blocks-000.arrow")).len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn full_disk_is_reported() {
    let error = failure("write", Path::new("x"), io::Error::from_raw_os_error(28));
    assert_eq!(error.to_string(), "write x: the disk is full; what was recorded before this block stays readable");
}

fn stream_block(number: u32) -> StreamBlock {
    let left = Stamp { at: Time(120), source: Source::Kernel };
    let send = |seq| crate::stream::Send {
        flow: 1,
        seq,
        intended: Time(100),
        send_call: Time(110),
        scheduled: None,
        departure: left,
    };
    let line = crate::stream::ClockLine {
        peer: "b".to_owned(),
        clock_id: 7,
        is_shared: false,
        from: Time(0),
        to: Time(10),
        reference: Time(5),
        offset_ns: -2.5,
        skew_ppb: 100.0,
        bound_ns: 40.0,
        error95_ns: 9.0,
        skew_bound_ppb: 300.0,
        skew95_ppb: 20.0,
        exchanges: 12,
    };
    StreamBlock { block: number, sends: vec![send(0), send(1)], clock_lines: vec![line], ..StreamBlock::default() }
}

#[test]
fn sender_and_receiver_write_streams_into_one_folder() {
    let folder = folder("streams");
    let mut near = StreamFolder::create(&folder, "a", 2, &origin(false)).unwrap();
    let mut far = StreamFolder::create(&folder, "b", 2, &origin(false)).unwrap();
    assert!(matches!(StreamFolder::create(&folder, "a", 2, &origin(false)), Err(RecordError::Exists(_))));
    near.write(&stream_block(7)).unwrap();
    far.write(&StreamBlock::default()).unwrap();
    near.finish().unwrap();
    far.finish().unwrap();

    let sends = read(&folder.join("sends-a-002.arrow"));
    assert_eq!((sends.len(), sends[0].num_rows()), (1, 2));
    let lines = read(&folder.join("clock_lines-a-002.arrow"));
    let offsets = lines[0].column_by_name("offset_ns").unwrap().as_primitive::<arrow_array::types::Float64Type>();
    assert_eq!(offsets.value(0), -2.5);
    let skews = lines[0].column_by_name("skew_bound_ppb").unwrap().as_primitive::<arrow_array::types::Float64Type>();
    assert_eq!(skews.value(0), 300.0);
    assert!(read(&folder.join("sends-b-002.arrow")).is_empty());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn failed_write_of_streams_is_rolled_back() {
    let folder = folder("streams-failed");
    let mut sink = StreamFolder::create(&folder, "a", 0, &origin(false)).unwrap();
    sink.write(&stream_block(0)).unwrap();
    refuse(&mut sink.0.files[5]);
    assert!(sink.write(&stream_block(1)).is_err());
    assert!(matches!(sink.write(&stream_block(2)), Err(RecordError::Broken)));
    sink.finish().unwrap();
    assert_eq!(read(&folder.join("sends-a-000.arrow")).len(), 1);
    assert_eq!(read(&folder.join("clock_lines-a-000.arrow")).len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

fn sample(number: u64) -> Sample {
    let packet = SampledPacket { number: 7, seq: u32::MAX, tcp_flags: 0xfff, segments: 44, ..SampledPacket::default() };
    Sample {
        flow: 1,
        number,
        time: Time(100 + number.cast_signed()),
        point: (number % 2) as u8 * 2,
        packet: number.is_multiple_of(2).then_some(packet),
        state: State {
            snd_cwnd: 10,
            srtt_us: Some(123.125),
            sent_bytes: 1 << 40,
            limited_by: Some(2),
            rtt_min_us: None,
            ..State::default()
        },
        ..Sample::default()
    }
}

fn fill(rows: &[Sample], to: &mut Filling<'_>) {
    Sample::fill(rows, |row| Some(row), &(), to);
}

#[test]
fn samples_can_be_read_and_missing_values_are_null() {
    let folder = folder("tcp");
    let absent = HashSet::from(["received_ce".to_owned(), "limited_by".to_owned(), "flow".to_owned()]);
    let mut sink = TcpFolder::create(&folder, ("a", 3), &absent, &Origin::default()).unwrap();
    let rows: Vec<Sample> = (0..tcp::BATCH as u64 + 5).map(sample).collect();
    sink.samples(&rows[..1000], fill).unwrap();
    sink.samples(&rows[1000..], fill).unwrap();
    sink.finish().unwrap();

    let batches = read(&folder.join("tcp_samples-a-003.arrow"));
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [tcp::BATCH, 5]);
    let column = |name: &str| batches[0].column_by_name(name).unwrap().clone();
    // A column that is not nullable has values even if it is listed as absent.
    assert_eq!(column("flow").as_primitive::<Int32Type>().value(1), 1);
    assert_eq!(column("received_ce").null_count(), tcp::BATCH);
    assert_eq!(column("limited_by").null_count(), tcp::BATCH);
    assert_eq!(column("rtt_min_us").null_count(), tcp::BATCH);
    assert_eq!(column("snd_cwnd").null_count(), 0);
    assert_eq!(column("srtt_us").as_primitive::<Float64Type>().value(9), 123.125);
    assert_eq!(column("sent_bytes").as_primitive::<Int64Type>().value(9), 1 << 40);
    let seq = column("seq");
    assert_eq!((seq.is_null(0), seq.is_null(1)), (false, true));
    assert_eq!(seq.as_primitive::<Int64Type>().value(0), i64::from(u32::MAX));
    let point = column("point");
    let point = point.as_dictionary::<Int8Type>().downcast_dict::<arrow_array::StringArray>().unwrap();
    assert_eq!(point.into_iter().take(3).flatten().collect::<Vec<_>>(), ["in", "rtt", "in"]);
    let numbers = batches[1].column_by_name("number").unwrap().as_primitive::<Int64Type>().value(4);
    assert_eq!(numbers, tcp::BATCH as i64 + 4);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_other_tables_can_be_read() {
    let folder = folder("tcp-others");
    let mut sink = TcpFolder::create(&folder, ("a", 0), &HashSet::new(), &Origin::default()).unwrap();
    let names = FieldNames::new("bbr", &["mode".to_owned()]);
    let private = PrivateFields { block: 1, flow: 2, cpu: 1, number: 9, time: Time(5), names: &names, values: &[-3] };
    sink.private(&private).unwrap();
    let account = Account { block: 1, flow: None, way: 1, disposition: 14, packets: 3, segments: 4 };
    sink.account(&[account]).unwrap();
    sink.gaps(&[Gap { block: 1, cpu: 0, number: 4, missing: 2, after: None, before: Some(Time(7)) }]).unwrap();
    let flow = Flow {
        block: 1,
        flow: 2,
        socket_cookie: u64::MAX,
        netns_cookie: 1,
        cgroup: None,
        process: Some(12),
        command: None,
        local_address: "::1".to_owned(),
        local_port: 65535,
        remote_address: "::1".to_owned(),
        remote_port: 1,
        algorithm: "cubic".to_owned(),
        first: Time(1),
        last: Time(2),
        ended: None,
        is_wanted: true,
    };
    sink.flows(&[flow]).unwrap();
    sink.finish().unwrap();

    let private = &read(&folder.join("tcp_private-a-000.arrow"))[0];
    assert_eq!(private.column_by_name("value").unwrap().as_primitive::<Int64Type>().value(0), -3);
    let account = &read(&folder.join("tcp_account-a-000.arrow"))[0];
    assert!(account.column_by_name("flow").unwrap().is_null(0));
    let gaps = &read(&folder.join("tcp_gaps-a-000.arrow"))[0];
    assert!(gaps.column_by_name("after_ns").unwrap().is_null(0));
    let flows = &read(&folder.join("tcp_flows-a-000.arrow"))[0];
    assert_eq!(flows.column_by_name("socket_cookie").unwrap().as_primitive::<Int64Type>().value(0), -1);
    assert!(flows.column_by_name("command").unwrap().is_null(0));
    assert!(read(&folder.join("tcp_samples-a-000.arrow")).is_empty());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn failed_write_of_samples_is_rolled_back_and_reported_by_the_end() {
    let folder = folder("tcp-failed");
    let rows: Vec<Sample> = (0..tcp::BATCH as u64).map(sample).collect();
    let create = |who| TcpFolder::create(&folder, (who, 0), &HashSet::new(), &Origin::default()).unwrap();
    let mut whole = create("whole");
    whole.samples(&rows, fill).unwrap();
    whole.finish().unwrap();
    let length = fs::metadata(folder.join("tcp_samples-whole-000.arrow")).unwrap().len();
    // The limit has room for one batch, and not for a second.
    let mut sink = create("a");
    sink.files.here().unwrap().limit_to(length);
    let outcomes = [(); 3].map(|()| sink.samples(&rows, fill));
    assert!(outcomes[0].is_ok());
    let ended = sink.finish();
    let said = outcomes.into_iter().chain([ended]).find_map(Result::err);
    assert!(matches!(said, Some(RecordError::Limit(_))), "{said:?}");
    // The error is returned once, and nothing is written after the failed batch.
    assert!(matches!(sink.samples(&rows, fill), Err(RecordError::Broken)));
    sink.finish().unwrap();
    assert_eq!(read(&folder.join("tcp_samples-a-000.arrow")).len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn batches_written_by_a_second_thread_stay_in_order() {
    let folder = folder("tcp-order");
    let mut sink = TcpFolder::create(&folder, ("a", 0), &HashSet::new(), &Origin::default()).unwrap();
    let count = 4 * tcp::BATCH as u64 + 7;
    let rows: Vec<Sample> = (0..count).map(sample).collect();
    rows.chunks(1_000).for_each(|rows| sink.samples(rows, fill).unwrap());
    sink.finish().unwrap();
    let numbers: Vec<i64> = read(&folder.join("tcp_samples-a-000.arrow"))
        .iter()
        .flat_map(|batch| batch.column_by_name("number").unwrap().as_primitive::<Int64Type>().values().to_vec())
        .collect();
    assert!(numbers.iter().copied().eq(0..count.cast_signed()), "{} rows", numbers.len());
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn private_states_give_the_same_file_as_their_rows() {
    let folder = folder("tcp-private");
    let algorithms = ["cubic", "bbr"];
    let fields: [Vec<String>; 2] =
        [["cnt", "last_max"].map(str::to_owned).to_vec(), (0..31).map(|at| format!("bw.s[{at}].v")).collect()];
    let names = [0, 1].map(|which| FieldNames::new(algorithms[which], &fields[which]));
    let mut sink = TcpFolder::create(&folder, ("states", 0), &HashSet::new(), &Origin::default()).unwrap();
    let mut rows = Vec::new();
    // More than two batches, whose ends divide a state.
    for number in 0..8_000_u64 {
        let which = usize::from(number % 3 > 0);
        let (flow, cpu, time) = ((number % 7) as i32, (number % 2) as u32, Time(1_000 + number.cast_signed()));
        let values: Vec<i64> = (0..).map(|at| at * number.cast_signed()).take(fields[which].len()).collect();
        let state = PrivateFields { block: 3, flow, cpu, number, time, names: &names[which], values: &values };
        sink.private(&state).unwrap();
        rows.extend(fields[which].iter().zip(&values).map(|(field, &value)| Private {
            block: 3,
            flow,
            cpu,
            number,
            time,
            algorithm: algorithms[which].into(),
            field: field.as_str().into(),
            value,
        }));
    }
    sink.finish().unwrap();
    let compression = Some(CompressionType::LZ4_FRAME);
    let mut plain =
        Files::create(&folder, &[Table::of::<Private>()], "rows", (&Origin::default(), compression)).unwrap();
    for rows in rows.chunks(tcp::BATCH) {
        let batch = plain.batch(rows, &()).unwrap();
        plain.write(&[batch]).unwrap();
    }
    plain.finish().unwrap();
    let of = |name: &str| fs::read(folder.join(format!("tcp_private-{name}.arrow"))).unwrap();
    assert!(rows.len() > 2 * tcp::BATCH);
    assert_eq!(of("states-000"), of("rows"));
    fs::remove_dir_all(&folder).unwrap();
}
