//! TLS: the name in the hello is the name that was allowed, or nothing leaves.

use palyra_core::EgressScheme;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::secure_host::{SecureHost, exchange, server_name, trusting};
use crate::support::{Net, code_of, read_all, rule, spoken};

const REQUEST: &str = "GET / HTTP/1.1\r\nHost: api.example\r\n\r\n";

/// The network, and its host: `tls` says so in the rule, as port 443 does by itself.
async fn network(tls: bool) -> (Net, SecureHost) {
    let host = SecureHost::named("api.example").await;
    let named = format!("api.example:{}", host.port);
    let rule = match tls {
        true => spoken(&named, EgressScheme::Tls),
        false => rule(&named),
    };
    let net = Net::up(vec![rule], &[host.port]);
    net.book.knows("api.example", &["127.0.0.1"]);
    (net, host)
}

#[tokio::test]
async fn tls_for_the_right_name_passes_through_end_to_end() {
    for tls in [true, false] {
        let (mut net, host) = network(tls).await;
        let target = format!("api.example:{}", host.port);
        let tunnel = net.connect(&target).await.unwrap();
        let socks = net.socks("api.example", host.port).await.unwrap();
        let direct = TcpStream::connect(("127.66.1.1", host.port)).await.unwrap();
        for stream in [tunnel, socks, direct] {
            // The host's own authority is trusted: nobody stood between.
            let client = trusting(&host.pem, true);
            let mut stream = client
                .connect(server_name("api.example"), stream)
                .await
                .unwrap();
            assert!(exchange(&mut stream, REQUEST).await.contains("200 OK"));
            drop(stream);
            let record = net.record().await;
            assert_eq!(code_of(&record), None);
            assert!(record.sent > 100 && record.received > 100);
        }
    }
}

#[tokio::test]
async fn tls_for_another_name_or_none_is_refused() {
    for tls in [true, false] {
        let (mut net, host) = network(tls).await;
        let target = format!("api.example:{}", host.port);
        for (name, send, code) in [
            ("evil.example", true, "sni_mismatch"),
            ("x.api.example", true, "sni_mismatch"),
            ("api.example", false, "sni_missing"),
        ] {
            let tunnel = net.connect(&target).await.unwrap();
            let direct = TcpStream::connect(("127.66.1.1", host.port)).await.unwrap();
            for stream in [tunnel, direct] {
                let client = trusting(&host.pem, send);
                let error = client.connect(server_name(name), stream).await.unwrap_err();
                assert!(error.to_string().contains("UnrecognisedName"), "{error}");
                net.refused(code).await;
            }
        }
        assert_eq!(host.got(), "");
    }
}

/// The hello that a client would send, as one record.
async fn hello(name: &str) -> Vec<u8> {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let host = SecureHost::named(name).await;
    let name = server_name(name);
    tokio::spawn(async move {
        let stream = TcpStream::connect(address).await.unwrap();
        let _ = trusting(&host.pem, true).connect(name, stream).await;
    });
    let (mut stream, _) = listener.accept().await.unwrap();
    let mut start = [0; 5];
    stream.read_exact(&mut start).await.unwrap();
    let length = usize::from(u16::from_be_bytes([start[3], start[4]]));
    let mut rest = vec![0; length];
    stream.read_exact(&mut rest).await.unwrap();
    [start.as_slice(), &rest].concat()
}

/// The same message over records of so many bytes.
fn in_records(hello: &[u8], size: usize) -> Vec<u8> {
    let mut records = Vec::new();
    for piece in hello[5..].chunks(size) {
        records.extend(&hello[..3]);
        records.extend(u16::try_from(piece.len()).unwrap().to_be_bytes());
        records.extend(piece);
    }
    records
}

#[tokio::test]
async fn a_hello_in_pieces_is_still_read_to_its_name() {
    let (honest, hostile) = (hello("api.example").await, hello("evil.example").await);
    for size in [1, 7, 60, 16_000] {
        for piece in [1, 50, usize::MAX] {
            let (mut net, host) = network(true).await;
            let target = format!("api.example:{}", host.port);
            for (hello, fine) in [(&honest, true), (&hostile, false)] {
                let mut stream = net.connect(&target).await.unwrap();
                stream.set_nodelay(true).unwrap();
                let bytes = in_records(hello, size);
                for piece in bytes.chunks(piece.min(bytes.len())) {
                    if stream.write_all(piece).await.is_err() {
                        break;
                    }
                }
                let mut answer = [0; 7];
                match fine {
                    true => {
                        // A ServerHello, or an alert of the host's about its records.
                        stream.read_exact(&mut answer[..1]).await.unwrap();
                        drop(stream);
                        let record = net.record().await;
                        assert_eq!((code_of(&record), record.sent), (None, bytes.len() as u64));
                    }
                    false => {
                        stream.read_exact(&mut answer).await.unwrap();
                        assert_eq!(answer, [0x15, 3, 3, 0, 2, 2, 112]);
                        net.refused("sni_mismatch").await;
                    }
                }
            }
        }
    }
}

#[tokio::test]
async fn what_is_not_tls_does_not_pass_where_tls_is_spoken() {
    let (mut net, host) = network(true).await;
    let target = format!("api.example:{}", host.port);
    for words in [
        &b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n"[..],
        b"SSH-2.0-client\r\n",
        b"\x16\x03\x01\x00\x05hello",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",
    ] {
        let mut stream = net.connect(&target).await.unwrap();
        stream.write_all(words).await.unwrap();
        let _ = stream.shutdown().await;
        let _ = read_all(&mut stream).await;
        let record = net.record().await;
        assert!(
            matches!(code_of(&record), Some("not_tls" | "malformed")),
            "{record:?}"
        );
        assert_eq!((record.sent, record.received), (0, 0));
    }
    assert_eq!(host.got(), "");
}

#[tokio::test]
async fn rules_about_requests_do_not_let_unreadable_ones_pass() {
    let host = SecureHost::named("api.example").await;
    let mut rule = rule(&format!("api.example:{}", host.port));
    rule.paths = vec!["/v1".to_owned()];
    rule.scheme = Some(EgressScheme::Tls);
    let mut net = Net::up(vec![rule], &[]);
    net.book.knows("api.example", &["127.0.0.1"]);
    let stream = net
        .connect(&format!("api.example:{}", host.port))
        .await
        .unwrap();
    let client = trusting(&host.pem, true);
    assert!(
        client
            .connect(server_name("api.example"), stream)
            .await
            .is_err()
    );
    net.refused("request_not_visible").await;
}
