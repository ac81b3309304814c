//! What was written can be read, and a full disk leaves what was written before.

use std::fs;

use arrow_array::cast::AsArray;
use arrow_array::types::{Int8Type, Int64Type};
use arrow_ipc::reader::StreamReader;
use sojourn_time::{Nanos, Source, Stamp, Time};

use super::*;
use crate::row::{Counts, Reply};

fn origin(is_simulated: bool) -> Origin {
    Origin { instrument: "0.1.0".to_owned(), profile: "debug".to_owned(), is_simulated }
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
fn a_failed_write_is_taken_back() {
    let folder = folder("failed");
    let mut sink = RunFolder::create(&folder, 0, &origin(false)).unwrap();
    sink.write(&block(0), &probes()).unwrap();
    // A file that refuses what is written stands for a full disk.
    sink.blocks.file = File::open(&sink.blocks.path).unwrap();
    assert!(sink.write(&block(1), &probes()).is_err());
    assert!(matches!(sink.write(&block(2), &probes()), Err(RecordError::Broken)));
    sink.finish().unwrap();
    assert_eq!(read(&folder.join("probes-000.arrow")).len(), 1);
    assert_eq!(read(&folder.join("blocks-000.arrow")).len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn a_full_disk_says_so() {
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
fn two_ends_write_streams_into_one_folder() {
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
fn a_failed_write_of_streams_is_taken_back() {
    let folder = folder("streams-failed");
    let mut sink = StreamFolder::create(&folder, "a", 0, &origin(false)).unwrap();
    sink.write(&stream_block(0)).unwrap();
    sink.tables[5].file = File::open(&sink.tables[5].path).unwrap();
    assert!(sink.write(&stream_block(1)).is_err());
    assert!(matches!(sink.write(&stream_block(2)), Err(RecordError::Broken)));
    sink.finish().unwrap();
    assert_eq!(read(&folder.join("sends-a-000.arrow")).len(), 1);
    assert_eq!(read(&folder.join("clock_lines-a-000.arrow")).len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}
