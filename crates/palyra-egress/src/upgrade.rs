//! What a connection becomes when both sides agree to speak something else: a WebSocket, mostly.

use std::sync::Arc;

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::call::Call;
use crate::ledger::Open;
use crate::refusal::{EgressCode, Refusal};
use crate::watch::Watch;

/// Carries it on beside the requests, which are over.
pub(crate) fn switch(
    call: &Arc<Call>,
    client_side: OnUpgrade,
    host_side: OnUpgrade,
    open: Option<Open>,
) {
    let (ended, watch) = (call.ended.clone(), Watch::over(&call.injections));
    call.tasks.spawn(async move {
        let carrying = async {
            let (client, host) = match tokio::try_join!(client_side, host_side) {
                Ok(both) => both,
                Err(error) => return Err(Refusal::new(EgressCode::HostBroke, error.to_string())),
            };
            let (client_in, client_out) = tokio::io::split(TokioIo::new(client));
            let (host_in, host_out) = tokio::io::split(TokioIo::new(host));
            let out = carry(client_in, host_out, watch);
            let back = carry(host_in, client_out, None);
            tokio::try_join!(out, back).map(|_| ())
        };
        let how = tokio::select! {
            // Its record is left over, and says why.
            () = ended.cancelled() => return,
            how = carrying => how,
        };
        if let Some(open) = open {
            open.end(how).await;
        }
    });
}

async fn carry(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut watch: Option<Watch>,
) -> Result<(), Refusal> {
    let mut buffer = vec![0; 16 * 1024];
    loop {
        let count = from.read(&mut buffer).await.unwrap_or(0);
        let bytes = buffer.get(..count).unwrap_or_default();
        if let Some(watch) = &mut watch {
            watch.look(bytes)?;
        }
        let written = to.write_all(bytes).await;
        if count == 0 || written.is_err() {
            let _ = to.shutdown().await;
            return Ok(());
        }
    }
}
