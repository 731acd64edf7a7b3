//! A client for one daemon: HTTP/1.1 over its Unix socket, one connection a [`Client`].

use std::marker::PhantomData;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::SendRequest;
use hyper::header::HeaderValue;
use hyper::{Method, Request, Response, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use zeroize::Zeroizing;

use crate::home::Home;
use crate::wire::presence::PRESENCE_HEADER;
use crate::wire::{
    AS_HEADER, CHANNEL_HEADER, CallEvent, CallRequest, CallResult, ErrorBody, Problem, ToolsEvent,
    WatchEvent,
};

/// An answer larger than this is not ours.
const MAX_ANSWER: usize = 256 << 20;

/// Why a request did not succeed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens there.
    #[error("no daemon listens on `{socket}`")]
    NoDaemon {
        /// Where we looked.
        socket: String,
    },
    /// Something is there, but it may not be reached: never taken for "no daemon".
    #[error("the daemon's socket `{socket}` may not be reached: {source}")]
    Forbidden {
        /// Where we looked.
        socket: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The daemon answered with an error.
    #[error("{}", .problem.message)]
    Refused {
        /// The HTTP status.
        status: u16,
        /// What it said.
        problem: Problem,
    },
    /// The conversation broke.
    #[error("the connection to the daemon broke: {0}")]
    Broken(String),
}

impl From<hyper::Error> for ClientError {
    fn from(error: hyper::Error) -> Self {
        Self::Broken(error.to_string())
    }
}

/// A connection to a daemon.
pub struct Client {
    sender: SendRequest<Full<Bytes>>,
    lowered_to: Option<String>,
    channel: Option<&'static str>,
    /// Kept out of every debug text by the header itself.
    passphrase: Option<HeaderValue>,
}

impl Client {
    /// Connects to the daemon of this home.
    ///
    /// # Errors
    /// [`ClientError::NoDaemon`] only when nothing listens; anything the kernel refuses is
    /// [`ClientError::Forbidden`].
    pub async fn connect(home: &Home) -> Result<Self, ClientError> {
        Self::connect_to(&home.socket()).await
    }

    /// Connects to a daemon's socket.
    ///
    /// # Errors
    /// As [`Client::connect`].
    pub async fn connect_to(socket: &Path) -> Result<Self, ClientError> {
        let shown = socket.display().to_string();
        let stream = tokio::net::UnixStream::connect(socket)
            .await
            .map_err(|source| {
                use std::io::ErrorKind as Kind;
                let nothing_there =
                    matches!(source.kind(), Kind::NotFound | Kind::ConnectionRefused);
                match nothing_there {
                    true => ClientError::NoDaemon {
                        socket: shown.clone(),
                    },
                    false => ClientError::Forbidden {
                        socket: shown.clone(),
                        source,
                    },
                }
            })?;
        only_our_own(&stream, &shown)?;
        let io = hyper_util::rt::TokioIo::new(stream);
        let (sender, connection) = hyper::client::conn::http1::handshake(io).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            lowered_to: None,
            channel: None,
            passphrase: None,
        })
    }

    /// Every request from now on is made as this agent (`agent:NAME`).
    #[must_use]
    pub fn lowered_to(mut self, agent: Option<String>) -> Self {
        self.lowered_to = agent;
        self
    }

    /// Every request from now on says that it serves an agent's client (`mcp` or `hook`).
    #[must_use]
    pub const fn by_channel(mut self, channel: &'static str) -> Self {
        self.channel = Some(channel);
        self
    }

    /// Whether the daemon closed this connection.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Every request from now on proves that a person is there, with this passphrase.
    #[must_use]
    pub fn with_passphrase(mut self, passphrase: &str) -> Self {
        let spelled = Zeroizing::new(STANDARD.encode(passphrase));
        self.passphrase = HeaderValue::from_str(&spelled).ok().map(|mut value| {
            value.set_sensitive(true);
            value
        });
        self
    }

    /// `GET path`.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::GET, path, Bytes::new()).await
    }

    /// `DELETE path`.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn delete<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        self.ask(Method::DELETE, path, Bytes::new()).await
    }

    /// `POST path` with a JSON body.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn post<B: Serialize, T: DeserializeOwned>(
        &mut self,
        path: &str,
        body: &B,
    ) -> Result<T, ClientError> {
        let body = serde_json::to_vec(body).map_err(broken)?;
        self.ask(Method::POST, path, body.into()).await
    }

    /// Calls a tool and waits for its end.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn call(&mut self, request: &CallRequest) -> Result<CallResult, ClientError> {
        self.post("/api/v1/calls", request).await
    }

    /// Calls a tool and hears what happens on the way; `body` is the request as JSON text, sent
    /// exactly as given so that the daemon's strict door judges it.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn call_events(&mut self, body: Bytes) -> Result<Events<CallEvent>, ClientError> {
        self.events("/api/v1/calls", body).await
    }

    /// `POST path` with a JSON text, and hears what happens, one event a line.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn events<T>(&mut self, path: &str, body: Bytes) -> Result<Events<T>, ClientError> {
        let mut request = self.request(Method::POST, path, body)?;
        let ndjson = hyper::header::HeaderValue::from_static("application/x-ndjson");
        request.headers_mut().insert(hyper::header::ACCEPT, ndjson);
        let response = self.send(request).await?;
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        Ok(Events {
            body: response.into_body(),
            buffer: BytesMut::new(),
            searched: 0,
            kind: PhantomData,
        })
    }

    /// Hears what changes, one event a line.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn watch(&mut self) -> Result<Events<WatchEvent>, ClientError> {
        self.watching("/api/v1/watch").await
    }

    /// Hears when the tools that one may hear of are others, one event a line.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn watch_tools(&mut self) -> Result<Events<ToolsEvent>, ClientError> {
        self.watching("/api/v1/tools/watch").await
    }

    async fn watching<T>(&mut self, path: &str) -> Result<Events<T>, ClientError> {
        let request = self.request(Method::GET, path, Bytes::new())?;
        let response = self.send(request).await?;
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        Ok(Events {
            body: response.into_body(),
            buffer: BytesMut::new(),
            searched: 0,
            kind: PhantomData,
        })
    }

    /// `GET path`, whose answer is passed on piece by piece.
    ///
    /// # Errors
    /// The daemon refused, or the conversation broke.
    pub async fn download(&mut self, path: &str) -> Result<Download, ClientError> {
        let request = self.request(Method::GET, path, Bytes::new())?;
        let response = self.send(request).await?;
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        Ok(Download(response.into_body()))
    }

    /// Sends one request and gives back the status and the raw body.
    ///
    /// # Errors
    /// The conversation broke.
    pub async fn raw(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let request = self.request(method, path, body)?;
        let response = self.send(request).await?;
        let status = response.status();
        Ok((status, collect(response.into_body()).await?))
    }

    async fn ask<T: DeserializeOwned>(
        &mut self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<T, ClientError> {
        let request = self.request(method, path, body)?;
        let response = self.send(request).await?;
        if !response.status().is_success() {
            return Err(refused(response).await);
        }
        let bytes = collect(response.into_body()).await?;
        serde_json::from_slice(&bytes).map_err(broken)
    }

    /// Sends when the connection has done with the answer before; sooner would be cancelled.
    async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Incoming>, ClientError> {
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(hyper::header::HOST, "palyrad")
            .header(hyper::header::CONTENT_TYPE, "application/json");
        if let Some(agent) = &self.lowered_to {
            request = request.header(AS_HEADER, agent);
        }
        if let Some(channel) = self.channel {
            request = request.header(CHANNEL_HEADER, channel);
        }
        if let Some(passphrase) = &self.passphrase {
            request = request.header(PRESENCE_HEADER, passphrase);
        }
        request.body(Full::new(body)).map_err(broken)
    }
}

/// Arguments and environment values go only to a daemon of our own user: anybody could have put a
/// socket where none was.
fn only_our_own(stream: &tokio::net::UnixStream, socket: &str) -> Result<(), ClientError> {
    let peer = stream.peer_cred().map_err(broken)?.uid();
    let own = rustix::process::geteuid().as_raw();
    if peer == own {
        return Ok(());
    }
    let why = format!("it belongs to uid {peer}, and this is uid {own}");
    let source = std::io::Error::new(std::io::ErrorKind::PermissionDenied, why);
    Err(ClientError::Forbidden {
        socket: socket.to_owned(),
        source,
    })
}

/// An answer without a limit.
pub struct Download(Incoming);

impl Download {
    /// The next piece; `None` at the end, which the daemon confirmed.
    ///
    /// # Errors
    /// The conversation broke: what came so far is not all.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.0.frame().await {
            if let Ok(data) = frame?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// What is said while something goes on.
pub struct Events<T> {
    body: Incoming,
    buffer: BytesMut,
    /// How much of the buffer holds no line end: a long line is searched once, not once a frame.
    searched: usize,
    kind: PhantomData<fn() -> T>,
}

impl<T: DeserializeOwned> Events<T> {
    /// The next event; `None` at the end.
    ///
    /// # Errors
    /// The conversation broke.
    pub async fn next(&mut self) -> Result<Option<T>, ClientError> {
        loop {
            let unsearched = self.buffer.iter().skip(self.searched);
            if let Some(end) = unsearched.copied().position(|byte| byte == b'\n') {
                let line = self.buffer.split_to(self.searched + end + 1);
                self.searched = 0;
                return serde_json::from_slice(&line).map(Some).map_err(broken);
            }
            self.searched = self.buffer.len();
            match self.body.frame().await {
                Some(frame) => {
                    if let Ok(data) = frame?.into_data() {
                        self.buffer.extend_from_slice(&data);
                    }
                }
                None => return Ok(None),
            }
        }
    }
}

async fn refused(response: Response<Incoming>) -> ClientError {
    let status = response.status();
    let body = match collect(response.into_body()).await {
        Ok(body) => body,
        Err(error) => return error,
    };
    match serde_json::from_slice::<ErrorBody>(&body) {
        Ok(ErrorBody { error: problem }) => ClientError::Refused {
            status: status.as_u16(),
            problem,
        },
        Err(_) => ClientError::Broken(format!("the daemon answered {status} without saying why")),
    }
}

async fn collect(body: Incoming) -> Result<Bytes, ClientError> {
    let whole = Limited::new(body, MAX_ANSWER).collect().await;
    whole
        .map(http_body_util::Collected::to_bytes)
        .map_err(broken)
}

fn broken(error: impl std::fmt::Display) -> ClientError {
    ClientError::Broken(error.to_string())
}
