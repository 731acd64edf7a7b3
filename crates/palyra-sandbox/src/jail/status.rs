//! What `/proc` says about this process: who it is, what it may do, and whom its ids stand for.

/// Lines of `/proc/self/status`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Status {
    pub(super) uids: Vec<u32>,
    pub(super) gids: Vec<u32>,
    pub(super) groups: Vec<u32>,
    /// Inheritable, permitted, effective, bounding, ambient.
    pub(super) capabilities: [Option<u64>; 5],
    pub(super) no_new_privs: Option<u32>,
    pub(super) seccomp: Option<u32>,
    pub(super) filters: Option<u32>,
}

impl Status {
    pub(super) fn parse(text: &str) -> Self {
        let value = |name: &str| {
            let mut lines = text.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let numbers = |name: &str| -> Vec<u32> {
            let words = value(name).unwrap_or_default().split_ascii_whitespace();
            words.filter_map(|word| word.parse().ok()).collect()
        };
        let hex = |name: &str| u64::from_str_radix(value(name)?.trim(), 16).ok();
        let one = |name: &str| value(name)?.trim().parse().ok();
        Self {
            uids: numbers("Uid"),
            gids: numbers("Gid"),
            groups: numbers("Groups"),
            capabilities: ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"].map(hex),
            no_new_privs: one("NoNewPrivs"),
            seccomp: one("Seccomp"),
            filters: one("Seccomp_filters"),
        }
    }
}

/// The lines of a map: the first id inside, the first outside, and how many.
fn lines_of(map: &str) -> impl Iterator<Item = [u32; 3]> {
    map.lines().filter_map(|line| {
        let numbers: Vec<u32> = line
            .split_ascii_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        numbers.try_into().ok()
    })
}

/// What `id` inside stands for outside.
pub(super) fn stands_for(map: &str, id: u32) -> Option<u32> {
    lines_of(map).find_map(|[inside, outside, count]| {
        let step = id.checked_sub(inside)?;
        (step < count).then_some(outside + step)
    })
}

/// The first id outside of each line.
pub(super) fn stands_for_all(map: &str) -> impl Iterator<Item = u32> {
    lines_of(map).map(|[_, outside, _]| outside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_status_is_read_line_by_line() {
        let text = "Name:\tx Uid:\nUid:\t5\t5\t5\t5\nGroups:\t1 2 \nCapInh:\t0\nCapPrm:\tff\n\
                    NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t3\n";
        let status = Status::parse(text);
        assert_eq!(status.uids, [5; 4]);
        assert_eq!(status.groups, [1, 2]);
        assert_eq!(status.capabilities[..2], [Some(0), Some(255)]);
        assert_eq!(status.capabilities[2], None);
        assert_eq!((status.seccomp, status.filters), (Some(2), Some(3)));
        assert_eq!(stands_for("0 100 10\n70000 110 1\n", 70_000), Some(110));
        assert_eq!(stands_for("0 100 10\n", 10), None);
    }
}
