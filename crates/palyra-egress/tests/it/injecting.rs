//! Secrets that the call never sees: put in toward their audience, in their place, and nowhere else.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use palyra_core::{
    Audience, CallId, Injection, InjectionPlace, InjectionTable, SecretValue, Timestamp,
};
use palyra_egress::Terms;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::secure_host::{SecureHost, exchange, server_name, trusting};
use crate::support::{Host, Net, code_of, read_all, rule};

const SECRET: &str = "s3cr3t-value/+=";

/// A network with one secret for `api.example`, and a host there that is trusted.
struct World {
    net: Net,
    host: SecureHost,
    /// Another host, without TLS and in no audience.
    plain: Host,
    placeholder: String,
}

async fn world(place: InjectionPlace) -> World {
    with(place, |audience| audience, true).await
}

async fn with(
    place: InjectionPlace,
    change: impl FnOnce(Audience) -> Audience,
    trusted: bool,
) -> World {
    let host = SecureHost::named("api.example").await;
    let plain = Host::answering("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi").await;
    let mut audience = Audience::at(&format!("api.example:{}", host.port)).unwrap();
    audience.place = place;
    let value = SecretValue::new(SECRET.as_bytes().to_vec());
    let audience = vec![change(audience)];
    let one = Injection::new("token".parse().unwrap(), 3, audience, value);
    let placeholder = one.placeholder().as_str().to_owned();
    let rules = vec![
        rule(&format!("api.example:{}", host.port)),
        rule(&format!("plain.example:{}", plain.port)),
    ];
    let mut terms = Terms::new(CallId::mint(Timestamp::from_millis(1)), rules);
    terms.injections = Arc::new(InjectionTable::new(vec![one]));
    let net = Net::with(terms, &[host.port], |egress| match trusted {
        true => egress.also_trusting(host.pem.as_bytes()).unwrap(),
        false => egress,
    });
    net.book.knows("api.example", &["127.0.0.1"]);
    net.book.knows("plain.example", &["127.0.0.1"]);
    World {
        net,
        host,
        plain,
        placeholder,
    }
}

impl World {
    /// One request over TLS, through the proxy.
    async fn ask(&self, line: &str, headers: &str, body: &str) -> String {
        let target = format!("api.example:{}", self.host.port);
        let stream = self.net.connect(&target).await.unwrap();
        self.ask_over(stream, line, headers, body).await
    }

    async fn ask_over(&self, stream: TcpStream, line: &str, headers: &str, body: &str) -> String {
        let client = trusting(self.net.running.authority_pem().unwrap(), true);
        let mut stream = client
            .connect(server_name("api.example"), stream)
            .await
            .unwrap();
        let at = format!("api.example:{}", self.host.port);
        let length = match body.is_empty() {
            true => String::new(),
            false => format!("Content-Length: {}\r\n", body.len()),
        };
        let text = format!("{line} HTTP/1.1\r\nHost: {at}\r\n{headers}{length}\r\n{body}");
        exchange(&mut stream, &text.replace("PLACE", &self.placeholder)).await
    }
}

#[tokio::test]
async fn a_placeholder_becomes_the_secret_on_the_way_out() {
    let mut world = world(InjectionPlace::Bearer).await;
    let target = format!("api.example:{}", world.host.port);
    let tunnel = world.net.connect(&target).await.unwrap();
    let socks = world
        .net
        .socks("api.example", world.host.port)
        .await
        .unwrap();
    let direct = TcpStream::connect(("127.66.1.1", world.host.port))
        .await
        .unwrap();
    for stream in [tunnel, socks, direct] {
        let headers = "Authorization: bearer PLACE\r\n";
        let answer = world.ask_over(stream, "GET /x", headers, "").await;
        assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
        // Answers are not changed: a host that echoes a secret gives it away, as the guide says.
        assert!(answer.contains(SECRET));
        let record = world.net.record().await;
        assert_eq!(code_of(&record), None);
        assert_eq!(record.credentials, ["token".parse().unwrap()]);
        let shown = format!("{record:?} {}", serde_json::to_string(&record).unwrap());
        assert!(!shown.contains(SECRET) && !shown.contains(&world.placeholder));
    }
    let got = world.host.got();
    assert_eq!(
        got.matches(&format!("Bearer {SECRET}\r\n")).count(),
        3,
        "{got}"
    );
    assert!(!got.contains(&world.placeholder));
    assert!(!format!("{:?}", world.net.running).contains(SECRET));
}

#[tokio::test]
async fn each_place_takes_the_secret() {
    let basic = InjectionPlace::Basic {
        user: "git".to_owned(),
    };
    let basic = world(basic).await;
    let packed = STANDARD.encode(format!("git:{}", basic.placeholder));
    basic
        .ask("GET /", &format!("Authorization: Basic {packed}\r\n"), "")
        .await;
    let expected = STANDARD.encode(format!("git:{SECRET}"));
    assert!(basic.host.got().contains(&expected), "{}", basic.host.got());

    let name = "X-Api-Key".to_owned();
    let header = world(InjectionPlace::Header { name }).await;
    header.ask("GET /", "x-api-key: key=PLACE\r\n", "").await;
    assert!(header.host.got().contains(&format!("key={SECRET}\r\n")));

    let name = "key".to_owned();
    let query = world(InjectionPlace::Query { name }).await;
    query.ask("GET /p?a=1&key=PLACE&b=2", "", "").await;
    let got = query.host.got();
    assert!(
        got.starts_with("GET /p?a=1&key=s3cr3t-value%2F%2B%3D&b=2 HTTP/1.1\r\n"),
        "{got}"
    );
}

#[tokio::test]
async fn a_placeholder_anywhere_else_is_blocked() {
    let narrow = |mut audience: Audience| {
        audience.path = Some("/v1".to_owned());
        audience.methods = vec!["GET".to_owned(), "POST".to_owned()];
        audience
    };
    let mut world = with(InjectionPlace::Bearer, narrow, true).await;
    let bearer = "Authorization: Bearer PLACE\r\n";
    let packed = STANDARD.encode(format!("git:{}", world.placeholder));
    let packed = format!("Authorization: Basic {packed}\r\n");
    let twice = format!("{bearer}{bearer}");
    let first = world.placeholder.chars().next().unwrap();
    let escaped = world
        .placeholder
        .replacen(first, &format!("%{:02x}", u32::from(first)), 1);
    let escaped = format!("GET /v1/{escaped}");
    for (line, headers, body) in [
        ("GET /v2", bearer, ""),
        ("GET /v1/../v2", bearer, ""),
        ("GET /v1/%2e%2e/v2", bearer, ""),
        ("DELETE /v1", bearer, ""),
        ("GET /v1", "X-Other: PLACE\r\n", ""),
        ("GET /v1", "Authorization: Bearer xPLACE\r\n", ""),
        ("GET /v1", "Cookie: a=PLACE\r\n", ""),
        ("GET /v1", "PLACE: x\r\n", ""),
        ("GET /v1", &packed, ""),
        ("GET /v1", &twice, ""),
        ("GET /v1/PLACE", "", ""),
        (&escaped, "", ""),
        ("GET /v1?token=PLACE", "", ""),
        ("POST /v1", "", "some words, PLACE, and more"),
        ("POST /v1", bearer, "also in the body PLACE"),
    ] {
        let body = body.replace("PLACE", &world.placeholder);
        let answer = world.ask(line, headers, &body).await;
        assert!(
            answer.starts_with("HTTP/1.1 403 "),
            "{line} {headers} {answer}"
        );
        assert!(answer.contains("secret_misdirected"), "{answer}");
        let mut record = world.net.record().await;
        if code_of(&record).is_none() {
            record = world.net.record().await;
        }
        assert_eq!(code_of(&record), Some("secret_misdirected"), "{record:?}");
        if body.is_empty() {
            assert_eq!(record.credentials, []);
        }
        assert!(!world.host.got().contains(&world.placeholder), "{line}");
    }
    let plain_got = world.host.got();
    assert_eq!(
        plain_got.matches(SECRET).count(),
        plain_got.matches("also in the").count()
    );
    let answer = world.ask("GET /v1/x", bearer, "").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
}

#[tokio::test]
async fn a_placeholder_toward_another_host_is_blocked() {
    let mut world = world(InjectionPlace::Bearer).await;
    let at = format!("plain.example:{}", world.plain.port);
    let placeholder = world.placeholder.clone();
    let auth = format!("Authorization: Bearer {placeholder}\r\n");
    let whole = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n{auth}\r\n");
    let answer = world.net.say(&whole).await;
    assert!(
        answer.starts_with("HTTP/1.1 403") && answer.contains("secret_misdirected"),
        "{answer}"
    );
    world.net.refused("secret_misdirected").await;
    // In a tunnel, as a request and as anything else, in one piece and in two.
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\n{auth}\r\n");
    let (front, back) = placeholder.split_at(20);
    for pieces in [
        vec![request.as_str()],
        vec!["\0raw ", &placeholder],
        vec!["\0raw ", front, back],
    ] {
        let mut stream = world.net.connect(&at).await.unwrap();
        stream.set_nodelay(true).unwrap();
        for piece in pieces {
            let _ = stream.write_all(piece.as_bytes()).await;
            tokio::task::yield_now().await;
        }
        let _ = stream.shutdown().await;
        let _ = read_all(&mut stream).await;
        world.net.refused("secret_misdirected").await;
    }
    assert!(!world.plain.got().contains(&placeholder) && !world.plain.got().contains(SECRET));
    // The right host without TLS: everybody on the way could read it.
    let at = format!("api.example:{}", world.host.port);
    let mut stream = world.net.connect(&at).await.unwrap();
    let request = format!("GET / HTTP/1.1\r\nHost: {at}\r\n{auth}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    assert!(read_all(&mut stream).await.contains("secret_misdirected"));
    world.net.refused("secret_misdirected").await;
    // Without a placeholder the other host is reached.
    let at = format!("plain.example:{}", world.plain.port);
    let honest = format!("GET http://{at}/ HTTP/1.1\r\nHost: {at}\r\n\r\n");
    assert!(world.net.say(&honest).await.contains("200 OK"));
}

#[tokio::test]
async fn tls_is_ended_for_the_audience_alone() {
    let other = SecureHost::named("other.example").await;
    let one = Injection::new(
        "token".parse().unwrap(),
        1,
        vec![
            Audience::at("api.example:1").unwrap(),
            Audience::at("other.example:1").unwrap(),
        ],
        SecretValue::new(SECRET.as_bytes().to_vec()),
    );
    let placeholder = one.placeholder().as_str().to_owned();
    let rules = vec![rule(&format!("other.example:{}", other.port))];
    let mut terms = Terms::new(CallId::mint(Timestamp::from_millis(1)), rules);
    terms.injections = Arc::new(InjectionTable::new(vec![one]));
    let net = Net::with(terms, &[], |egress| egress);
    net.book.knows("other.example", &["127.0.0.1"]);
    let stream = net
        .connect(&format!("other.example:{}", other.port))
        .await
        .unwrap();
    // The host's own certificate: the same name at another port is not the audience.
    let client = trusting(&other.pem, true);
    let mut stream = client
        .connect(server_name("other.example"), stream)
        .await
        .unwrap();
    let text = format!(
        "GET / HTTP/1.1\r\nHost: other.example\r\nAuthorization: Bearer {placeholder}\r\n\r\n"
    );
    exchange(&mut stream, &text).await;
    // What got there is worth nothing.
    assert!(other.got().contains(&placeholder) && !other.got().contains(SECRET));
}

#[tokio::test]
async fn a_request_inside_is_for_the_host_of_the_hello() {
    let mut world = world(InjectionPlace::Bearer).await;
    let target = format!("api.example:{}", world.host.port);
    let stream = world.net.connect(&target).await.unwrap();
    let client = trusting(world.net.running.authority_pem().unwrap(), true);
    let mut stream = client
        .connect(server_name("api.example"), stream)
        .await
        .unwrap();
    let text = format!(
        "GET / HTTP/1.1\r\nHost: evil.example\r\nAuthorization: Bearer {}\r\n\r\n",
        world.placeholder
    );
    let answer = exchange(&mut stream, &text).await;
    assert!(answer.contains("host_mismatch"), "{answer}");
    world.net.refused("host_mismatch").await;
    assert_eq!(world.host.got(), "");
}

#[tokio::test]
async fn a_host_that_nobody_vouches_for_gets_no_secret() {
    let mut world = with(InjectionPlace::Bearer, |audience| audience, false).await;
    let answer = world
        .ask("GET /", "Authorization: Bearer PLACE\r\n", "")
        .await;
    assert!(
        answer.starts_with("HTTP/1.1 502") && answer.contains("untrusted_host"),
        "{answer}"
    );
    let mut record = world.net.record().await;
    if code_of(&record).is_none() {
        record = world.net.record().await;
    }
    assert_eq!(code_of(&record), Some("untrusted_host"));
    assert_eq!(world.host.got(), "");
}

#[tokio::test]
async fn a_client_that_does_not_trust_the_call_gets_nothing() {
    let mut world = world(InjectionPlace::Bearer).await;
    let target = format!("api.example:{}", world.host.port);
    let stream = world.net.connect(&target).await.unwrap();
    let client = trusting(&world.host.pem, true);
    assert!(
        client
            .connect(server_name("api.example"), stream)
            .await
            .is_err()
    );
    world.net.refused("not_tls").await;
    assert_eq!(world.host.got(), "");
}

#[tokio::test]
async fn a_secret_that_cannot_stand_there_is_not_sent() {
    let host = SecureHost::named("api.example").await;
    let audience = vec![Audience::at(&format!("api.example:{}", host.port)).unwrap()];
    let value = SecretValue::new(b"two\r\nlines: evil".to_vec());
    let one = Injection::new("token".parse().unwrap(), 1, audience, value);
    let placeholder = one.placeholder().as_str().to_owned();
    let rules = vec![rule(&format!("api.example:{}", host.port))];
    let mut terms = Terms::new(CallId::mint(Timestamp::from_millis(1)), rules);
    terms.injections = Arc::new(InjectionTable::new(vec![one]));
    let net = Net::with(terms, &[], |egress| {
        egress.also_trusting(host.pem.as_bytes()).unwrap()
    });
    net.book.knows("api.example", &["127.0.0.1"]);
    let plain = Host::echo().await;
    let world = World {
        net,
        host,
        plain,
        placeholder,
    };
    let answer = world
        .ask("GET /", "Authorization: Bearer PLACE\r\n", "")
        .await;
    assert!(
        answer.contains("403") && answer.contains("secret_unfit"),
        "{answer}"
    );
    assert_eq!(world.host.got(), "");
}
