//! The tree as it lies in the file: leaves with their checkpoints, and every eighth level above.

use rusqlite::{Connection, OptionalExtension as _};

use crate::error::JournalError;
use crate::proof::{Frontier, Hash, root_of};
use crate::queries::to_sql;

/// Every so many levels, complete nodes are kept.
pub(crate) const STEP: u32 = 8;

/// The complete node over the `2^level` leaves from `index << level` on.
pub(crate) fn node(connection: &Connection, level: u32, index: u64) -> Result<Hash, JournalError> {
    let below = level % STEP;
    let (from, to) = (index << below, (index + 1) << below);
    let hashes = if level < STEP {
        leaves(connection, from, to)?
    } else {
        kept(connection, level - below, from, to)?
    };
    if hashes.len() as u64 != to - from {
        return Err(JournalError::corrupt(format!(
            "the tree has holes at level {level}"
        )));
    }
    Ok(root_of(&hashes))
}

/// The right edge of the tree over the first `size` leaves.
pub(crate) fn frontier(connection: &Connection, size: u64) -> Result<Frontier, JournalError> {
    let mut peaks = Vec::new();
    for level in (0..u64::BITS).rev().filter(|bit| (size >> bit) & 1 == 1) {
        // Everything before this peak is made of larger ones.
        peaks.push(node(connection, level, (size >> level) ^ 1)?);
    }
    Frontier::new(size, peaks).ok_or_else(|| JournalError::corrupt("the tree is incomplete"))
}

/// The hashes of the leaves from `from` up to `to`.
fn leaves(connection: &Connection, from: u64, to: u64) -> Result<Vec<Hash>, JournalError> {
    let mut statement = connection
        .prepare_cached("SELECT size, leaves FROM checkpoints WHERE size > ?1 ORDER BY size")?;
    let mut rows = statement.query([to_sql(from)])?;
    let mut found = Vec::new();
    while (found.len() as u64) < to - from {
        let Some(row) = rows.next()? else { break };
        let size: i64 = row.get(0)?;
        let packed = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        let (hashes, rest) = packed.as_chunks::<32>();
        let size = u64::try_from(size).unwrap_or_default();
        let wanted = from + found.len() as u64;
        let skipped = (size.checked_sub(hashes.len() as u64))
            .and_then(|first| wanted.checked_sub(first))
            .and_then(|skipped| usize::try_from(skipped).ok());
        let (Some(skipped), []) = (skipped, rest) else {
            return Err(JournalError::corrupt(format!(
                "the leaves of checkpoint {size} are not whole"
            )));
        };
        let missing = usize::try_from(to - wanted).unwrap_or(usize::MAX);
        let wanted = hashes.iter().skip(skipped).take(missing);
        found.extend(wanted.copied().map(Hash::from_bytes));
    }
    Ok(found)
}

/// Nodes of a level that is kept.
pub(crate) fn kept(
    connection: &Connection,
    level: u32,
    from: u64,
    to: u64,
) -> Result<Vec<Hash>, JournalError> {
    let mut statement = connection.prepare_cached(
        "SELECT hash FROM nodes WHERE level = ?1 AND place >= ?2 AND place < ?3 ORDER BY place",
    )?;
    let hashes = statement.query_map((level, to_sql(from), to_sql(to)), |row| {
        row.get(0).map(Hash::from_bytes)
    })?;
    Ok(hashes.collect::<Result<_, _>>()?)
}

/// The signed note about the first `size` entries or fewer: the last one there is.
pub(crate) fn last_note(
    connection: &Connection,
    size: u64,
) -> Result<Option<String>, JournalError> {
    Ok(connection
        .prepare_cached("SELECT note FROM checkpoints WHERE size <= ?1 ORDER BY size DESC LIMIT 1")?
        .query_row([to_sql(size)], |row| row.get(0))
        .optional()?)
}
