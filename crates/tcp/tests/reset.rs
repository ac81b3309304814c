//! Connections that are reset before they are accepted.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpStream};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use rustix::net::sockopt::set_socket_linger;
use sojourn_tcp::{Listen, Listener, Receive, Settings, Sockets};
use sojourn_time::Nanos;

static STOP: AtomicBool = AtomicBool::new(false);

#[test]
fn connections_that_are_reset_before_they_are_accepted_take_no_place_and_end_nothing() {
    let sockets = Sockets { block: 0, settings: Settings::default(), read_every: None };
    let loopback = Listen { address: Some(IpAddr::V4(Ipv4Addr::LOCALHOST)), port: 0 };
    let listener = Listener::open(Receive { at: loopback, connections: 2, sockets }).unwrap();
    let at = listener.at();
    for _ in 0..5 {
        let stranger = TcpStream::connect(at).unwrap();
        set_socket_linger(&stranger, Some(Duration::ZERO)).unwrap();
        drop(stranger);
    }
    let mut peers = [(); 2].map(|()| TcpStream::connect(at).unwrap());
    let listening = listener.accept(&STOP).unwrap();
    for peer in &mut peers {
        peer.write_all(&[7; 1000]).unwrap();
    }
    drop(peers);
    let outcomes = listening.finish(Nanos::seconds(30)).unwrap();
    let moved: Vec<_> = outcomes.iter().map(|one| (one.moved_bytes, one.problem.is_none())).collect();
    assert_eq!(moved, [(1000, true); 2]);
}
