//! A receiver's window limit holds for the whole connection, even when the kernel recomputes its own limit.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::AtomicBool;

use sojourn_tcp::{Listen, Listening, Receive, Send, Settings, Sockets, TcpError};
use sojourn_time::Nanos;

const MSS_BYTES: u16 = 1448;
static STOP: AtomicBool = AtomicBool::new(false);

/// Return the windows in bytes that a peer advertises with a limit of `window`, as the sender reads them, without the
/// first reading.
fn offered(window: Option<u32>) -> Result<Vec<u32>, TcpError> {
    let settings = Settings { mss_bytes: Some(MSS_BYTES), ..Settings::default() };
    let sockets = |settings: Settings, read_every| Sockets { block: 0, settings, read_every };
    let limited = Settings { window_bytes: window, ..settings.clone() };
    let at = Listen { address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), port: 0 };
    let listening = Listening::begin(Receive { at, connections: 1, sockets: sockets(limited, None) }, &STOP)?;
    let request = Send {
        to: listening.at,
        bind: None,
        duration: Some(Nanos::millis(200)),
        bytes: None,
        message_bytes: 16 << 10,
        interval: None,
        connections: 1,
        dscp: Vec::new(),
        from_ports: Vec::new(),
        sockets: sockets(settings, Some(Nanos::millis(20))),
        read_before_send: false,
        is_eor: false,
        again_every: None,
        keep_calls: false,
    };
    let sent = sojourn_tcp::send(&request, &STOP)?;
    listening.finish(Nanos::seconds(5))?;
    let readings = sent[0].readings.iter().skip(2);
    Ok(readings.filter_map(|reading| reading.info.snd_wnd_bytes?.try_into().ok()).collect())
}

#[test]
fn a_limited_window_stays_at_its_limit() {
    let segment = u32::from(MSS_BYTES);
    for window in [5 * segment, 22 * segment, 125 * segment] {
        let found = offered(Some(window)).unwrap();
        assert!(found.len() >= 3, "a kernel without tcpi_snd_wnd: {found:?}");
        // The window is rounded down to whole segments, and exceeds the limit at most by the unit of the scaled window.
        let least = window - window / 10 - segment;
        assert!(found.iter().all(|bytes| (least..=window + 128).contains(bytes)), "{window}: {found:?}");
    }
    let free = offered(None).unwrap();
    assert!(free.iter().max() > Some(&(125 * segment)), "without a limit the window grows: {free:?}");
}
