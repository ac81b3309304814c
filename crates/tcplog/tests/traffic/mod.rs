//! TCP over loopback: a client that sends, and a server that answers with one byte at the end.

#![allow(dead_code, reason = "each test program uses a part of it")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// The IP version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    V4,
    V6,
}

impl Traffic {
    /// Return an address to listen on.
    pub const fn any(self) -> &'static str {
        match self {
            Self::V4 => "127.0.0.1:0",
            Self::V6 => "[::1]:0",
        }
    }
}

/// Open `count` connections, one after the other; each carries `bytes` bytes and is closed by both ends.
pub fn connections(traffic: Traffic, count: usize, bytes: usize) {
    let listener = TcpListener::bind(traffic.any()).expect("binds");
    let address = listener.local_addr().expect("is bound");
    let server = std::thread::spawn(move || {
        for _ in 0..count {
            let (stream, _) = listener.accept().expect("accepts");
            serve(stream);
        }
    });
    for _ in 0..count {
        send(address, bytes);
    }
    server.join().expect("the server ends well");
}

fn send(address: SocketAddr, bytes: usize) {
    let mut stream = TcpStream::connect(address).expect("connects");
    stream.write_all(&vec![7; bytes]).expect("sends");
    stream.shutdown(std::net::Shutdown::Write).expect("ends");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("is answered");
    assert_eq!(answer.len(), 1);
}

fn serve(mut stream: TcpStream) {
    let mut buffer = vec![0; 1 << 16];
    while stream.read(&mut buffer).expect("receives") > 0 {}
    stream.write_all(&[1]).expect("answers");
}

/// Return both ends of an open connection.
pub fn held(traffic: Traffic) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind(traffic.any()).expect("binds");
    let mut near = TcpStream::connect(listener.local_addr().expect("is bound")).expect("connects");
    let (mut far, _) = listener.accept().expect("accepts");
    near.write_all(&[7]).expect("sends");
    far.read_exact(&mut [0]).expect("receives");
    far.write_all(&[7]).expect("answers");
    near.read_exact(&mut [0]).expect("is answered");
    (near, far)
}
