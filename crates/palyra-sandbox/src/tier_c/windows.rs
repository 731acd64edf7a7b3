//! The limits of a call as a Job Object of Windows would hold them. Planned and compared with a
//! golden file; nothing here was ever run.
//!
//! A Job Object limits and does not confine: it keeps nobody from a file or from the network. It is
//! no Tier-C, and a daemon that had nothing else would refuse.

use palyra_core::Limits;
use serde::Serialize;

/// What is set on the job, by the names of `JOBOBJECT_EXTENDED_LIMIT_INFORMATION`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct JobObject {
    pub(crate) limit_flags: Vec<&'static str>,
    /// In ticks of 100 nanoseconds.
    pub(crate) per_process_user_time_limit: u64,
    pub(crate) active_process_limit: u64,
    pub(crate) job_memory_limit: u64,
    /// What the windows of a call may not do to those of others.
    pub(crate) ui_restrictions: Vec<&'static str>,
    /// Closing the last handle ends every process of the job.
    pub(crate) ends_with_its_handle: bool,
    /// What the plan asked for and no Job Object gives.
    pub(crate) not_held: Vec<&'static str>,
}

/// The job of a call with these limits.
pub(crate) fn job(limits: &Limits) -> JobObject {
    let ticks = limits.cpu.as_nanos() / 100;
    JobObject {
        limit_flags: vec![
            "JOB_OBJECT_LIMIT_PROCESS_TIME",
            "JOB_OBJECT_LIMIT_ACTIVE_PROCESS",
            "JOB_OBJECT_LIMIT_JOB_MEMORY",
            "JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE",
            "JOB_OBJECT_LIMIT_DIE_ON_UNHANDLED_EXCEPTION",
        ],
        per_process_user_time_limit: u64::try_from(ticks).unwrap_or(u64::MAX),
        active_process_limit: limits.processes,
        job_memory_limit: limits.memory,
        ui_restrictions: vec![
            "JOB_OBJECT_UILIMIT_HANDLES",
            "JOB_OBJECT_UILIMIT_READCLIPBOARD",
            "JOB_OBJECT_UILIMIT_WRITECLIPBOARD",
            "JOB_OBJECT_UILIMIT_DESKTOP",
            "JOB_OBJECT_UILIMIT_EXITWINDOWS",
            "JOB_OBJECT_UILIMIT_GLOBALATOMS",
        ],
        ends_with_its_handle: true,
        not_held: vec!["files", "network", "file size", "open files", "scratch"],
    }
}

#[cfg(test)]
mod tests {
    use super::super::golden;
    use super::*;

    #[test]
    fn the_job_object_is_as_it_was_agreed() {
        let text = serde_json::to_string_pretty(&job(&Limits::default())).unwrap();
        golden::compare("windows.json", &text);
    }
}
