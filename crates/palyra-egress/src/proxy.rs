//! The proxy: `CONNECT`, whole URLs and SOCKS 5, told apart by the first byte.

use std::io;
use std::sync::Arc;

use palyra_core::{EgressHost, EgressVia};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::call::{Call, HEAD_TIME};
use crate::converse::Conversation;
use crate::farewell;
use crate::head::{self, Asked};
use crate::http::{self, Leg};
use crate::refusal::{EgressCode, Refusal};
use crate::rewound::Rewound;
use crate::rules::Allowed;
use crate::socks::{self, Read};

const TUNNEL_IS_OPEN: &[u8] = b"HTTP/1.1 200 Connection established\r\n\r\n";

/// Serves one client of the proxy.
pub(crate) async fn serve(call: &Arc<Call>, mut client: TcpStream) {
    let _ = client.set_nodelay(true);
    let mut first = Vec::new();
    match timeout(HEAD_TIME, client.read_buf(&mut first)).await {
        // It connected and left, as those do who only look whether somebody is here.
        Ok(Ok(0) | Err(_)) => {}
        Ok(Ok(_)) => match first.first() {
            Some(&socks::VERSION) => by_socks(call, client, first).await,
            Some(_) | None => by_http(call, client, first).await,
        },
        Err(_) => {
            let refusal = Refusal::too_slow("the client's first word");
            let words = crate::answer::answer(&refusal);
            let via = EgressVia::Connect;
            call.ledger.refused(via, "", 0, refusal).await;
            farewell::say(client, &words).await;
        }
    }
}

/// A request, and where it goes: its bytes behind the head are the tunnel's.
async fn by_http(call: &Arc<Call>, mut client: TcpStream, mut first: Vec<u8>) {
    let reading = async {
        loop {
            if let Some(end) = head::end_of(&first)? {
                return Ok((head::check(first.get(..end).unwrap_or_default())?, end));
            }
            first.reserve(4 * 1024);
            if matches!(client.read_buf(&mut first).await, Ok(0) | Err(_)) {
                let why = "the client went away in the middle of a request";
                return Err(Refusal::malformed(why));
            }
        }
    };
    let asked = match timeout(HEAD_TIME, reading).await {
        Ok(asked) => asked,
        Err(_) => Err(Refusal::too_slow("the head of the request")),
    };
    match asked {
        Ok((Asked::Tunnel(host, port), end)) => {
            let rest = first.split_off(end);
            tunnel(call, client, rest, (host, port), EgressVia::Connect).await;
        }
        Ok((Asked::Whole | Asked::Path, _)) => {
            let leg = Leg::named(Arc::clone(call));
            Box::pin(http::serve(Rewound::new(first, client), leg)).await;
        }
        Err(refusal) => {
            let (via, name) = claimed(&first);
            let words = crate::answer::answer(&refusal);
            call.ledger.refused(via, &name, 0, refusal).await;
            farewell::say(client, &words).await;
        }
    }
}

/// What a head that was refused asked for, as far as it can be shown.
fn claimed(head: &[u8]) -> (EgressVia, String) {
    let line = head.split(|byte| matches!(byte, b'\r' | b'\n')).next();
    let line = String::from_utf8_lossy(line.unwrap_or_default()).into_owned();
    let mut words = line.split(' ');
    let via = match words.next() {
        Some("CONNECT") => EgressVia::Connect,
        Some(_) | None => EgressVia::Absolute,
    };
    (via, words.next().unwrap_or_default().to_owned())
}

async fn by_socks(call: &Arc<Call>, mut client: TcpStream, mut first: Vec<u8>) {
    let asked = match timeout(HEAD_TIME, greeted(&mut client, &mut first)).await {
        Ok(asked) => asked,
        Err(_) => Err(Refusal::too_slow("the SOCKS request")),
    };
    match asked {
        Ok(target) => tunnel(call, client, first, target, EgressVia::Socks).await,
        Err(refusal) => {
            let reply = socks::reply(refusal.code.socks_reply());
            call.ledger.refused(EgressVia::Socks, "", 0, refusal).await;
            farewell::say(client, &reply).await;
        }
    }
}

/// The greeting and the request; leaves what the client sent behind them.
async fn greeted(
    client: &mut TcpStream,
    first: &mut Vec<u8>,
) -> Result<(EgressHost, u16), Refusal> {
    let gone = |_: io::Error| Refusal::malformed("the client went away in the middle of SOCKS");
    let open = loop {
        match socks::greeting(first)? {
            Read::Done(open, used) => {
                first.drain(..used);
                break open;
            }
            Read::More => more(client, first).await.map_err(gone)?,
        }
    };
    if !open {
        client.write_all(&socks::NO_METHOD).await.map_err(gone)?;
        let why = "the client wants to authenticate; nobody has to, for nobody else is here";
        return Err(Refusal::new(EgressCode::NotSupported, why));
    }
    client.write_all(&socks::WELCOME).await.map_err(gone)?;
    loop {
        match socks::request(first)? {
            Read::Done(target, used) => {
                first.drain(..used);
                return Ok(target);
            }
            Read::More => more(client, first).await.map_err(gone)?,
        }
    }
}

async fn more(client: &mut TcpStream, into: &mut Vec<u8>) -> io::Result<()> {
    match client.read_buf(into).await? {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok(()),
    }
}

/// Decides, dials, says so, and holds the conversation.
async fn tunnel(
    call: &Arc<Call>,
    mut client: TcpStream,
    first: Vec<u8>,
    (host, port): (EgressHost, u16),
    via: EgressVia,
) {
    let host = call.names.meant(host);
    let mut open = call.ledger.open(via, host.as_str(), port);
    let reached = match call.rules.decide(host, port) {
        Ok(to) => {
            open.ruled(to.rule());
            call.dial(&to, &mut open)
                .await
                .map(|upstream| (to, upstream))
        }
        Err(refusal) => Err(refusal),
    };
    let (to, upstream): (Allowed, TcpStream) = match reached {
        Ok(reached) => reached,
        Err(refusal) => {
            let words = match via {
                EgressVia::Socks => socks::reply(refusal.code.socks_reply()).to_vec(),
                EgressVia::Connect
                | EgressVia::Absolute
                | EgressVia::Direct
                | EgressVia::Lookup => crate::answer::answer(&refusal),
            };
            open.end(Err(refusal)).await;
            return farewell::say(client, &words).await;
        }
    };
    let done = match via {
        EgressVia::Socks => client.write_all(&socks::reply(0)).await,
        EgressVia::Connect | EgressVia::Absolute | EgressVia::Direct | EgressVia::Lookup => {
            client.write_all(TUNNEL_IS_OPEN).await
        }
    };
    if done.is_err() {
        return open.end(Ok(())).await;
    }
    let talk = Conversation {
        call: Arc::clone(call),
        via,
        to,
        client,
        first,
        upstream: Some(upstream),
        open,
    };
    talk.hold().await;
}
