//! The resolver answers for allowed names alone, and never asks anybody.

use hickory_proto::op::{Edns, Message, Query, ResponseCode};
use hickory_proto::rr::RecordType;
use palyra_core::EgressVia;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

use crate::support::{Net, rule};

fn question(name: &str, kind: RecordType) -> Message {
    let mut message = Message::query();
    message.add_query(Query::query(name.parse().unwrap(), kind));
    message
}

async fn ask(net: &Net, message: &Message) -> Message {
    let socket = UdpSocket::bind("127.66.0.1:0").await.unwrap();
    socket
        .send_to(&message.to_vec().unwrap(), net.dns)
        .await
        .unwrap();
    let mut answer = [0; 1_500];
    let (count, _) = socket.recv_from(&mut answer).await.unwrap();
    let answer = Message::from_vec(&answer[..count]).unwrap();
    assert_eq!(answer.metadata.id, message.metadata.id);
    answer
}

fn addresses(answer: &Message) -> Vec<String> {
    let data = answer.answers.iter().map(|record| record.data.to_string());
    data.collect()
}

#[tokio::test]
async fn an_allowed_name_has_its_own_loopback_address_and_nothing_else() {
    let net = Net::up(
        vec![rule("api.example:443"), rule("*.wild.example:443")],
        &[],
    );
    let mut answers = Vec::new();
    for name in [
        "api.example.",
        "API.Example.",
        "a.wild.example.",
        "b.c.wild.example.",
    ] {
        let answer = ask(&net, &question(name, RecordType::A)).await;
        assert_eq!(answer.metadata.response_code, ResponseCode::NoError);
        answers.extend(addresses(&answer));
    }
    assert_eq!(
        answers,
        ["127.66.1.1", "127.66.1.1", "127.66.1.2", "127.66.1.3"]
    );
    for kind in [
        RecordType::AAAA,
        RecordType::HTTPS,
        RecordType::TXT,
        RecordType::MX,
        RecordType::ANY,
        RecordType::Unknown(65_280),
    ] {
        let answer = ask(&net, &question("api.example.", kind)).await;
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::NoError,
            "{kind}"
        );
        assert!(answer.answers.is_empty(), "{kind}");
    }
    let own = ask(&net, &question("localhost.", RecordType::A)).await;
    assert_eq!(addresses(&own), ["127.0.0.1"]);
    let reverse = ask(&net, &question("1.1.66.127.in-addr.arpa.", RecordType::PTR)).await;
    assert_eq!(reverse.metadata.response_code, ResponseCode::NXDomain);
    assert_eq!(net.book.asked(), [""; 0]);
    let (summary, records) = net.finish().await;
    assert_eq!((summary.refused, records.len()), (0, 0));
}

#[tokio::test]
async fn a_lookup_carries_nothing_out() {
    let mut net = Net::up(vec![rule("api.example:443")], &[]);
    for name in [
        "stolen-data.evil.example.",
        "example.",
        "x.api.example.",
        "api.example.evil.example.",
        "wild.example.",
        "2130706433.",
    ] {
        let mut message = question(name, RecordType::A);
        message.set_edns(Edns::new());
        let answer = ask(&net, &message).await;
        assert_eq!(
            answer.metadata.response_code,
            ResponseCode::Refused,
            "{name}"
        );
        assert!(answer.answers.is_empty());
        let shown = format!("{:?}", answer.edns.unwrap().options());
        assert!(shown.contains("15"), "{shown}");
        let record = net.record().await;
        assert_eq!(record.via, EgressVia::Lookup);
        assert_eq!(record.name.as_deref(), Some(name));
    }
    // Asked again and again, it is told once and counted each time.
    for _ in 0..10 {
        ask(&net, &question("example.", RecordType::TXT)).await;
    }
    let fine = ask(&net, &question("api.example.", RecordType::A)).await;
    assert_eq!(addresses(&fine), ["127.66.1.1"]);
    assert_eq!(net.book.asked(), [""; 0]);
    let (summary, records) = net.finish().await;
    assert_eq!(
        (summary.refused, summary.unrecorded, records.len()),
        (16, 10, 0)
    );
}

#[tokio::test]
async fn lookups_over_tcp_are_the_same_and_many_to_a_connection() {
    let net = Net::up(vec![rule("api.example:443")], &[]);
    let mut stream = TcpStream::connect(net.dns).await.unwrap();
    for (name, code) in [
        ("api.example.", ResponseCode::NoError),
        ("evil.example.", ResponseCode::Refused),
    ] {
        let message = question(name, RecordType::A).to_vec().unwrap();
        let length = u16::try_from(message.len()).unwrap();
        stream.write_u16(length).await.unwrap();
        stream.write_all(&message).await.unwrap();
        let length = usize::from(stream.read_u16().await.unwrap());
        let mut answer = vec![0; length];
        stream.read_exact(&mut answer).await.unwrap();
        let answer = Message::from_vec(&answer).unwrap();
        assert_eq!(answer.metadata.response_code, code);
    }
    // A length that is never kept ends the connection, and only that.
    stream.write_u16(u16::MAX).await.unwrap();
    assert!(stream.read_u8().await.is_err());
    ask(&net, &question("api.example.", RecordType::A)).await;
}

#[tokio::test]
async fn odd_messages_get_an_error_or_nothing() {
    let net = Net::up(vec![rule("api.example:443")], &[]);
    let socket = UdpSocket::bind("127.66.0.1:0").await.unwrap();
    let mut two = question("api.example.", RecordType::A);
    two.add_query(Query::query(
        "evil.example.".parse().unwrap(),
        RecordType::A,
    ));
    let mut answer = [0; 1_500];
    for (bytes, code) in [
        (two.to_vec().unwrap(), ResponseCode::FormErr),
        (b"\x12\x34garbage".to_vec(), ResponseCode::FormErr),
    ] {
        socket.send_to(&bytes, net.dns).await.unwrap();
        let (count, _) = socket.recv_from(&mut answer).await.unwrap();
        let got = Message::from_vec(&answer[..count]).unwrap();
        assert_eq!(got.metadata.response_code, code);
    }
    // An answer is not answered, or two resolvers would talk for ever.
    let reply = Message::response(7, hickory_proto::op::OpCode::Query);
    socket
        .send_to(&reply.to_vec().unwrap(), net.dns)
        .await
        .unwrap();
    socket.send_to(b"x", net.dns).await.unwrap();
    ask(&net, &question("api.example.", RecordType::A)).await;
}
