//! Which policies decide when the daemon starts.

use palyra_core::entry::WhyActivated;
use palyra_core::{Digest, Timestamp};
use palyra_journal::JournalStore;
use palyra_policy::operator::Bundle;

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
) -> Result<(Bundle, PolicyVersion), Refusal> {
    let Some(last) = versions::latest(journal)? else {
        return match &looked.set {
            Err(problems) => Err(cannot_start(place, problems)),
            Ok(checked) => start_with(journal, 1, checked).await,
        };
    };
    let set_aside = versions::beside(journal)?.set_aside;
    let waits = place.staging || set_aside == Some(looked.digest);
    match &looked.set {
        Ok(checked) if checked.bundle.digest() == last.digest => Ok((checked.bundle.clone(), last)),
        Ok(checked) if !waits => start_with(journal, last.number + 1, checked).await,
        Ok(_) | Err(_) => start_with_last(journal, place, looked, last, set_aside).await,
    }
}

/// Takes up what the folder holds.
async fn start_with(
    journal: &JournalStore,
    number: u64,
    checked: &Checked,
) -> Result<(Bundle, PolicyVersion), Refusal> {
    // What can fail comes first.
    checked.bundle.engine()?;
    let new = New {
        bundle: &checked.bundle,
        baseline: checked.sources.baseline_name().to_owned(),
        sources: Kept::Now(checked.sources.blob()),
        why: WhyActivated::Started,
        by: None,
        set_aside: None,
    };
    record(journal, number, new).await?;
    Ok((checked.bundle.clone(), recorded(journal, number)?))
}

/// What decides while the journal has no keys: what was in force last, if the folder still holds it;
/// else the baseline alone, and `false`: which policies are in force is sealed, and a caller must
/// not profit from that.
pub(super) fn while_locked(
    journal: &JournalStore,
    place: &PolicyPlace,
    looked: &Looked,
) -> Result<(Bundle, PolicyVersion, bool), Refusal> {
    let last = versions::latest(journal)?;
    if let (Some(last), Ok(checked)) = (&last, &looked.set)
        && checked.bundle.digest() == last.digest
    {
        return Ok((checked.bundle.clone(), last.clone(), true));
    }
    let baseline = place.baseline_alone();
    let (sources, bundle, certain) = match (&last, &looked.set) {
        // A new journal: this is what comes into force once it can be recorded.
        (None, Ok(checked)) => (&checked.sources, checked.bundle.clone(), true),
        (None, Err(problems)) => return Err(cannot_start(place, problems)),
        (Some(_), _) => {
            let bundle = baseline.bundle();
            let bundle = bundle.map_err(|problems| cannot_start(place, &problems))?;
            (&baseline, bundle, false)
        }
    };
    let version = PolicyVersion {
        number: 0,
        digest: bundle.digest(),
        policy_version: bundle.version_text(),
        baseline: sources.baseline_name().to_owned(),
        files: bundle.version(0).files,
        sources: sources.blob().commitment(),
        why: WhyActivated::Started,
        by: None,
        set_aside: None,
        activated_at: Timestamp::from_millis(0),
    };
    Ok((bundle, version, certain))
}

/// Goes on with what was in force last.
async fn start_with_last(
    journal: &JournalStore,
    place: &PolicyPlace,
    looked: &Looked,
    last: PolicyVersion,
    set_aside: Option<Digest>,
) -> Result<(Bundle, PolicyVersion), Refusal> {
    let sources = Sources::kept(journal, &last.sources)?;
    let bundle = sources.bundle().map_err(|problems| match &looked.set {
        Err(own) => cannot_start(place, own),
        Ok(_) => kept_unusable(last.number, &problems),
    })?;
    bundle.engine()?;
    if bundle.digest() == last.digest {
        return Ok((bundle, last));
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
    let version = recorded(journal, number)?;
    Ok((bundle, version))
}
