//! HTTP that can be read: each request is taken apart, judged, and made anew toward its host. What
//! the host gets was written here, so nothing can hide between two readings of the same bytes.

use std::convert::Infallible;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::{HOST, HeaderValue, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use palyra_core::{EgressVia, SecretRef};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Mutex;
use tokio::time::timeout;

use crate::answer::{Body, Fault, answer, empty, refused_response};
use crate::call::{Call, HEAD_TIME};
use crate::head::{self, MOST_HEAD};
use crate::ledger::Open;
use crate::metered::Metered;
use crate::neighbours::{asks_for_upgrade, drop_hop_by_hop};
use crate::refusal::{EgressCode, Refusal};
use crate::rewound::Rewound;
use crate::rules::{Allowed, Speech, at, normal_path};
use crate::swap;
use crate::upgrade::switch;
use crate::watched::Watched;

const MOST_HEADERS: usize = 128;

/// One client's connection on which requests can be read.
pub(crate) struct Leg {
    call: Arc<Call>,
    via: EgressVia,
    /// The host of every request; without one, each names its own by a whole URL.
    fixed: Option<Allowed>,
    tls: bool,
    state: Mutex<State>,
}

/// The host's side, kept from one request to the next.
#[derive(Default)]
struct State {
    /// Dialled before the first request came.
    dialled: Option<TcpStream>,
    /// Of what was dialled or is spoken with.
    open: Option<Open>,
    host: Option<(String, SendRequest<Body>)>,
    /// What was found in the body of the last request, which may go on behind the answer.
    caught: Arc<OnceLock<Refusal>>,
}

impl Leg {
    /// For requests to one host.
    pub(crate) fn fixed(
        call: Arc<Call>,
        via: EgressVia,
        to: Allowed,
        tls: bool,
        dialled: Option<TcpStream>,
        open: Open,
    ) -> Arc<Self> {
        let state = State {
            dialled,
            open: Some(open),
            ..State::default()
        };
        Arc::new(Self {
            call,
            via,
            fixed: Some(to),
            tls,
            state: Mutex::new(state),
        })
    }

    /// For requests with whole URLs.
    pub(crate) fn named(call: Arc<Call>) -> Arc<Self> {
        Arc::new(Self {
            call,
            via: EgressVia::Absolute,
            fixed: None,
            tls: false,
            state: Mutex::default(),
        })
    }
}

/// Serves the requests of a client until it is done, or does something that cannot be passed on.
pub(crate) async fn serve<S>(mut io: S, leg: Arc<Leg>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let first = match read_head(&mut io).await {
        Ok(first) => first,
        Err(refusal) => {
            leg.refused(&refusal, "").await;
            let words = answer(&refusal);
            let _ = tokio::io::AsyncWriteExt::write_all(&mut io, &words).await;
            let _ = tokio::io::AsyncWriteExt::shutdown(&mut io).await;
            drain(io).await;
            return leg.close().await;
        }
    };
    let io = TokioIo::new(Rewound::new(first, io));
    let service = {
        let leg = Arc::clone(&leg);
        service_fn(move |request| {
            let leg = Arc::clone(&leg);
            async move { Ok::<_, Infallible>(leg.handle(request).await) }
        })
    };
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(MOST_HEAD)
        .max_headers(MOST_HEADERS)
        .half_close(true)
        .auto_date_header(false)
        .preserve_header_case(true)
        .serve_connection(io, service)
        .with_upgrades()
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, call = %leg.call.id, "a client's HTTP ended early");
    }
    leg.close().await;
}

/// What the client still sends is thrown away for a moment, so that it reads the answer.
async fn drain<S: AsyncRead + Unpin>(mut io: S) {
    let mut unread = vec![0; 16 * 1024];
    let reading = async {
        for _ in 0..128 {
            if matches!(io.read(&mut unread).await, Ok(0) | Err(_)) {
                return;
            }
        }
    };
    let _ = timeout(Duration::from_secs(2), reading).await;
}

/// The first head, which is read as strictly as anything: who means to smuggle begins here. Later ones
/// on the same connection are read by hyper and made anew like all of them.
async fn read_head<S: AsyncRead + Unpin>(io: &mut S) -> Result<Vec<u8>, Refusal> {
    let mut first = Vec::new();
    let reading = async {
        loop {
            if let Some(end) = head::end_of(&first)? {
                head::check(first.get(..end).unwrap_or_default())?;
                return Ok(());
            }
            let gone = || Refusal::malformed("the client went away in the middle of a request");
            first.reserve(4 * 1024);
            match io.read_buf(&mut first).await {
                Ok(0) | Err(_) => return Err(gone()),
                Ok(_) => {}
            }
        }
    };
    match timeout(HEAD_TIME, reading).await {
        Ok(read) => read.map(|()| first),
        Err(_) => Err(Refusal::too_slow("the head of the request")),
    }
}

impl Leg {
    async fn handle(self: &Arc<Self>, request: Request<Incoming>) -> Response<Body> {
        let named = request.uri().to_string();
        match self.forward(request).await {
            Ok(response) => response,
            Err(refusal) => {
                self.refused(&refusal, &named).await;
                refused_response(&refusal)
            }
        }
    }

    async fn forward(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Response<Body>, Refusal> {
        let to = self.target(&mut request)?;
        let path = normal_path(request.uri().path());
        let method = request.method().as_str().to_owned();
        to.request(self.tls, &method, path.as_deref())?;
        let client_side = request.headers().contains_key(UPGRADE).then(|| {
            // Taken before the request is taken apart.
            hyper::upgrade::on(&mut request)
        });
        let (mut parts, body) = request.into_parts();
        let upgrading = client_side.is_some() && asks_for_upgrade(&parts.headers);
        drop_hop_by_hop(&mut parts.headers, upgrading);
        parts.version = Version::HTTP_11;
        let found = swap::swap(
            &mut parts,
            &self.call.injections,
            &to,
            self.tls,
            path.as_deref(),
        )?;
        let watched = Watched::new(body, &self.call.injections);
        let caught = watched.caught();
        let request = Request::from_parts(parts, watched.boxed());
        let sent = self.send(&to, request, &found).await;
        let mut response = match sent {
            Err(refusal) => return Err(caught.get().cloned().unwrap_or(refusal)),
            Ok(response) => response,
        };
        self.state.lock().await.caught = caught;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            let Some(client_side) = client_side.filter(|_| upgrading) else {
                let why = "the host changed the protocol without being asked";
                return Err(Refusal::new(EgressCode::HostBroke, why));
            };
            let host_side = hyper::upgrade::on(&mut response);
            let open = self.state.lock().await.leave();
            switch(&self.call, client_side, host_side, open);
            let (parts, _) = response.into_parts();
            return Ok(Response::from_parts(parts, empty()));
        }
        drop_hop_by_hop(response.headers_mut(), false);
        Ok(response.map(|body| body.map_err(Fault::from).boxed()))
    }

    /// Where a request goes, and that all of it says so. Leaves the path alone in its first line.
    fn target(&self, request: &mut Request<Incoming>) -> Result<Allowed, Refusal> {
        if request.method() == Method::CONNECT {
            let why = "a tunnel begins a connection, and does not follow a request on it";
            return Err(Refusal::new(EgressCode::NotSupported, why));
        }
        let given = match request.uri().authority() {
            Some(authority) => {
                let scheme = request.uri().scheme_str().unwrap_or_default();
                if scheme != "http" && !(self.tls && scheme == "https") {
                    let why =
                        format!("`{scheme}` is not spoken in whole URLs; use CONNECT for TLS");
                    return Err(Refusal::new(EgressCode::NotSupported, why));
                }
                let (host, port) = head::authority(authority.as_str())?;
                Some((host, port.unwrap_or(if self.tls { 443 } else { 80 })))
            }
            None => None,
        };
        let to = match (&self.fixed, given.clone()) {
            (Some(fixed), None) => fixed.clone(),
            (Some(fixed), Some((host, port))) => {
                let authority = at(&host, port);
                head::is_for(authority.as_bytes(), fixed.host(), fixed.port())?;
                fixed.clone()
            }
            (None, Some((host, port))) => {
                let host = self.call.names.meant(host);
                let to = self.call.rules.decide(host, port)?;
                if self.call.speech(&to) == Speech::Tls {
                    let why = format!("only TLS is spoken with `{}`; use CONNECT", to.at());
                    return Err(Refusal::new(EgressCode::NotTls, why));
                }
                to
            }
            (None, None) => {
                let why = "this is a proxy: it takes CONNECT, whole URLs and SOCKS 5";
                return Err(Refusal::malformed(why));
            }
        };
        let headers = request.headers();
        let mut hosts = headers.get_all(HOST).iter();
        match (hosts.next(), hosts.next()) {
            (Some(_), Some(_)) => return Err(Refusal::malformed("more than one Host")),
            (Some(host), None) => {
                let as_given = given.as_ref().map(|(host, port)| (host, *port));
                let (host_meant, port) = as_given.unwrap_or((to.host(), to.port()));
                head::is_for(host.as_bytes(), host_meant, port)?;
            }
            (None, _) if request.version() == Version::HTTP_10 => {}
            (None, _) => return Err(Refusal::malformed("a request without Host")),
        }
        // One spelling for the host to read, the one that was judged.
        let default = to.port() == if self.tls { 443 } else { 80 };
        let as_judged = match default {
            true => at(to.host(), 0).trim_end_matches(":0").to_owned(),
            false => to.at(),
        };
        let unfit = |_| Refusal::malformed("a host that cannot be written");
        let value = HeaderValue::from_str(&as_judged).map_err(unfit)?;
        request.headers_mut().insert(HOST, value);
        let path = request.uri().path_and_query().cloned();
        let mut uri = hyper::http::uri::Parts::default();
        uri.path_and_query = path;
        *request.uri_mut() =
            Uri::from_parts(uri).map_err(|_| Refusal::malformed("a URL without a path"))?;
        Ok(to)
    }

    async fn send(
        &self,
        to: &Allowed,
        mut request: Request<Body>,
        secrets: &[SecretRef],
    ) -> Result<Response<Incoming>, Refusal> {
        let broke = |why: String| {
            let why = format!("`{}`: {why}", to.at());
            Refusal::new(EgressCode::HostBroke, why)
        };
        let mut state = self.state.lock().await;
        for _ in 0..2 {
            let mut sender = self.sender(to, &mut state).await?;
            if let Some(open) = &mut state.open {
                open.carried(secrets);
            }
            match sender.try_send_request(request).await {
                Ok(response) => {
                    state.host = Some((to.at(), sender));
                    return Ok(response);
                }
                Err(mut failed) => match failed.take_message() {
                    // The host closed what was kept open: nothing was sent, and once more is fine.
                    Some(unsent) => request = unsent,
                    None => return Err(broke(told(failed.error()))),
                },
            }
        }
        Err(broke("it closes every connection".to_owned()))
    }

    /// What was spoken with before, when it is the same host and still there; else it is dialled.
    async fn sender(&self, to: &Allowed, state: &mut State) -> Result<SendRequest<Body>, Refusal> {
        if let Some((host, mut sender)) = state.host.take() {
            if host == to.at() && sender.ready().await.is_ok() {
                return Ok(sender);
            }
            state.end().await;
        }
        let open = match &mut state.open {
            Some(open) => open,
            None => {
                let name = to.host().as_str();
                let mut open = self.call.ledger.open(self.via, name, to.port());
                open.ruled(to.rule());
                state.open.insert(open)
            }
        };
        let stream = match state.dialled.take() {
            Some(stream) => stream,
            None => self.call.dial(to, open).await?,
        };
        let stream = Metered::new(stream, open.meter());
        match self.tls {
            false => self.handshake(stream).await,
            true => {
                let stream = crate::terminate::toward(&self.call, to, stream).await?;
                self.handshake(stream).await
            }
        }
    }

    async fn handshake<S>(&self, stream: S) -> Result<SendRequest<Body>, Refusal>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (sender, connection) = hyper::client::conn::http1::Builder::new()
            .preserve_header_case(true)
            .max_headers(2 * MOST_HEADERS)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| Refusal::new(EgressCode::HostBroke, told(&error)))?;
        let ended = self.call.ended.clone();
        self.call.tasks.spawn(async move {
            let connection = connection.with_upgrades();
            tokio::select! {
                () = ended.cancelled() => {}
                _ = connection => {}
            }
        });
        Ok(sender)
    }

    /// Records that a request was refused: as the end of the connection, when that reached nobody.
    async fn refused(&self, refusal: &Refusal, named: &str) {
        let mut state = self.state.lock().await;
        let unused = state.open.as_ref().is_some_and(|open| !open.has_reached());
        if unused || state.dialled.is_some() {
            state.dialled = None;
            if let Some(open) = state.leave() {
                return open.end(Err(refusal.clone())).await;
            }
        }
        let (name, port) = match &self.fixed {
            Some(to) => (to.host().as_str().to_owned(), to.port()),
            None => named_in(named),
        };
        let via = self.via;
        self.call
            .ledger
            .refused(via, &name, port, refusal.clone())
            .await;
    }

    async fn close(&self) {
        self.state.lock().await.end().await;
    }
}

impl State {
    /// Lets go of the host and ends its record.
    async fn end(&mut self) {
        let caught = self.caught.get().cloned();
        if let Some(open) = self.leave() {
            open.end(caught.map_or(Ok(()), Err)).await;
        }
    }

    /// Lets go of the host. The record is for who ends it.
    fn leave(&mut self) -> Option<Open> {
        self.host = None;
        self.open.take()
    }
}

/// The host of a URL, as far as it has one, for the record.
fn named_in(url: &str) -> (String, u16) {
    let uri: Option<Uri> = url.parse().ok();
    let authority = uri.as_ref().and_then(Uri::authority);
    authority.map_or_else(Default::default, |authority| {
        (
            authority.host().to_owned(),
            authority.port_u16().unwrap_or(80),
        )
    })
}

/// An error with its causes, which hyper hides.
fn told(error: &hyper::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause {
        text = format!("{text}: {deeper}");
        cause = deeper.source();
    }
    text
}
