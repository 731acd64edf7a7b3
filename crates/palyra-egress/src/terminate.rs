//! TLS that is ended here, so that a secret can be put in: toward the client with a certificate of the
//! call's own authority, toward the host with all the checks that the client would have made.

use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::call::{Call, HEAD_TIME};
use crate::converse::Conversation;
use crate::http::{self, Leg};
use crate::metered::Metered;
use crate::refusal::{EgressCode, Refusal};
use crate::rewound::Rewound;
use crate::rules::Allowed;

/// Serves a client whose hello was for the right name.
pub(crate) async fn serve(talk: Conversation) {
    let Conversation {
        call,
        via,
        to,
        client,
        first,
        upstream,
        open,
    } = talk;
    let config = match &call.authority {
        Some(authority) => authority.server_for(to.host(), call.ledger.now()),
        None => Err(std::io::Error::other("nobody signs for this call")),
    };
    let accepting = async {
        let acceptor = TlsAcceptor::from(config?);
        match timeout(HEAD_TIME, acceptor.accept(Rewound::new(first, client))).await {
            Ok(accepted) => accepted,
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        }
    };
    match accepting.await {
        Ok(stream) => {
            let leg = Leg::fixed(call, via, to, true, upstream, open);
            http::serve(stream, leg).await;
        }
        Err(error) => {
            let why = format!(
                "the client did not go on with TLS: {error}; secrets are put in here, so it has to trust the certificate in SSL_CERT_FILE and speak HTTP/1.1"
            );
            open.end(Err(Refusal::new(EgressCode::NotTls, why))).await;
        }
    }
}

/// TLS with the host itself.
pub(crate) async fn toward(
    call: &Arc<Call>,
    to: &Allowed,
    stream: Metered<TcpStream>,
) -> Result<TlsStream<Metered<TcpStream>>, Refusal> {
    let untrusted = |why: String| {
        let why = format!("`{}`: {why}", to.at());
        Refusal::new(EgressCode::UntrustedHost, why)
    };
    let name = ServerName::try_from(to.host().as_str().to_owned());
    let name = name.map_err(|error| untrusted(error.to_string()))?;
    let roots = Arc::clone(&call.roots);
    // The first time, the machine's roots are read from their files.
    let config = tokio::task::spawn_blocking(move || roots.client()).await;
    let config = match config {
        Ok(Ok(config)) => config,
        Ok(Err(error)) => return Err(untrusted(error.to_string())),
        Err(error) => return Err(untrusted(error.to_string())),
    };
    match timeout(HEAD_TIME, TlsConnector::from(config).connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(untrusted(error.to_string())),
        Err(_) => Err(untrusted("it did not go on with TLS in time".to_owned())),
    }
}
