//! Hostile bytes for every parser that a call can reach: true messages with anything done to them.
//!
//! `PALYRA_EGRESS_CASES` sets how many; `make fuzz` takes the long form.

use palyra_core::EgressRule;
use proptest::collection::vec;
use proptest::prelude::*;

use crate::head::{self, Asked, Looks, MOST_HEAD, looks};
use crate::hello::Hello;
use crate::names::Names;
use crate::rules::{Rules, normal_path};
use crate::socks::{self, Read};

fn config() -> ProptestConfig {
    let wanted = std::env::var("PALYRA_EGRESS_CASES").ok();
    let cases = wanted.and_then(|text| text.parse().ok()).unwrap_or(500);
    ProptestConfig {
        cases,
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}

/// One of these, with bytes replaced, removed, put in and cut off.
fn spoiled(honest: Vec<Vec<u8>>, words: Vec<&'static [u8]>) -> impl Strategy<Value = Vec<u8>> {
    let one = proptest::sample::select(honest);
    let word = proptest::sample::select(words);
    let change = (any::<prop::sample::Index>(), 0..5_u8, any::<u8>(), word);
    (one, vec(change, 0..4)).prop_map(|(mut bytes, changes)| {
        for (place, kind, byte, word) in changes {
            let at = place.index(bytes.len() + 1).min(bytes.len());
            match kind {
                0 => bytes.truncate(at),
                1 => bytes.insert(at, byte),
                2 => drop(bytes.splice(at..at, word.iter().copied())),
                _ if at == bytes.len() => {}
                3 => bytes[at] = byte,
                _ => drop(bytes.remove(at)),
            }
        }
        bytes
    })
}

fn rules() -> Vec<EgressRule> {
    let named = ["api.example:443", "*.wild.example:443"];
    let named = named
        .iter()
        .flat_map(|text| EgressRule::named(text).unwrap());
    named.collect()
}

fn questions() -> Vec<Vec<u8>> {
    use hickory_proto::op::{Edns, Message, Query};
    let names = ["api.example.", "a.wild.example.", "evil.example.", "."];
    let question = |name: &&str| {
        let mut message = Message::query();
        message.add_query(Query::query(
            name.parse().unwrap(),
            hickory_proto::rr::RecordType::A,
        ));
        message.set_edns(Edns::new());
        message.to_vec().unwrap()
    };
    names.iter().map(question).collect()
}

const HEADS: [&str; 5] = [
    "CONNECT api.example:443 HTTP/1.1\r\nHost: api.example:443\r\n\r\n",
    "GET http://api.example/x?y HTTP/1.1\r\nHost: api.example\r\nAccept: */*\r\n\r\n",
    "POST http://api.example/ HTTP/1.1\r\nHost: api.example\r\nContent-Length: 3\r\n\r\nabc",
    "POST / HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "CONNECT [::1]:443 HTTP/1.0\r\n\r\n",
];

fn heads() -> impl Strategy<Value = Vec<u8>> {
    let honest = HEADS.iter().map(|head| head.as_bytes().to_vec()).collect();
    let words: Vec<&[u8]> = vec![
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"\t",
        b":",
        b"\0",
        b"\r\n\r\n",
        b"\r\n ",
        b"Host: evil\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"@",
        b"%00",
        b"HTTP/1.1",
    ];
    spoiled(honest, words)
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn no_question_breaks_the_resolver_or_gets_another_name(
        bytes in prop_oneof![
            spoiled(questions(), vec![b"\x03api\x07example\x00", b"\xc0\x0c", b"\xff\xff", b"\x00"]),
            vec(any::<u8>(), 0..600),
        ],
    ) {
        use hickory_proto::op::{Message, ResponseCode};
        let (names, rules) = (Names::of(&rules()), Rules::new(rules()));
        if let Some(answer) = crate::dns::answer(&bytes, &rules, &names) {
            prop_assert!(answer.bytes.len() < 1_232);
            let message = Message::from_vec(&answer.bytes).unwrap();
            prop_assert_eq!(Some(&message.metadata.id.to_be_bytes()), bytes.first_chunk());
            let refused = message.metadata.response_code == ResponseCode::Refused;
            prop_assert_eq!(refused, answer.refused.is_some());
            if !message.answers.is_empty() {
                let name = message.queries[0].name().to_ascii().to_lowercase();
                let known = name == "api.example." || name.ends_with(".wild.example.");
                prop_assert!(known || name == "localhost.", "{}", name);
            }
        }
    }

    #[test]
    fn socks_is_read_the_same_however_it_comes(
        bytes in prop_oneof![
            spoiled(
                vec![
                    b"\x05\x01\x00\x03\x0bapi.example\x01\xbb".to_vec(),
                    b"\x05\x01\x00\x01\x7f\x42\x01\x01\x01\xbb".to_vec(),
                    b"\x05\x01\x00\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x01\xbb".to_vec(),
                    b"\x05\x02\x00\x02".to_vec(),
                ],
                vec![b"\x00", b"\xff", b"\x05\x01\x00"],
            ),
            vec(any::<u8>(), 0..300),
        ],
        more in vec(any::<u8>(), 0..8),
    ) {
        let longer = [bytes.clone(), more].concat();
        // What was read or refused once does not change with what follows.
        match socks::greeting(&bytes) {
            Ok(Read::Done(open, used)) => {
                prop_assert!(used <= bytes.len());
                prop_assert_eq!(socks::greeting(&longer), Ok(Read::Done(open, used)));
            }
            Ok(Read::More) => prop_assert!(bytes.len() < 257),
            Err(refusal) => prop_assert_eq!(socks::greeting(&longer), Err(refusal)),
        }
        match socks::request(&bytes) {
            Ok(Read::Done((host, port), used)) => {
                prop_assert!(used <= bytes.len() && port != 0);
                let again: palyra_core::EgressHost = host.as_str().parse().unwrap();
                prop_assert_eq!(&again, &host);
                prop_assert_eq!(socks::request(&longer), Ok(Read::Done((host, port), used)));
            }
            Ok(Read::More) => prop_assert!(bytes.len() < 262),
            Err(refusal) => prop_assert_eq!(socks::request(&longer), Err(refusal)),
        }
    }

    #[test]
    fn a_head_that_passes_has_one_meaning(
        bytes in prop_oneof![heads(), vec(any::<u8>(), 0..400)],
    ) {
        let Ok(Some(end)) = head::end_of(&bytes) else { return Ok(()) };
        prop_assert!(end <= bytes.len() && end <= MOST_HEAD);
        let Ok(asked) = head::check(&bytes[..end]) else { return Ok(()) };
        // Read again in the plainest way there is.
        let text = String::from_utf8_lossy(&bytes[..end]).to_lowercase();
        let lines: Vec<&str> = text.split("\r\n").collect();
        let bare = |line: &&str| line.contains('\n') || line.contains('\r') || line.contains('\0');
        prop_assert!(!lines.iter().any(bare));
        prop_assert_eq!(lines.iter().filter(|line| line.is_empty()).count(), 2);
        let count = |name: &str| lines.iter().filter(|line| line.starts_with(name)).count();
        prop_assert!(count("host:") <= 1);
        prop_assert!(count("content-length:") + count("transfer-encoding:") <= 1);
        prop_assert!(!lines[1..].iter().any(|line| line.starts_with([' ', '\t'])));
        if let Asked::Tunnel(host, port) = asked {
            prop_assert!(port != 0);
            let words: Vec<&str> = lines[0].split(' ').collect();
            prop_assert_eq!(words.len(), 3);
            prop_assert_eq!(head::authority(words[1]).unwrap(), (host, Some(port)));
        }
    }

    #[test]
    fn first_words_are_not_taken_back(
        bytes in prop_oneof![heads(), vec(any::<u8>(), 0..80)],
    ) {
        let mut told = Looks::Unclear;
        for end in 0..=bytes.len() {
            let now = looks(&bytes[..end]);
            if told != Looks::Unclear {
                prop_assert_eq!(now, told);
            }
            told = now;
        }
        prop_assert!(bytes.len() < 100 || told != Looks::Unclear);
    }

    #[test]
    fn a_hello_has_the_same_name_in_any_pieces(
        bytes in spoiled(
            vec![include_bytes!("../tests/hello.bin").to_vec()],
            vec![b"\x16\x03\x01\x00\x01", b"\x00", b"evil.example", b"\x00\x00"],
        ),
        size in 1..200_usize,
    ) {
        let whole = Hello::default().take(&bytes);
        let mut hello = Hello::default();
        let mut pieces = Ok(None);
        for piece in bytes.chunks(size) {
            pieces = hello.take(piece);
            if !matches!(pieces, Ok(None)) {
                break;
            }
        }
        prop_assert_eq!(whole.map_err(|refusal| refusal.code), pieces.map_err(|refusal| refusal.code));
    }

    #[test]
    fn a_normal_path_is_its_own_normal_form(path in "(/|[a-z.;%\\\\]|%2[eEfF5]|\\.\\.){0,20}") {
        if let Some(normal) = normal_path(&path) {
            let again = normal_path(&normal);
            prop_assert_eq!(again.as_ref(), Some(&normal));
            prop_assert!(!normal.split('/').any(|part| part == ".." || part == "."));
        }
    }
}

#[test]
fn the_hello_of_the_fuzzer_is_one() {
    let name = Hello::default().take(include_bytes!("../tests/hello.bin"));
    assert_eq!(name, Ok(Some(Some("api.example".to_owned()))));
}
