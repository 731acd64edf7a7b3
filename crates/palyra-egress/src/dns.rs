//! The resolver of a call. It answers from the rules and never asks anybody, so that a lookup carries
//! nothing out: an allowed name gets the loopback address that stands for it, any other is refused.

use std::net::Ipv4Addr;

use hickory_proto::op::{Edns, Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::rdata::opt::EdnsOption;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use palyra_core::EgressHost;

use crate::names::Names;
use crate::refusal::{EgressCode, Refusal, shown};
use crate::rules::{Rules, not_allowed};

/// The addresses hold as long as the call.
const TTL: u32 = 60;
const MOST_PAYLOAD: u16 = 1_232;
/// RFC 8914: the extended error "blocked", and the option that carries one.
const EXTENDED_ERROR: u16 = 15;
const BLOCKED: [u8; 2] = [0, 15];

/// An answer, and what was refused with it.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: Vec<u8>,
    pub(crate) refused: Option<(String, Refusal)>,
}

/// Answers one message; `None` when it is no question at all, and deserves no answer.
pub(crate) fn answer(packet: &[u8], rules: &Rules, names: &Names) -> Option<Answer> {
    let id = packet.first_chunk().map(|id| u16::from_be_bytes(*id))?;
    let Ok(asked) = Message::from_vec(packet) else {
        let message = Message::error_msg(id, OpCode::Query, ResponseCode::FormErr);
        return finished(message, None);
    };
    if asked.metadata.message_type != MessageType::Query {
        return None;
    }
    let mut message = Message::response(id, asked.metadata.op_code);
    message.metadata.recursion_desired = asked.metadata.recursion_desired;
    message.metadata.recursion_available = true;
    if asked.edns.is_some() {
        let mut edns = Edns::new();
        edns.set_max_payload(MOST_PAYLOAD);
        message.set_edns(edns);
    }
    if asked.metadata.op_code != OpCode::Query {
        message.metadata.response_code = ResponseCode::NotImp;
        return finished(message, None);
    }
    let [query] = asked.queries.as_slice() else {
        message.metadata.response_code = ResponseCode::FormErr;
        return finished(message, None);
    };
    message.add_query(query.clone());
    match found(query, rules, names) {
        Found::Address(address) => {
            let data = RData::A(A(address));
            message.add_answer(Record::from_rdata(query.name().clone(), TTL, data));
            finished(message, None)
        }
        Found::NothingOfThatKind => finished(message, None),
        Found::NoSuchName => {
            message.metadata.response_code = ResponseCode::NXDomain;
            finished(message, None)
        }
        Found::Refused(refusal) => {
            message.metadata.response_code = ResponseCode::Refused;
            if let Some(edns) = &mut message.edns {
                let text = [BLOCKED.as_slice(), refusal.code.as_str().as_bytes()].concat();
                let option = EdnsOption::Unknown(EXTENDED_ERROR, text);
                edns.options_mut().insert(option);
            }
            finished(message, Some((shown(&query.name().to_ascii()), refusal)))
        }
    }
}

fn finished(message: Message, refused: Option<(String, Refusal)>) -> Option<Answer> {
    let bytes = message.to_vec().ok()?;
    Some(Answer { bytes, refused })
}

enum Found {
    Address(Ipv4Addr),
    NothingOfThatKind,
    NoSuchName,
    Refused(Refusal),
}

fn found(query: &Query, rules: &Rules, names: &Names) -> Found {
    let Some(host) = host_of(query.name()) else {
        let why = "this is not the name of a host".to_owned();
        return Found::Refused(Refusal::new(EgressCode::NotAHost, why));
    };
    // What the stand-in addresses are called: `ssh` and others ask, and nothing depends on it.
    if host.as_str().ends_with(".127.in-addr.arpa") {
        return Found::NoSuchName;
    }
    let own = host.as_str() == "localhost";
    if !own && !rules.know(&host) {
        return Found::Refused(not_allowed(host.as_str()));
    }
    let for_internet = matches!(query.query_class(), DNSClass::IN | DNSClass::ANY);
    // No IPv6 inside, and no other records: a client that gets none goes on with the address.
    if !for_internet || query.query_type() != RecordType::A {
        return Found::NothingOfThatKind;
    }
    match names.address_of(&host) {
        Some(address) => Found::Address(address),
        None => {
            let why = format!("too many names were looked up before `{host}`");
            Found::Refused(Refusal::new(EgressCode::TooManyNames, why))
        }
    }
}

/// Labels as they are, without any of the spellings that are read elsewhere: a resolver gets names.
fn host_of(name: &Name) -> Option<EgressHost> {
    let text = name.to_ascii();
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let legal = text.bytes().all(plain);
    let host: EgressHost = legal.then(|| text.parse().ok())??;
    (!host.is_address()).then_some(host)
}
