//! The first message of TLS, for the name in it. Read with the parser of rustls, which takes one that
//! is spread over records and knows the bounds of each part.

use rustls::server::Acceptor;

use crate::refusal::{EgressCode, Refusal};

/// No honest hello is larger, with keys for quantum computers and all.
const MOST_HELLO: usize = 64 * 1024;

/// Reads a hello as it comes.
#[derive(Default)]
pub(crate) struct Hello {
    acceptor: Acceptor,
    taken: usize,
}

impl Hello {
    /// Takes more of it. The name once it is whole: `Some(None)` when it has none.
    ///
    /// # Errors
    /// It is not a hello, or too large.
    pub(crate) fn take(&mut self, mut bytes: &[u8]) -> Result<Option<Option<String>>, Refusal> {
        let wrong = |what: String| {
            let why = format!("what was sent is not the beginning of TLS: {what}");
            Refusal::new(EgressCode::NotTls, why)
        };
        while !bytes.is_empty() {
            let read = self.acceptor.read_tls(&mut bytes);
            self.taken += read.map_err(|error| wrong(error.to_string()))?;
            match self.acceptor.accept() {
                Ok(None) if self.taken > MOST_HELLO => {
                    return Err(wrong("it has no end".to_owned()));
                }
                Ok(None) => {}
                Ok(Some(accepted)) => {
                    let name = accepted.client_hello().server_name().map(str::to_owned);
                    return Ok(Some(name));
                }
                Err((error, _)) => return Err(wrong(error.to_string())),
            }
        }
        Ok(None)
    }
}

/// The alert that ends TLS before it began: a client shows "access denied" or "unrecognized name".
pub(crate) const fn alert(code: EgressCode) -> [u8; 7] {
    let unknown_name = matches!(code, EgressCode::SniMissing | EgressCode::SniMismatch);
    let description = if unknown_name { 112 } else { 49 };
    [0x15, 3, 3, 0, 2, 2, description]
}
