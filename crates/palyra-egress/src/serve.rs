//! The doors, each with who stands at it.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use palyra_core::{EgressHost, EgressVia};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

use crate::call::{Call, HEAD_TIME};
use crate::converse::Conversation;
use crate::dns::answer;
use crate::proxy;
use crate::refusal::{EgressCode, Refusal};

/// Longer lookups over TCP than any name needs.
const MOST_QUESTION: usize = 4 * 1024;
/// Questions on one connection.
const MOST_QUESTIONS: usize = 1_000;
const DNS_PORT: u16 = 53;

/// Which door a connection came to.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Door {
    Dns,
    Proxy,
    /// A port of a rule.
    Forward(u16),
}

/// Accepts at a door until the call ends.
pub(crate) async fn accept(call: Arc<Call>, listener: TcpListener, door: Door) {
    loop {
        let accepted = tokio::select! {
            () = call.ended.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, _)) => {
                let call = Arc::clone(&call);
                let tasks = call.tasks.clone();
                tasks.spawn(welcome(call, client, door));
            }
            // Out of file descriptors, most likely: some will come back.
            Err(error) => {
                tracing::warn!(%error, call = %call.id, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        }
    }
}

async fn welcome(call: Arc<Call>, client: TcpStream, door: Door) {
    let at_once = Arc::clone(&call.at_once);
    let admitted = match at_once.try_acquire_owned() {
        Ok(slot) => call.ledger.take_connection().map(|()| slot),
        Err(_) => {
            let why = "this call has as many connections open as its budget allows at once";
            Err(Refusal::new(EgressCode::ConnectionsUsedUp, why))
        }
    };
    let ended = call.ended.clone();
    let serving = async {
        match (admitted, door) {
            (Ok(_slot), Door::Dns) => dns_over_tcp(&call, client).await,
            (Ok(_slot), Door::Proxy) => proxy::serve(&call, client).await,
            (Ok(_slot), Door::Forward(port)) => forward(&call, client, port).await,
            (Err(refusal), door) => turn_away(&call, client, door, refusal).await,
        }
    };
    tokio::select! {
        () = ended.cancelled() => {}
        () = serving => {}
    }
}

async fn turn_away(call: &Arc<Call>, client: TcpStream, door: Door, refusal: Refusal) {
    let (via, port, words) = match door {
        Door::Dns => (EgressVia::Lookup, DNS_PORT, Vec::new()),
        Door::Proxy => (EgressVia::Connect, 0, crate::answer::answer(&refusal)),
        Door::Forward(port) => (EgressVia::Direct, port, Vec::new()),
    };
    call.ledger.refused(via, "", port, refusal).await;
    crate::farewell::say(client, &words).await;
}

/// Answers lookups over UDP until the call ends.
pub(crate) async fn dns_over_udp(call: Arc<Call>, socket: UdpSocket) {
    let mut question = [0; 1_500];
    loop {
        let received = tokio::select! {
            () = call.ended.cancelled() => return,
            received = socket.recv_from(&mut question) => received,
        };
        let Ok((count, from)) = received else {
            tokio::time::sleep(Duration::from_millis(20)).await;
            continue;
        };
        let question = question.get(..count).unwrap_or_default();
        if let Some(bytes) = looked_up(&call, question).await {
            let _ = socket.send_to(&bytes, from).await;
        }
    }
}

async fn looked_up(call: &Arc<Call>, question: &[u8]) -> Option<Vec<u8>> {
    let answer = answer(question, &call.rules, &call.names)?;
    if let Some((name, refusal)) = answer.refused
        && call.ledger.is_new_lookup(&name)
    {
        let via = EgressVia::Lookup;
        call.ledger.refused(via, &name, DNS_PORT, refusal).await;
    }
    Some(answer.bytes)
}

async fn dns_over_tcp(call: &Arc<Call>, mut client: TcpStream) {
    for _ in 0..MOST_QUESTIONS {
        let reading = async {
            let length = usize::from(client.read_u16().await?);
            if length > MOST_QUESTION {
                return Err(io::Error::from(io::ErrorKind::InvalidData));
            }
            let mut question = vec![0; length];
            client.read_exact(&mut question).await?;
            Ok(question)
        };
        let Ok(Ok(question)) = timeout(HEAD_TIME, reading).await else {
            return;
        };
        let Some(bytes) = looked_up(call, &question).await else {
            return;
        };
        let Ok(length) = u16::try_from(bytes.len()) else {
            return;
        };
        let framed = [length.to_be_bytes().as_slice(), &bytes].concat();
        if !matches!(
            timeout(HEAD_TIME, client.write_all(&framed)).await,
            Ok(Ok(()))
        ) {
            return;
        }
    }
}

/// A client that dialled an address which stands for a name.
async fn forward(call: &Arc<Call>, client: TcpStream, port: u16) {
    let dialled = match client.local_addr().map(|address| address.ip()) {
        Ok(IpAddr::V4(address)) => address,
        Ok(IpAddr::V6(_)) | Err(_) => Ipv4Addr::UNSPECIFIED,
    };
    let _ = client.set_nodelay(true);
    let text = dialled.to_string();
    let name = call.names.name_at(dialled);
    let shown = name.as_ref().map_or(text.as_str(), EgressHost::as_str);
    let mut open = call.ledger.open(EgressVia::Direct, shown, port);
    let decided = match name {
        Some(name) => call.rules.decide(name, port),
        None => own(call, &text, port),
    };
    let to = match decided {
        Ok(to) => to,
        Err(refusal) => {
            open.end(Err(refusal)).await;
            return crate::relay::reset(client);
        }
    };
    open.ruled(to.rule());
    open.named(to.host().as_str(), port);
    let talk = Conversation {
        call: Arc::clone(call),
        via: EgressVia::Direct,
        to,
        client,
        first: Vec::new(),
        upstream: None,
        open,
    };
    talk.hold().await;
}

/// The machine that a call takes for its own: a rule for its address, or for `localhost`.
fn own(call: &Call, address: &str, port: u16) -> Result<crate::rules::Allowed, Refusal> {
    let parsed = |text: &str| {
        let wrong = |_| Refusal::new(EgressCode::NotAHost, "not an address");
        text.parse::<EgressHost>().map_err(wrong)
    };
    let by_address = call.rules.decide(parsed(address)?, port);
    match by_address {
        Err(_) if address == "127.0.0.1" => call.rules.decide(parsed("localhost")?, port),
        decided => decided,
    }
}
