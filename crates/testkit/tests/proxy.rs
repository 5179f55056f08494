//! The proxy breaks what it says, and mends it again.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use chapar_testkit::proxy::{Network, Proxy};

const SOON: Duration = Duration::from_secs(10);
const SHORT: Duration = Duration::from_millis(200);

/// A server that answers every byte with the same, and tells what it got.
fn echo() -> (String, mpsc::Receiver<u8>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let (got, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let got = got.clone();
            std::thread::spawn(move || {
                let mut byte = [0];
                while let Ok(1) = client.read(&mut byte) {
                    let _ = got.send(byte[0]);
                    let _ = client.write_all(&byte);
                }
            });
        }
    });
    (address, heard)
}

fn client(proxy: &Proxy) -> TcpStream {
    let client = TcpStream::connect(proxy.address()).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    client.set_nodelay(true).unwrap();
    client
}

fn ask(client: &mut TcpStream, byte: u8) -> std::io::Result<u8> {
    client.write_all(&[byte])?;
    let mut answer = [0];
    client.read_exact(&mut answer)?;
    Ok(answer[0])
}

/// Nothing arrives for a while, and the connection stays.
fn hears_nothing(client: &mut TcpStream) {
    client.set_read_timeout(Some(SHORT)).unwrap();
    let error = client.read(&mut [0]).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
    client.set_read_timeout(Some(SOON)).unwrap();
}

fn is_closed(client: &mut TcpStream) {
    match client.read(&mut [0]) {
        Ok(0) => {}
        Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
        other => panic!("still open: {other:?}"),
    }
}

#[test]
fn a_cut_closes_connections_and_keeps_new_ones_out_until_healed() {
    let (server, _heard) = echo();
    let proxy = Proxy::to(&server).unwrap();
    let mut before = client(&proxy);
    assert_eq!(ask(&mut before, 1).unwrap(), 1);
    assert_eq!(proxy.cut(), 1);
    is_closed(&mut before);
    is_closed(&mut client(&proxy));
    proxy.heal();
    assert_eq!(ask(&mut client(&proxy), 2).unwrap(), 2);
    assert_eq!(proxy.network(), Network::Whole);
}

#[test]
fn a_delay_makes_both_ways_slower() {
    let (server, _heard) = echo();
    let proxy = Proxy::to(&server).unwrap();
    let mut client = client(&proxy);
    assert_eq!(ask(&mut client, 1).unwrap(), 1);
    proxy.delay(SHORT);
    let began = Instant::now();
    assert_eq!(ask(&mut client, 2).unwrap(), 2);
    assert!(began.elapsed() >= 2 * SHORT, "{:?}", began.elapsed());
    proxy.heal();
    let began = Instant::now();
    assert_eq!(ask(&mut client, 3).unwrap(), 3);
    assert!(began.elapsed() < 2 * SHORT, "{:?}", began.elapsed());
}

#[test]
fn half_open_hangs_old_and_new_connections_and_nothing_is_lost_by_it() {
    let (server, heard) = echo();
    let proxy = Proxy::to(&server).unwrap();
    let mut old = client(&proxy);
    assert_eq!(ask(&mut old, 1).unwrap(), 1);
    assert_eq!(heard.recv_timeout(SOON), Ok(1));
    proxy.half_open();
    let mut new = client(&proxy);
    old.write_all(&[2]).unwrap();
    new.write_all(&[3]).unwrap();
    hears_nothing(&mut old);
    hears_nothing(&mut new);
    assert!(heard.try_recv().is_err(), "nothing arrives at the server either");
    proxy.heal();
    let mut answer = [0];
    old.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [2]);
    new.read_exact(&mut answer).unwrap();
    assert_eq!(answer, [3]);
}

#[test]
fn lost_answers_reach_the_server_only_and_end_the_connection_when_healed() {
    let (server, heard) = echo();
    let proxy = Proxy::to(&server).unwrap();
    let (mut torn, mut quiet) = (client(&proxy), client(&proxy));
    assert_eq!((ask(&mut torn, 1).unwrap(), ask(&mut quiet, 2).unwrap()), (1, 2));
    proxy.lose_answers();
    torn.write_all(&[7]).unwrap();
    while heard.recv_timeout(SOON).unwrap() != 7 {}
    hears_nothing(&mut torn);
    let limit = Instant::now() + SOON;
    while proxy.lost_bytes() == 0 {
        assert!(Instant::now() < limit, "the answer is thrown away");
    }
    proxy.heal();
    is_closed(&mut torn);
    assert_eq!(ask(&mut quiet, 8).unwrap(), 8, "it missed nothing and goes on");
}

#[test]
fn what_it_held_is_closed_when_it_goes() {
    let (server, _heard) = echo();
    let proxy = Proxy::to(&server).unwrap();
    let mut client = client(&proxy);
    assert_eq!(ask(&mut client, 1).unwrap(), 1);
    proxy.half_open();
    drop(proxy);
    is_closed(&mut client);
}
