//! Requests that are two, or for somebody else, or without end.

use palyra_core::EgressScheme;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Host, Net, code_of, read_all, rule, spoken};

const ANSWER: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";

async fn network(scheme: Option<EgressScheme>) -> (Net, Host) {
    let host = Host::answering(ANSWER).await;
    let named = format!("api.example:{}", host.port);
    let rule = scheme.map_or_else(|| rule(&named), |scheme| spoken(&named, scheme));
    let net = Net::up(vec![rule], &[host.port]);
    net.book.knows("api.example", &["127.0.0.1"]);
    (net, host)
}

#[tokio::test]
async fn a_request_that_could_be_two_is_none() {
    let (mut net, host) = network(None).await;
    let at = format!("api.example:{}", host.port);
    for (first, rest) in [
        ("CONNECT {} HTTP/1.1\r\n", "Host: evil.example\r\n\r\n"),
        ("CONNECT {} evil.example:443 HTTP/1.1\r\n", "\r\n"),
        ("CONNECT evil.example:443@{} HTTP/1.1\r\n", "\r\n"),
        ("CONNECT {} HTTP/1.1\n", "Host: {}\r\n\r\n"),
        ("CONNECT {} HTTP/1.1\r\n", "Content-Length: 3\r\n\r\nabc"),
        ("CONNECT {}\0.evil.example HTTP/1.1\r\n", "\r\n"),
        (
            "POST http://{}/ HTTP/1.1\r\n",
            "Host: {}\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /x",
        ),
        (
            "POST http://{}/ HTTP/1.1\r\n",
            "Host: {}\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n",
        ),
        (
            "POST http://{}/ HTTP/1.1\r\n",
            "Host: {}\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "POST http://{}/ HTTP/1.1\r\n",
            "Host: {}\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\nGET /",
        ),
        (
            "GET http://{}/ HTTP/1.1\r\n",
            "Host: {}\r\nHost: evil.example\r\n\r\n",
        ),
        ("GET http://{}/ HTTP/1.1\r\n", "Host: evil.example\r\n\r\n"),
        (
            "GET http://{}/ HTTP/1.1\r\n",
            "Host: {}\r\nX: a\r\n folded\r\n\r\n",
        ),
        ("GET http://{}/ HTTP/1.1\r\n", "Host: {}\nX: a\r\n\r\n"),
        ("GET http://{}/ HTTP/1.1\r\n", "Host : {}\r\n\r\n"),
        (
            "GET http://{}/ HTTP/1.1\r\n",
            "X: a\rHost: evil.example\r\nHost: {}\r\n\r\n",
        ),
        ("GET http://evil@{}/ HTTP/1.1\r\n", "Host: {}\r\n\r\n"),
        ("GET http://{}/ HTTP/1.1\r\n", "\r\n"),
        ("GET https://{}/ HTTP/1.1\r\n", "Host: {}\r\n\r\n"),
        ("GET ftp://{}/ HTTP/1.1\r\n", "Host: {}\r\n\r\n"),
        ("GET / HTTP/1.1\r\n", "Host: {}\r\n\r\n"),
        ("PRI * HTTP/2.0\r\n", "\r\nSM\r\n\r\n"),
    ] {
        let text = format!("{first}{rest}").replace("{}", &at);
        let answer = net.say(&text).await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(matches!(status, "400" | "403" | "501"), "{text:?} {answer}");
        assert!(code_of(&net.record().await).is_some());
    }
    assert_eq!((host.came(), host.got().as_str()), (0, ""));
    let honest = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n");
    assert!(net.say(&honest).await.contains("200 OK"));
}

#[tokio::test]
async fn what_the_host_gets_is_one_request_for_each_that_was_judged() {
    let (net, host) = network(None).await;
    let at = format!("api.example:{}", host.port);
    // A change to HTTP/2 is not passed on: there would be requests that nobody reads.
    let change = "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AA\r\n";
    let text = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{change}\r\n");
    assert!(net.say(&text).await.contains("200 OK"));
    let got = host.got().to_lowercase();
    assert!(!got.contains("upgrade") && !got.contains("h2c"), "{got}");
    host.got.lock().unwrap().clear();
    // The second hides in a body; the third is on the same connection, and judged.
    let hidden = "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let text = format!(
        "POST http://{at}/a HTTP/1.1\r\nHost: {at}\r\nContent-Length: {}\r\n\r\n{hidden}{hidden}",
        hidden.len()
    );
    let answer = net.say(&text).await;
    assert!(
        answer.contains("200 OK") && answer.contains("host_not_allowed"),
        "{answer}"
    );
    let got = host.got();
    assert!(
        got.starts_with("POST /a HTTP/1.1\r\n") && got.ends_with(hidden),
        "{got}"
    );
    assert_eq!(got.matches("evil.example/ ").count(), 1);
}

#[tokio::test]
async fn a_request_for_another_host_does_not_ride_along() {
    let (mut net, host) = network(None).await;
    let at = format!("api.example:{}", host.port);
    for evil in [
        "GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        "get / HTTP/1.1\r\nhost: evil.example\r\n\r\n".to_owned(),
        "\r\n\r\nGET / HTTP/1.1\r\nHost: evil.example\r\n\r\n".to_owned(),
        "GET / HTTP/1.1\r\n\r\n".to_owned(),
        format!("GET http://evil.example/ HTTP/1.1\r\nHost: {at}\r\n\r\n"),
    ] {
        let tunnel = net.connect(&at).await.unwrap();
        let direct = TcpStream::connect(("127.66.1.1", host.port)).await.unwrap();
        for mut stream in [tunnel, direct] {
            stream.write_all(evil.as_bytes()).await.unwrap();
            let answer = read_all(&mut stream).await;
            assert!(
                answer.contains("host_mismatch") || answer.contains("malformed"),
                "{answer}"
            );
            assert!(code_of(&net.record().await).is_some());
        }
    }
    assert_eq!(host.got(), "");
    // Nor does one that is dribbled until nobody listens.
    let mut stream = TcpStream::connect(("127.66.1.1", host.port)).await.unwrap();
    stream.write_all(b"GE").await.unwrap();
    while host.got().is_empty() {
        tokio::task::yield_now().await;
    }
    stream
        .write_all(b"T / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        .await
        .unwrap();
    assert_eq!(read_all(&mut stream).await, "");
    net.refused("too_slow").await;
    assert_eq!(host.got(), "GE");
    // The second request of a connection is held to the same.
    let mut stream = TcpStream::connect(("127.66.1.1", host.port)).await.unwrap();
    let honest = format!("GET / HTTP/1.1\r\nHost: {at}\r\n\r\n");
    stream.write_all(honest.as_bytes()).await.unwrap();
    let mut answer = vec![0; ANSWER.len()];
    stream.read_exact(&mut answer).await.unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
        .await
        .unwrap();
    let answer = read_all(&mut stream).await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("host_mismatch"),
        "{answer}"
    );
    assert!(!host.got().contains("evil"));
}

#[tokio::test]
async fn methods_and_paths_are_held_to_the_rules() {
    let host = Host::answering(ANSWER).await;
    let mut rule = rule(&format!("api.example:{}", host.port));
    rule.methods = vec!["GET".to_owned()];
    rule.paths = vec!["/v1".to_owned()];
    let mut net = Net::up(vec![rule], &[]);
    net.book.knows("api.example", &["127.0.0.1"]);
    let at = format!("api.example:{}", host.port);
    let ask = |line: &str| line.replace("{}", &at) + &format!(" HTTP/1.1\r\nHost: {at}\r\n\r\n");
    for fine in ["GET http://{}/v1", "GET http://{}/v1/x?y=/../z"] {
        assert!(net.say(&ask(fine)).await.contains("200 OK"), "{fine}");
        net.record().await;
    }
    for wrong in [
        "POST http://{}/v1",
        "GET http://{}/v10",
        "GET http://{}/v1/../v2",
        "GET http://{}/v1/%2e%2e/v2",
        "GET http://{}/v1%2f..%2fv2",
        "GET http://{}/",
    ] {
        let answer = net.say(&ask(wrong)).await;
        assert!(answer.contains("request_not_allowed"), "{wrong} {answer}");
        net.refused("request_not_allowed").await;
    }
    // Something else than HTTP would not be seen.
    let mut stream = net.connect(&at).await.unwrap();
    stream.write_all(b"SSH-2.0-x\r\n").await.unwrap();
    let _ = read_all(&mut stream).await;
    net.refused("not_http").await;
    assert_eq!(host.got().matches("GET ").count(), 2);
}

#[tokio::test]
async fn a_whole_url_does_not_lead_past_tls() {
    let (mut net, host) = network(Some(EgressScheme::Tls)).await;
    let at = format!("api.example:{}", host.port);
    let text = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n");
    assert!(net.say(&text).await.contains("not_tls"));
    net.refused("not_tls").await;
    assert_eq!(host.came(), 0);
}

#[tokio::test]
async fn a_head_of_a_mebibyte_is_refused() {
    let (mut net, host) = network(None).await;
    let at = format!("api.example:{}", host.port);
    let long = "a".repeat(1 << 20);
    let many = "X: y\r\n".repeat(1 << 18);
    for text in [
        format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nX: {long}\r\n\r\n"),
        format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{many}\r\n"),
        format!("CONNECT {long}:443 HTTP/1.1\r\n\r\n"),
        long.clone(),
    ] {
        let answer = net.say(&text).await;
        assert!(
            answer.is_empty() || answer.starts_with("HTTP/1.1 431"),
            "{answer}"
        );
        net.refused("too_large").await;
    }
    assert_eq!(host.came(), 0);
    let large = "a".repeat(60_000);
    let fine = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\nX: {large}\r\n\r\n");
    assert!(net.say(&fine).await.contains("200 OK"));
}

#[tokio::test]
async fn a_web_socket_is_carried_on() {
    let answer =
        "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let host = Host::answering(answer).await;
    let net = Net::up(
        vec![rule(&format!("api.example:{}", host.port))],
        &[host.port],
    );
    net.book.knows("api.example", &["127.0.0.1"]);
    let mut stream = TcpStream::connect(("127.66.1.1", host.port)).await.unwrap();
    let text = format!(
        "GET /ws HTTP/1.1\r\nHost: api.example:{}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        host.port
    );
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut switched = Vec::new();
    while !switched.ends_with(b"\r\n\r\n") {
        switched.push(stream.read_u8().await.unwrap());
    }
    assert!(switched.starts_with(b"HTTP/1.1 101 "));
    // This host says the same again at every empty line, and the words go by as they are.
    stream.write_all(b"some frame\r\n\r\n").await.unwrap();
    let mut back = vec![0; answer.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(back, answer.as_bytes());
    assert!(host.got().ends_with("some frame\r\n\r\n"));
    let (summary, records) = net.finish().await;
    assert_eq!((summary.connections, records.len()), (1, 1));
}
