//! What is printed: rows and promises for people as they come, and one line for programs.

use std::time::{Duration, Instant};

#[derive(Default)]
pub(crate) struct Report {
    rows: Vec<serde_json::Value>,
    ratios: Vec<serde_json::Value>,
}

impl Report {
    pub(crate) fn row(&mut self, name: &str, value: f64, unit: &str) {
        println!("  {name:<58} {value:>10.2} {unit}");
        self.rows
            .push(serde_json::json!({"name": name, "value": value, "unit": unit}));
    }

    /// At most the bar.
    pub(crate) fn at_most(&mut self, name: &str, ratio: f64, bar: f64) {
        self.ratio(name, ratio, bar, "max", ratio <= bar);
    }

    /// At least the bar.
    pub(crate) fn at_least(&mut self, name: &str, ratio: f64, bar: f64) {
        self.ratio(name, ratio, bar, "min", ratio >= bar);
    }

    fn ratio(&mut self, name: &str, ratio: f64, bar: f64, kind: &str, ok: bool) {
        let word = if ok { "ok" } else { "MISSED" };
        println!("  {name:<58} {ratio:>10.2} ({kind} {bar}) {word}");
        self.ratios.push(serde_json::json!({
            "name": name, "ratio": ratio, "bar": bar, "kind": kind, "ok": ok,
        }));
    }

    pub(crate) fn finish(self) {
        let Self { rows, ratios } = self;
        let report = serde_json::json!({"bench": "decide", "rows": rows, "ratios": ratios});
        println!("JSON {report}");
    }
}

/// Does all of these in turn, round after round, and gives the median of each in microseconds for
/// one time. A busy neighbour slows down everybody alike.
pub(crate) fn in_turn(rounds: usize, batch: u32, works: &mut [&mut dyn FnMut()]) -> Vec<f64> {
    let mut times: Vec<Vec<Duration>> = works.iter().map(|_| Vec::new()).collect();
    for _ in 0..rounds {
        for (work, times) in works.iter_mut().zip(&mut times) {
            let start = Instant::now();
            for _ in 0..batch {
                work();
            }
            times.push(start.elapsed() / batch);
        }
    }
    let medians = times.into_iter().map(median);
    medians.map(|time| time.as_secs_f64() * 1e6).collect()
}

pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap()
}
