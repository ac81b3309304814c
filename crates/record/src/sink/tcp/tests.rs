//! Records of TCP's state can be read with their units, and a full disk leaves what was written before.

use std::fs::File;
use std::path::PathBuf;

use arrow_array::Array;
use arrow_array::cast::AsArray;
use arrow_array::types::{Float64Type, Int8Type, Int32Type, Int64Type};
use arrow_ipc::reader::StreamReader;
use sojourn_time::Time;

use super::*;
use crate::row::tcp::{SampledPacket, State};

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("sojourn-record-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&folder);
    folder
}

fn read(path: &Path) -> Vec<RecordBatch> {
    StreamReader::try_new(File::open(path).unwrap(), None).unwrap().map(Result::unwrap).collect()
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
            limited_by: 2,
            rtt_min_us: None,
            ..State::default()
        },
        ..Sample::default()
    }
}

#[test]
fn samples_can_be_read_and_what_is_missing_is_null() {
    let folder = folder("tcp");
    let absent = HashSet::from(["received_ce".to_owned(), "limited_by".to_owned(), "flow".to_owned()]);
    let mut sink = TcpFolder::create(&folder, ("a", 3), &absent, &Origin::default()).unwrap();
    let rows: Vec<Sample> = (0..BATCH as u64 + 5).map(sample).collect();
    sink.samples(&rows[..1000]).unwrap();
    sink.samples(&rows[1000..]).unwrap();
    sink.finish().unwrap();

    let batches = read(&folder.join("tcp_samples-a-003.arrow"));
    assert_eq!(batches.iter().map(RecordBatch::num_rows).collect::<Vec<_>>(), [BATCH, 5]);
    let column = |name: &str| batches[0].column_by_name(name).unwrap().clone();
    // A column that must not be null is not, whoever says that it is absent.
    assert_eq!(column("flow").as_primitive::<Int32Type>().value(1), 1);
    assert_eq!(column("received_ce").null_count(), BATCH);
    assert_eq!(column("limited_by").null_count(), BATCH);
    assert_eq!(column("rtt_min_us").null_count(), BATCH);
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
    assert_eq!(numbers, BATCH as i64 + 4);
    fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_other_tables_can_be_read() {
    let folder = folder("tcp-others");
    let mut sink = TcpFolder::create(&folder, ("a", 0), &HashSet::new(), &Origin::default()).unwrap();
    let private = Private {
        block: 1,
        flow: 2,
        cpu: 1,
        number: 9,
        time: Time(5),
        algorithm: "bbr".into(),
        field: "mode".into(),
        value: -3,
    };
    sink.private(private).unwrap();
    let account = Account { block: 1, flow: None, way: 1, fate: 14, packets: 3, segments: 4 };
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
fn a_failed_write_of_samples_is_taken_back() {
    let folder = folder("tcp-failed");
    let mut sink = TcpFolder::create(&folder, ("a", 0), &HashSet::new(), &Origin::default()).unwrap();
    let rows: Vec<Sample> = (0..BATCH as u64).map(sample).collect();
    sink.samples(&rows).unwrap();
    // A file that refuses what is written stands for a full disk.
    sink.tables[SAMPLES].file = File::open(&sink.tables[SAMPLES].path).unwrap();
    assert!(sink.samples(&rows).is_err());
    assert!(matches!(sink.samples(&rows), Err(RecordError::Broken)));
    sink.finish().unwrap();
    assert_eq!(read(&folder.join("tcp_samples-a-000.arrow")).len(), 1);
    fs::remove_dir_all(&folder).unwrap();
}
