//! Clients and hosts that take their time, and calls that take too much.

use std::time::Duration;

use palyra_core::{CallId, EgressBudget, EgressEnd, Timestamp};
use palyra_egress::Terms;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{Host, Net, code_of, echoes, read_all, rule};

fn with(port: u16, budget: EgressBudget) -> Net {
    let rules = vec![rule(&format!("api.example:{port}"))];
    let mut terms = Terms::new(CallId::mint(Timestamp::from_millis(1)), rules);
    terms.budget = budget;
    let net = Net::with(terms, &[port], |egress| egress);
    net.book.knows("api.example", &["127.0.0.1"]);
    net
}

// The time is the runtime's, and goes on whenever everybody waits.
#[tokio::test(start_paused = true)]
async fn who_never_ends_a_greeting_is_let_go() {
    let host = Host::echo().await;
    let mut net = with(host.port, EgressBudget::default());
    for start in [
        &b"GET http://api"[..],
        b"CONNECT a",
        b"\x05",
        b"\x05\x01",
        b"\x05\x01\x00\x05\x01",
    ] {
        let mut stream = net.proxy().await;
        let mut sending = start.iter();
        let mut answer = Vec::new();
        let mut byte = [0; 64];
        // A byte now and then keeps nothing alive: the time is for the whole of it.
        loop {
            if let Some(next) = sending.next()
                && stream.write_all(&[*next]).await.is_err()
            {
                break;
            }
            match tokio::time::timeout(Duration::from_secs(4), stream.read(&mut byte)).await {
                Ok(Ok(count @ 1..)) => answer.extend(&byte[..count]),
                Ok(Ok(0) | Err(_)) => break,
                Err(_) => {}
            }
        }
        let record = net.record().await;
        assert_eq!(code_of(&record), Some("too_slow"), "{start:?}");
        let told = String::from_utf8_lossy(&answer);
        assert!(told.contains("too_slow") || answer.contains(&1), "{told}");
    }
    // Silence where it has to be heard first what is spoken.
    let mut stream = net
        .connect(&format!("api.example:{}", host.port))
        .await
        .unwrap();
    stream.write_all(b"\x16\x03\x01\x02\x00").await.unwrap();
    let mut alert = Vec::new();
    let _ = stream.read_to_end(&mut alert).await;
    assert_eq!(alert.first(), Some(&0x15));
    net.refused("too_slow").await;
}

#[tokio::test]
async fn a_host_that_stalls_holds_nobody_up() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut net = with(port, EgressBudget::default());
    let mut raw = net.connect(&format!("api.example:{port}")).await.unwrap();
    let mut request = TcpStream::connect(("127.66.1.1", port)).await.unwrap();
    let head = format!("GET / HTTP/1.1\r\nHost: api.example:{port}\r\n\r\n");
    request.write_all(head.as_bytes()).await.unwrap();
    let (mut first, _) = listener.accept().await.unwrap();
    let (second, _) = listener.accept().await.unwrap();
    raw.write_all(b"anybody there?").await.unwrap();
    let mut heard = [0; 14];
    first.read_exact(&mut heard).await.unwrap();
    // Neither host says another word. The end of the call ends both, and says so in their records.
    let summary = net.running.finish().await;
    assert_eq!(summary.connections, 2);
    for _ in 0..2 {
        let record = net.records.recv().await.unwrap();
        let EgressEnd::Broken { code, .. } = &record.end else {
            panic!("{record:?}");
        };
        assert_eq!(code, "call_ended");
        assert!(record.sent > 0);
    }
    assert_eq!(read_all(&mut raw).await, "");
    drop((first, second));
}

#[tokio::test]
async fn connections_have_a_budget() {
    let host = Host::echo().await;
    let budget = EgressBudget {
        connections: 3,
        at_once: 2,
        ..EgressBudget::default()
    };
    let mut net = with(host.port, budget);
    let target = format!("api.example:{}", host.port);
    let mut one = net.connect(&target).await.unwrap();
    let two = net.connect(&target).await.unwrap();
    let answer = net.connect(&target).await.unwrap_err();
    assert!(
        answer.starts_with("HTTP/1.1 429") && answer.contains("at once"),
        "{answer}"
    );
    net.refused("connections_used_up").await;
    drop(two);
    net.record().await;
    let mut three = loop {
        // The place is given back right after the record.
        match net.connect(&target).await {
            Ok(stream) => break stream,
            Err(_) => tokio::task::yield_now().await,
        }
    };
    echoes(&mut three, "the third").await;
    drop(three);
    while code_of(&net.record().await).is_some() {}
    let answer = loop {
        let answer = net.connect(&target).await.unwrap_err();
        if !answer.contains("at once") {
            break answer;
        }
    };
    assert!(answer.contains("connections_used_up"), "{answer}");
    echoes(&mut one, "those that are open go on").await;
}

#[tokio::test]
async fn bytes_have_a_budget() {
    let host = Host::echo().await;
    let bytes = 100_000;
    let budget = EgressBudget {
        bytes,
        ..EgressBudget::default()
    };
    let mut net = with(host.port, budget);
    let mut stream = net
        .connect(&format!("api.example:{}", host.port))
        .await
        .unwrap();
    echoes(&mut stream, "a little").await;
    // Cut off in the middle, or taken whole by the buffers on the way.
    let _ = stream.write_all(&[b'x'; 1 << 20]).await;
    let _ = read_all(&mut stream).await;
    let record = net.refused("bytes_used_up").await;
    assert!(matches!(record.end, EgressEnd::Broken { .. }));
    assert!(record.sent + record.received < bytes + 64 * 1024);
    // And so it stays.
    let mut next = net
        .connect(&format!("api.example:{}", host.port))
        .await
        .unwrap();
    next.write_all(b"more").await.unwrap();
    let _ = read_all(&mut next).await;
    net.refused("bytes_used_up").await;
}

#[tokio::test]
async fn nothing_leaves_when_nobody_takes_the_records() {
    let host = Host::echo().await;
    let mut net = with(host.port, EgressBudget::default());
    let target = format!("api.example:{}", host.port);
    let mut before = net.connect(&target).await.unwrap();
    echoes(&mut before, "while somebody does").await;
    net.records.close();
    let answer = net.connect(&target).await.unwrap_err();
    assert!(
        answer.contains("503") && answer.contains("not_recorded"),
        "{answer}"
    );
    assert_eq!(host.came(), 1);
}

#[tokio::test]
async fn ten_thousand_connections_are_as_good_as_one() {
    const WAVE: usize = 200;
    let host = Host::echo().await;
    let port = host.port;
    let mut net = with(port, EgressBudget::default());
    for _ in 0..10_000 / WAVE {
        let wave = (0..WAVE).map(|_| async {
            let mut stream = TcpStream::connect(("127.66.1.1", port)).await.unwrap();
            echoes(&mut stream, "hello\n").await;
            // A reset leaves no port waiting, of which there are not enough for all.
            let _ = stream.set_zero_linger();
        });
        futures::future::join_all(wave).await;
        for _ in 0..WAVE {
            assert_eq!(code_of(&net.record().await), None);
        }
    }
    assert_eq!(host.came(), 10_000);
    assert!(net.book.asked().len() < 100);
    let (summary, left) = net.finish().await;
    assert_eq!(
        (summary.connections, summary.sent, left.len()),
        (10_000, 60_000, 0)
    );
}

#[tokio::test]
async fn dropping_it_ends_everything() {
    let host = Host::echo().await;
    let net = with(host.port, EgressBudget::default());
    let mut stream = net
        .connect(&format!("api.example:{}", host.port))
        .await
        .unwrap();
    echoes(&mut stream, "up").await;
    let proxy = net.proxy;
    drop(net.running);
    assert_eq!(read_all(&mut stream).await, "");
    // The doors close behind it.
    while TcpStream::connect(proxy).await.is_ok() {
        tokio::task::yield_now().await;
    }
}
