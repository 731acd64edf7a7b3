//! Each way in: an honest client gets through, and no way leads past the rules.

use palyra_core::EgressVia;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Host, Net, code_of, echoes, outward, read_all, rule};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

#[tokio::test]
async fn every_way_in_reaches_the_host_and_is_recorded() {
    let host = Host::echo().await;
    let port = host.port;
    let mut net = Net::up(vec![rule(&format!("api.example:{port}"))], &[port]);
    net.book.knows("api.example", &["127.0.0.1"]);
    let connect = net.connect(&format!("API.example.:{port}")).await.unwrap();
    let socks = net.socks("api.example", port).await.unwrap();
    let [high, low] = port.to_be_bytes();
    let by_address = [5, 1, 0, 1, 127, 66, 1, 1, high, low];
    let looked_up = net.socks_raw(&by_address).await.unwrap();
    let direct = TcpStream::connect(("127.66.1.1", port)).await.unwrap();
    for (mut stream, via) in [
        (connect, EgressVia::Connect),
        (socks, EgressVia::Socks),
        (looked_up, EgressVia::Socks),
        (direct, EgressVia::Direct),
    ] {
        echoes(&mut stream, "what is said").await;
        echoes(&mut stream, "comes back").await;
        drop(stream);
        let record = net.record().await;
        assert_eq!(record.via, via);
        assert_eq!(record.name.as_deref(), Some("api.example"));
        assert_eq!((record.port, record.sent, record.received), (port, 22, 22));
        assert_eq!(record.address.unwrap(), ([127, 0, 0, 1], port).into());
        assert_eq!(record.rule, Some(format!("api.example:{port}")));
        assert_eq!(code_of(&record), None);
    }
    // Looked up once, for all of them.
    assert_eq!(net.book.asked(), ["api.example"]);
    let (summary, _) = net.finish().await;
    assert_eq!((summary.connections, summary.refused), (4, 0));
    assert_eq!((summary.sent, summary.received), (88, 88));
}

#[tokio::test]
async fn a_whole_url_reaches_the_host_and_each_request_is_judged() {
    let host = Host::answering(ANSWER).await;
    let port = host.port;
    let mut net = Net::up(vec![rule(&format!("api.example:{port}"))], &[]);
    net.book.knows("api.example", &["127.0.0.1"]);
    let get = |name: &str| {
        format!(
            "GET http://{name}/x?y=1 HTTP/1.1\r\nHost: {name}\r\nProxy-Connection: keep-alive\r\n\r\n"
        )
    };
    let mut stream = net.proxy().await;
    for _ in 0..2 {
        let request = get(&format!("api.example:{port}"));
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = vec![0; ANSWER.len()];
        stream.read_exact(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    stream
        .write_all(get("evil.example").as_bytes())
        .await
        .unwrap();
    let refused = read_all(&mut stream).await;
    assert!(
        refused.contains("403") && refused.contains("host_not_allowed"),
        "{refused}"
    );
    assert!(refused.contains("`evil.example:80`"), "{refused}");
    let got = host.got();
    assert!(got.starts_with("GET /x?y=1 HTTP/1.1\r\n"), "{got}");
    assert!(!got.to_lowercase().contains("proxy-connection"), "{got}");
    assert_eq!(host.came(), 1);
    assert_eq!(
        net.refused("host_not_allowed").await.name.unwrap(),
        "evil.example"
    );
    let record = net.record().await;
    assert_eq!((record.via, code_of(&record)), (EgressVia::Absolute, None));
    assert_eq!(net.book.asked(), ["api.example"]);
}

#[tokio::test]
async fn what_is_not_allowed_is_refused_without_a_lookup_and_says_why() {
    let host = Host::echo().await;
    let port = host.port;
    let mut net = Net::up(vec![rule(&format!("api.example:{port}"))], &[port]);
    for name in ["evil.example", "api.example", "127.0.0.1", "x.api.example"] {
        net.book.knows(name, &["127.0.0.1"]);
    }
    for target in [
        format!("evil.example:{port}"),
        "api.example:1".to_owned(),
        format!("127.0.0.1:{port}"),
        format!("2130706433:{port}"),
        format!("0x7f.1:{port}"),
        format!("0177.0.0.1:{port}"),
        format!("[::1]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("[64:ff9b::7f00:1]:{port}"),
        "169.254.169.254:80".to_owned(),
        format!("localhost:{port}"),
        format!("x.api.example:{port}"),
        format!("127.66.1.9:{port}"),
    ] {
        let answer = net.connect(&target).await.unwrap_err();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{target} {answer}");
        assert!(
            answer.contains("host_not_allowed") && answer.contains("--allow-host"),
            "{answer}"
        );
        net.refused("host_not_allowed").await;
    }
    assert_eq!(net.socks("evil.example", port).await.unwrap_err(), 2);
    net.refused("host_not_allowed").await;
    // UDP and listening are not done for anybody.
    for command in [2, 3] {
        let [high, low] = port.to_be_bytes();
        let request = [5, command, 0, 1, 127, 0, 0, 1, high, low];
        assert_eq!(net.socks_raw(&request).await.unwrap_err(), 7);
        net.refused("not_supported").await;
    }
    assert_eq!(net.book.asked(), [""; 0]);
    assert_eq!(host.came(), 0);
    let mut allowed = net.connect(&format!("api.example:{port}")).await.unwrap();
    echoes(&mut allowed, "and this is").await;
}

#[tokio::test]
async fn a_name_that_leads_inside_is_refused_unless_it_may() {
    let host = Host::echo().await;
    let port = host.port;
    let inside = [
        "127.0.0.1",
        "::1",
        "10.0.0.1",
        "169.254.169.254",
        "100.64.0.1",
        "192.168.0.1",
        "0.0.0.0",
        "224.0.0.1",
        "::ffff:127.0.0.1",
        "64:ff9b::7f00:1",
        "2002:7f00:1::1",
        "2001:0:1::1",
        "fd00::1",
        "fe80::1",
    ];
    let mut net = Net::up(vec![outward(&format!("api.example:{port}"))], &[port]);
    for address in inside {
        // Each is a new call: what was looked up is kept for a while.
        let mut net = Net::up(vec![outward(&format!("api.example:{port}"))], &[]);
        net.book.knows("api.example", &[address]);
        let answer = net
            .connect(&format!("api.example:{port}"))
            .await
            .unwrap_err();
        assert!(
            answer.contains("403") && answer.contains("inside_address"),
            "{answer}"
        );
        net.refused("inside_address").await;
    }
    net.book
        .knows("api.example", &["10.0.0.1", "127.0.0.1", "::1"]);
    assert_eq!(net.socks("api.example", port).await.unwrap_err(), 2);
    net.refused("inside_address").await;
    let mut direct = TcpStream::connect(("127.66.1.1", port)).await.unwrap();
    let _ = direct.write_all(b"x").await;
    assert_eq!(read_all(&mut direct).await, "");
    net.refused("inside_address").await;
    assert_eq!(host.came(), 0);

    let net = Net::up(vec![rule(&format!("api.example:{port}"))], &[]);
    net.book.knows("api.example", &["127.0.0.1"]);
    let mut fine = net.connect(&format!("api.example:{port}")).await.unwrap();
    echoes(&mut fine, "named with its port").await;
    // Even then no name leads to a machine's credentials.
    let mut net = Net::up(vec![rule(&format!("api.example:{port}"))], &[]);
    net.book.knows("api.example", &["169.254.169.254"]);
    net.connect(&format!("api.example:{port}"))
        .await
        .unwrap_err();
    net.refused("inside_address").await;
}

#[tokio::test]
async fn what_was_judged_is_what_is_dialled() {
    let host = Host::echo().await;
    let port = host.port;
    let net = Net::up(vec![rule(&format!("api.example:{port}"))], &[]);
    net.book.knows("api.example", &["127.0.0.1"]);
    let mut first = net.connect(&format!("api.example:{port}")).await.unwrap();
    // The name changes between this lookup and the next connection.
    net.book.knows("api.example", &["169.254.169.254"]);
    echoes(&mut first, "still the one that was judged").await;
    let mut second = net.connect(&format!("api.example:{port}")).await.unwrap();
    echoes(&mut second, "and no second lookup between").await;
    assert_eq!(net.book.asked(), ["api.example"]);
    let (_, records) = net.finish().await;
    let here = |record: &palyra_core::ConnectionRecord| {
        record
            .address
            .is_some_and(|address| address.ip().is_loopback())
    };
    assert!(records.len() == 2 && records.iter().all(here));
}

#[tokio::test]
async fn localhost_is_reached_where_a_rule_names_it() {
    let host = Host::answering(ANSWER).await;
    let port = host.port;
    let net = Net::up(vec![rule(&format!("localhost:{port}"))], &[]);
    net.book.knows("localhost", &["127.0.0.1"]);
    let text = format!("GET http://localhost:{port}/ HTTP/1.1\r\nHost: localhost:{port}\r\n\r\n");
    let answer = net.say(&text).await;
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert_eq!(host.came(), 1);
}

#[tokio::test]
async fn half_of_a_connection_may_end_before_the_other() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        // Answers only once the client has said that it is done.
        let asked = read_all(&mut stream).await;
        stream
            .write_all(asked.to_uppercase().as_bytes())
            .await
            .unwrap();
    });
    let mut net = Net::up(vec![rule(&format!("api.example:{port}"))], &[port]);
    net.book.knows("api.example", &["127.0.0.1"]);
    let mut stream = TcpStream::connect(("127.66.1.1", port)).await.unwrap();
    let text = "some words, ".repeat(100_000);
    stream.write_all(text.as_bytes()).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_all(&mut stream).await, text.to_uppercase());
    let record = net.record().await;
    assert_eq!(record.sent, record.received);
}

#[tokio::test]
async fn a_host_that_speaks_first_is_heard() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        stream.write_all(b"SSH-2.0-host\r\n").await.unwrap();
        let _ = read_all(&mut stream).await;
    });
    let net = Net::up(vec![rule(&format!("api.example:{port}"))], &[port]);
    net.book.knows("api.example", &["127.0.0.1"]);
    let mut stream = TcpStream::connect(("127.66.1.1", port)).await.unwrap();
    let mut banner = [0; 14];
    stream.read_exact(&mut banner).await.unwrap();
    assert_eq!(&banner, b"SSH-2.0-host\r\n");
}

#[tokio::test]
async fn the_machines_own_resolver_knows_the_machine() {
    use palyra_egress::{HostResolver, Resolve};
    let found = HostResolver.lookup(&"localhost".parse().unwrap()).await;
    assert!(found.unwrap().iter().all(std::net::IpAddr::is_loopback));
}
