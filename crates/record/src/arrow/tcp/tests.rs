//! Every column of the schema gets its values, under its own name.

use super::*;
use crate::row::tcp::State;
use crate::schema::TCP_SAMPLES;

#[test]
fn values_are_shown_in_the_order_of_the_schema() {
    let state = State {
        snd_cwnd: 11,
        srtt_us: Some(0.5),
        pacing_rate_bps: -1,
        rtt_min_us: Some(12),
        limited_by: 3,
        advmss_bytes: 1448,
        data_segs_out: 13,
        ..State::default()
    };
    let row = Sample {
        cpu: 1,
        point: 8,
        packet: Some(SampledPacket { tos: 2, ..Default::default() }),
        state,
        ..Default::default()
    };
    let object = Json::of(&row).object;
    let told = |name: &str| object.get(name).cloned().unwrap_or_default();
    assert_eq!(told("cpu"), 1);
    assert_eq!(told("point"), "destroy");
    assert_eq!(told("tos"), 2);
    assert_eq!(told("snd_cwnd"), 11);
    assert_eq!(told("srtt_us"), 0.5);
    assert_eq!(told("pacing_rate_bps"), -1);
    assert_eq!(told("rtt_min_us"), 12);
    assert_eq!(told("limited_by"), "buffer");
    assert_eq!(told("advmss_bytes"), 1448);
    assert_eq!(told("data_segs_out"), 13);
    assert!(!object.contains_key("before") && !object.contains_key("rtt_last_us"));
}

#[test]
fn every_column_of_the_schema_has_its_type() {
    let schema = crate::arrow::schema_of(crate::schema::TCP_SAMPLES, &crate::Origin::default());
    let mut samples = Samples::new(&schema, &HashSet::new(), 1);
    assert_eq!(samples.columns.len(), TCP_SAMPLES.fields.len());
    samples.push(&[Sample::default()]);
    assert_eq!(samples.batch(&schema).unwrap().num_rows(), 1);
}
