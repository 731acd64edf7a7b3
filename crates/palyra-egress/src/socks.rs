//! SOCKS 5, as far as a client needs it to open one connection: no authentication, `CONNECT` alone.
//! The messages are a few bytes each with fixed places, so they are read here.

use std::net::{Ipv4Addr, Ipv6Addr};

use palyra_core::EgressHost;

use crate::refusal::{EgressCode, Refusal};

/// The first byte of every message.
pub(crate) const VERSION: u8 = 5;
/// "No authentication".
pub(crate) const WELCOME: [u8; 2] = [VERSION, 0];
/// "None of your methods will do".
pub(crate) const NO_METHOD: [u8; 2] = [VERSION, 0xff];

/// What was read from the front of some bytes.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Read<T> {
    /// It, and how many bytes it took.
    Done(T, usize),
    /// More is to come.
    More,
}

/// The client's greeting: whether it would go without authentication.
pub(crate) fn greeting(bytes: &[u8]) -> Result<Read<bool>, Refusal> {
    match bytes {
        [] | [VERSION] => Ok(Read::More),
        [VERSION, 0, ..] => Err(Refusal::malformed("a SOCKS greeting without methods")),
        [VERSION, count, rest @ ..] => match rest.get(..usize::from(*count)) {
            Some(methods) => Ok(Read::Done(methods.contains(&0), 2 + methods.len())),
            None => Ok(Read::More),
        },
        _ => Err(Refusal::malformed("not a SOCKS 5 greeting")),
    }
}

/// The client's request: which host and port.
pub(crate) fn request(bytes: &[u8]) -> Result<Read<(EgressHost, u16)>, Refusal> {
    let (command, kind, rest) = match bytes {
        [VERSION, command, 0, kind, rest @ ..] => (*command, *kind, rest),
        [] | [VERSION] | [VERSION, _] | [VERSION, _, 0] => return Ok(Read::More),
        _ => return Err(Refusal::malformed("not a SOCKS 5 request")),
    };
    if command != 1 {
        let why = "only CONNECT is done here: nothing listens for a call, and no UDP leaves it";
        return Err(Refusal::new(EgressCode::NotSupported, why));
    }
    let (host, used, rest) = match kind {
        1 => match rest.split_first_chunk::<4>() {
            Some((octets, rest)) => (Ipv4Addr::from(*octets).to_string(), 4, rest),
            None => return Ok(Read::More),
        },
        4 => match rest.split_first_chunk::<16>() {
            Some((octets, rest)) => (Ipv6Addr::from(*octets).to_string(), 16, rest),
            None => return Ok(Read::More),
        },
        3 => match rest {
            [] => return Ok(Read::More),
            [length, rest @ ..] => match rest.split_at_checked(usize::from(*length)) {
                Some((name, rest)) => (
                    String::from_utf8_lossy(name).into_owned(),
                    1 + name.len(),
                    rest,
                ),
                None => return Ok(Read::More),
            },
        },
        _ => {
            return Err(Refusal::malformed(
                "a SOCKS request for an unknown kind of address",
            ));
        }
    };
    let Some(port) = rest.first_chunk() else {
        return Ok(Read::More);
    };
    let host: EgressHost = host.parse().map_err(|wrong: palyra_core::host::NotAHost| {
        Refusal::new(EgressCode::NotAHost, wrong.to_string())
    })?;
    match u16::from_be_bytes(*port) {
        0 => Err(Refusal::malformed("port 0 cannot be reached")),
        port => Ok(Read::Done((host, port), 4 + used + 2)),
    }
}

/// The reply to a request: 0 is success. The address is not told; clients do not need it.
pub(crate) const fn reply(code: u8) -> [u8; 10] {
    [VERSION, code, 0, 1, 0, 0, 0, 0, 0, 0]
}
