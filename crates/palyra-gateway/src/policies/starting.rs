//! Which policies decide when the daemon starts.

use palyra_core::Digest;
use palyra_core::entry::WhyActivated;
use palyra_journal::JournalStore;
use palyra_policy::PolicyEngine;

use super::folder::{Checked, Looked, PolicyPlace};
use super::recording::{Kept, New, record, recorded};
use super::refusals::{cannot_start, kept_unusable};
use super::versions::{self, PolicyVersion, Sources};
use crate::error::Refusal;

/// What decides at a start: the folder's set where that is due, else the last one in force.
pub(super) async fn first(
    journal: &JournalStore,
    place: &PolicyPlace,
    looked: &Looked,
) -> Result<(PolicyEngine, PolicyVersion), Refusal> {
    let Some(last) = versions::latest(journal)? else {
        return match &looked.set {
            Err(problems) => Err(cannot_start(place, problems)),
            Ok(checked) => start_with(journal, 1, checked).await,
        };
    };
    let set_aside = versions::beside(journal)?.set_aside;
    let waits = place.staging || set_aside == Some(looked.digest);
    match &looked.set {
        Ok(checked) if checked.bundle.digest() == last.digest => {
            Ok((checked.bundle.engine()?, last))
        }
        Ok(checked) if !waits => start_with(journal, last.number + 1, checked).await,
        Ok(_) | Err(_) => start_with_last(journal, place, looked, last, set_aside).await,
    }
}

/// Takes up what the folder holds.
async fn start_with(
    journal: &JournalStore,
    number: u64,
    checked: &Checked,
) -> Result<(PolicyEngine, PolicyVersion), Refusal> {
    let engine = checked.bundle.engine()?;
    let new = New {
        bundle: &checked.bundle,
        baseline: checked.sources.baseline_name().to_owned(),
        sources: Kept::Now(checked.sources.blob()),
        why: WhyActivated::Started,
        by: None,
        set_aside: None,
    };
    record(journal, number, new).await?;
    Ok((engine, recorded(journal, number)?))
}

/// Goes on with what was in force last.
async fn start_with_last(
    journal: &JournalStore,
    place: &PolicyPlace,
    looked: &Looked,
    last: PolicyVersion,
    set_aside: Option<Digest>,
) -> Result<(PolicyEngine, PolicyVersion), Refusal> {
    let sources = Sources::kept(journal, &last.sources)?;
    let bundle = sources.bundle().map_err(|problems| match &looked.set {
        Err(own) => cannot_start(place, own),
        Ok(_) => kept_unusable(last.number, &problems),
    })?;
    let engine = bundle.engine()?;
    if bundle.digest() == last.digest {
        return Ok((engine, last));
    }
    // The same texts under another schema, of a newer or older program: another set.
    let new = New {
        bundle: &bundle,
        baseline: sources.baseline_name().to_owned(),
        sources: Kept::Already(last.sources),
        why: WhyActivated::Started,
        by: None,
        set_aside,
    };
    let number = last.number + 1;
    record(journal, number, new).await?;
    Ok((engine, recorded(journal, number)?))
}
