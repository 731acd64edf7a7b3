//! The last words on a connection that is refused.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::relay::reset;

const PATIENCE: Duration = Duration::from_secs(2);
const MOST_UNREAD: usize = 1024 * 1024;

/// Says them and closes. What the client still sends is read and thrown away for a moment, for a
/// connection that is closed with unread bytes is reset and the client never reads the words.
pub(crate) async fn say(mut client: TcpStream, words: &[u8]) {
    if words.is_empty() {
        return reset(client);
    }
    let saying = async {
        client.write_all(words).await?;
        client.shutdown().await?;
        let mut unread = vec![0; 16 * 1024];
        let mut left = MOST_UNREAD;
        loop {
            match client.read(&mut unread).await? {
                0 => return std::io::Result::Ok(()),
                count if count > left => return Ok(()),
                count => left -= count,
            }
        }
    };
    let _ = timeout(PATIENCE, saying).await;
}
