//! Looking for placeholders of secrets in what leaves a call. One that is found means that a tool
//! sends it where no secret will be put in its stead: blocked, so that somebody hears of it. The
//! secret itself is not at stake, for it is not there.

use std::sync::Arc;

use palyra_core::InjectionTable;

use crate::head::{Looks, looks};
use crate::refusal::{EgressCode, Refusal};

/// Looks at a stream of bytes, also across its pieces.
pub(crate) struct Watch {
    table: Arc<InjectionTable>,
    /// The end of what was seen, as long as a placeholder less one.
    tail: Vec<u8>,
    /// What was said so far, while it may still become a request that nobody could read any more.
    beginning: Option<Vec<u8>>,
}

impl Watch {
    /// `None` when there is nothing to look for.
    pub(crate) fn over(table: &Arc<InjectionTable>) -> Option<Self> {
        let table = (!table.is_empty()).then(|| Arc::clone(table))?;
        Some(Self {
            table,
            tail: Vec::new(),
            beginning: None,
        })
    }

    /// Over what is let through before it could be told what it is.
    pub(crate) fn from_the_beginning(table: &Arc<InjectionTable>) -> Self {
        Self {
            table: Arc::clone(table),
            tail: Vec::new(),
            beginning: Some(Vec::new()),
        }
    }

    /// Whether there is nothing left to look for.
    pub(crate) fn is_over(&self) -> bool {
        self.table.is_empty() && self.beginning.is_none()
    }

    /// Looks at the next piece. What went before may have left already; the whole never does.
    ///
    /// # Errors
    /// A placeholder ends in it, or it became something that should have been read.
    pub(crate) fn look(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        if let Some(mut beginning) = self.beginning.take() {
            beginning.extend_from_slice(piece);
            match looks(&beginning) {
                Looks::Unclear => self.beginning = Some(beginning),
                Looks::Other => {}
                Looks::Http | Looks::Tls => {
                    return Err(Refusal::too_slow("the beginning of a request or of TLS"));
                }
            }
        }
        if self.table.is_empty() {
            return Ok(());
        }
        self.tail.extend_from_slice(piece);
        if let Some(refusal) = misdirected(&self.table, &self.tail, "in plain text") {
            return Err(refusal);
        }
        let longest = self
            .table
            .all()
            .iter()
            .map(|one| one.placeholder().as_str().len());
        let kept = longest.max().unwrap_or(0).saturating_sub(1);
        self.tail.drain(..self.tail.len().saturating_sub(kept));
        Ok(())
    }
}

/// What is the matter when bytes hold a placeholder.
pub(crate) fn misdirected(table: &InjectionTable, bytes: &[u8], place: &str) -> Option<Refusal> {
    let found = table
        .all()
        .iter()
        .find(|one| contains(bytes, one.placeholder().as_str().as_bytes()))?;
    let why = format!(
        "the placeholder of `{}` was sent {place}, where the secret may not go; see its audience with `palyra vault list`",
        found.secret
    );
    Some(Refusal::new(EgressCode::SecretMisdirected, why))
}

pub(crate) fn contains(bytes: &[u8], text: &[u8]) -> bool {
    // Almost every window begins with another byte.
    let first = text.first();
    let starts = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| Some(*byte) == first);
    let mut rests = starts.filter_map(|(place, _)| bytes.get(place..));
    !text.is_empty() && rests.any(|rest| rest.starts_with(text))
}

#[cfg(test)]
mod tests {
    use palyra_core::{Injection, SecretValue};

    use super::*;

    #[test]
    fn a_placeholder_is_found_however_it_is_cut() {
        let value = SecretValue::new(b"v".to_vec());
        let one = Injection::new("token".parse().unwrap(), 1, Vec::new(), value);
        let text = format!("aap{}zz", one.placeholder().as_str()).into_bytes();
        let table = Arc::new(InjectionTable::new(vec![one]));
        for size in 1..text.len() {
            let mut watch = Watch::over(&table).unwrap();
            let found = text.chunks(size).any(|piece| watch.look(piece).is_err());
            assert!(found, "{size}");
            let mut watch = Watch::over(&table).unwrap();
            let nearly = &text[..text.len() - 3];
            assert!(nearly.chunks(size).all(|piece| watch.look(piece).is_ok()));
        }
        assert!(Watch::over(&Arc::default()).is_none());
    }
}
