//! A network to try: the doors of a call on loopback, hosts behind them, and who knows their names.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use palyra_core::{
    CallId, ConnectionRecord, EgressEnd, EgressHost, EgressRule, EgressScheme, SystemClock,
    Timestamp,
};
use palyra_egress::{DOOR_ADDRESS, Doors, Egress, Resolve, Running, Summary, Terms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// Knows what it is told, and remembers what it was asked.
#[derive(Default)]
pub(crate) struct Book {
    known: Mutex<HashMap<String, Vec<IpAddr>>>,
    asked: Mutex<Vec<String>>,
}

impl Book {
    pub(crate) fn knows(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        let mut known = self.known.lock().unwrap();
        known.insert(name.to_owned(), addresses.collect());
    }

    pub(crate) fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }
}

impl Resolve for Book {
    fn lookup<'a>(&'a self, name: &'a EgressHost) -> BoxFuture<'a, io::Result<Vec<IpAddr>>> {
        self.asked.lock().unwrap().push(name.to_string());
        let found = self.known.lock().unwrap().get(name.as_str()).cloned();
        let found = found.ok_or_else(|| io::Error::from(io::ErrorKind::NotFound));
        Box::pin(std::future::ready(found))
    }
}

/// A call's network that is up.
pub(crate) struct Net {
    pub(crate) book: Arc<Book>,
    pub(crate) proxy: SocketAddr,
    pub(crate) dns: SocketAddr,
    pub(crate) running: Running,
    pub(crate) records: mpsc::Receiver<ConnectionRecord>,
}

impl Net {
    /// With rules, and for each of the ports a door at the first stand-in address.
    pub(crate) fn up(rules: Vec<EgressRule>, ports: &[u16]) -> Self {
        let call = CallId::mint(Timestamp::from_millis(1));
        Self::with(Terms::new(call, rules), ports, |egress| egress)
    }

    pub(crate) fn with(
        mut terms: Terms,
        ports: &[u16],
        change: impl FnOnce(Egress) -> Egress,
    ) -> Self {
        let book = Arc::new(Book::default());
        let egress = change(Egress::new(
            Arc::<Book>::clone(&book),
            Arc::new(SystemClock),
        ));
        terms.authority = egress.authority(&terms.injections).unwrap();
        let (doors, dns, proxy) = doors(ports);
        let (sender, records) = mpsc::channel(20_000);
        let running = egress.serve(terms, doors, sender).unwrap();
        Self {
            book,
            proxy,
            dns,
            running,
            records,
        }
    }

    /// The next record.
    pub(crate) async fn record(&mut self) -> ConnectionRecord {
        self.records.recv().await.unwrap()
    }

    /// The next record is a refusal with this code.
    pub(crate) async fn refused(&mut self, code: &str) -> ConnectionRecord {
        let record = self.record().await;
        assert_eq!(code_of(&record), Some(code), "{record:?}");
        record
    }

    /// Ends the call: the totals, and the records that were left.
    pub(crate) async fn finish(mut self) -> (Summary, Vec<ConnectionRecord>) {
        let summary = self.running.finish().await;
        let mut left = Vec::new();
        while let Ok(record) = self.records.try_recv() {
            left.push(record);
        }
        (summary, left)
    }

    /// A connection to the proxy.
    pub(crate) async fn proxy(&self) -> TcpStream {
        TcpStream::connect(self.proxy).await.unwrap()
    }

    /// Sends a text to the proxy and reads all of the answer.
    pub(crate) async fn say(&self, text: &str) -> String {
        let mut stream = self.proxy().await;
        let _ = stream.write_all(text.as_bytes()).await;
        let _ = stream.shutdown().await;
        read_all(&mut stream).await
    }

    /// A tunnel, once it is open; the whole answer when it is not.
    pub(crate) async fn connect(&self, target: &str) -> Result<TcpStream, String> {
        let mut stream = self.proxy().await;
        let head = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            match stream.read_u8().await {
                Ok(byte) => answer.push(byte),
                Err(_) => break,
            }
        }
        let mut answer = String::from_utf8(answer).unwrap();
        if answer.starts_with("HTTP/1.1 200 ") {
            return Ok(stream);
        }
        answer.push_str(&read_all(&mut stream).await);
        Err(answer)
    }

    /// A SOCKS connection to a name; the reply's code when there is none.
    pub(crate) async fn socks(&self, name: &str, port: u16) -> Result<TcpStream, u8> {
        let length = u8::try_from(name.len()).unwrap();
        let mut request = vec![5, 1, 0, 3, length];
        request.extend(name.as_bytes());
        request.extend(port.to_be_bytes());
        self.socks_raw(&request).await
    }

    pub(crate) async fn socks_raw(&self, request: &[u8]) -> Result<TcpStream, u8> {
        let mut stream = self.proxy().await;
        stream.write_all(&[5, 1, 0]).await.unwrap();
        let mut welcome = [0; 2];
        stream.read_exact(&mut welcome).await.unwrap();
        assert_eq!(welcome, [5, 0]);
        stream.write_all(request).await.unwrap();
        let mut reply = [0; 10];
        stream.read_exact(&mut reply).await.unwrap();
        match reply[1] {
            0 => Ok(stream),
            code => Err(code),
        }
    }
}

/// Doors on loopback, at ports of their own: in a sandbox they are the well-known ones.
fn doors(ports: &[u16]) -> (Doors, SocketAddr, SocketAddr) {
    let listen = |address: Ipv4Addr, port| std::net::TcpListener::bind((address, port)).unwrap();
    // The same port has to be free for both.
    let (dns_udp, dns_tcp) = (0..100)
        .find_map(|_| {
            let udp = std::net::UdpSocket::bind((DOOR_ADDRESS, 0)).ok()?;
            let tcp = std::net::TcpListener::bind(udp.local_addr().ok()?).ok()?;
            Some((udp, tcp))
        })
        .unwrap();
    let proxy = listen(DOOR_ADDRESS, 0);
    let first = Ipv4Addr::new(127, 66, 1, 1);
    let forwards = ports.iter().map(|port| (*port, listen(first, *port)));
    let (dns, at) = (dns_udp.local_addr().unwrap(), proxy.local_addr().unwrap());
    let doors = Doors {
        dns_udp,
        dns_tcp,
        proxy,
        forwards: forwards.collect(),
    };
    (doors, dns, at)
}

pub(crate) fn code_of(record: &ConnectionRecord) -> Option<&str> {
    match &record.end {
        EgressEnd::Closed => None,
        EgressEnd::Refused { code, .. } | EgressEnd::Broken { code, .. } => Some(code),
    }
}

/// A rule as written, with a port: it may lie inside.
pub(crate) fn rule(text: &str) -> EgressRule {
    EgressRule::named(text).unwrap().remove(0)
}

pub(crate) fn outward(text: &str) -> EgressRule {
    let inward = false;
    EgressRule {
        inward,
        ..rule(text)
    }
}

pub(crate) fn spoken(text: &str, scheme: EgressScheme) -> EgressRule {
    let scheme = Some(scheme);
    EgressRule {
        scheme,
        ..rule(text)
    }
}

pub(crate) async fn read_all(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    // A reset is an end too.
    let _ = stream.read_to_end(&mut bytes).await;
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A host that gives back what it gets, and counts who came.
pub(crate) struct Host {
    pub(crate) port: u16,
    pub(crate) got: Arc<Mutex<Vec<u8>>>,
    pub(crate) came: Arc<Mutex<usize>>,
}

impl Host {
    pub(crate) async fn echo() -> Self {
        Self::start(None).await
    }

    /// Answers every end of a head with this text.
    pub(crate) async fn answering(text: &'static str) -> Self {
        Self::start(Some(text)).await
    }

    async fn start(answer: Option<&'static str>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (got, came) = (
            Arc::<Mutex<Vec<u8>>>::default(),
            Arc::<Mutex<usize>>::default(),
        );
        let host = Self {
            port,
            got: Arc::clone(&got),
            came: Arc::clone(&came),
        };
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                *came.lock().unwrap() += 1;
                let got = Arc::clone(&got);
                tokio::spawn(async move {
                    let mut bytes = [0; 4_096];
                    let mut head: Vec<u8> = Vec::new();
                    while let Ok(count @ 1..) = stream.read(&mut bytes).await {
                        got.lock().unwrap().extend(&bytes[..count]);
                        head.extend(&bytes[..count]);
                        let words = match answer {
                            None => &bytes[..count],
                            Some(text) if head.windows(4).any(|end| end == b"\r\n\r\n") => {
                                head.clear();
                                text.as_bytes()
                            }
                            Some(_) => continue,
                        };
                        if stream.write_all(words).await.is_err() {
                            return;
                        }
                    }
                });
            }
        });
        host
    }

    pub(crate) fn got(&self) -> String {
        String::from_utf8_lossy(&self.got.lock().unwrap()).into_owned()
    }

    pub(crate) fn came(&self) -> usize {
        *self.came.lock().unwrap()
    }
}

pub(crate) async fn echoes(stream: &mut TcpStream, text: &str) {
    stream.write_all(text.as_bytes()).await.unwrap();
    let mut back = vec![0; text.len()];
    stream.read_exact(&mut back).await.unwrap();
    assert_eq!(back, text.as_bytes());
}
