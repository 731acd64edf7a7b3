//! How long it takes to say what a call does. Files are not asked: the resolver knows by heart.
//!
//! Beside it, the parser alone on the same text: what unfolding costs beyond parsing.

#![expect(clippy::print_stdout, reason = "a bench reports on standard output")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot run should stop")]

use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::time::Instant;

use palyra_effects::{ProcessCall, Read, Resolver, of_process};

const ROUNDS: usize = 60;
const BATCH: u32 = 200;

struct ByHeart;

impl Resolver for ByHeart {
    fn program(&self, name: &str, _: &str, cwd: &Path) -> Option<PathBuf> {
        let folder = if name.contains('/') {
            cwd
        } else {
            Path::new("/usr/bin")
        };
        Some(folder.join(name))
    }

    fn real(&self, path: &Path) -> Option<PathBuf> {
        Some(path.to_owned())
    }

    fn interpreter(&self, _: &Path) -> Option<String> {
        None
    }
}

fn main() {
    let fifty = vec!["ls"; 51].join(" && ");
    let calls: [(&str, Vec<&str>); 6] = [
        ("git status", vec!["git", "status"]),
        ("git status | head", vec!["sh", "-c", "git status | head"]),
        (
            "substitutions",
            vec![
                "bash",
                "-c",
                "echo \"$(cat \"$(ls)\")\" `id` > x <<E\nhi $(date)\nE",
            ],
        ),
        (
            "wrappers",
            vec![
                "timeout",
                "5",
                "env",
                "A=1",
                "nice",
                "sh",
                "-c",
                "xargs -0 rm < a",
            ],
        ),
        (
            "hosts",
            vec!["curl", "-sSL", "https://bücher.example:8443/x"],
        ),
        ("51 commands", vec!["sh", "-c", &fifty]),
    ];
    let mut rows = Vec::new();
    println!("{:<22} {:>10} {:>12}", "call", "µs", "parser µs");
    for (name, argv) in &calls {
        let argv: Vec<String> = argv.iter().map(ToString::to_string).collect();
        let ours = microseconds(|| {
            black_box(of_process(&call(&argv), &ByHeart));
        });
        let text = argv
            .iter()
            .position(|word| word == "-c")
            .and_then(|at| argv.get(at + 1));
        let parser = text.map(|text| microseconds(|| parse(text)));
        let shown = parser.map_or_else(|| "-".to_owned(), |parser| format!("{parser:.1}"));
        println!("{name:<22} {ours:>10.1} {shown:>12}");
        rows.push((name, ours, parser));
    }
    report(&rows);
}

fn report(rows: &[(&&str, f64, Option<f64>)]) {
    let mut json = Vec::new();
    for (name, ours, _) in rows {
        json.push(serde_json::json!({ "name": name, "value": ours, "unit": "us" }));
    }
    let piped = rows.iter().find(|(name, ..)| **name == "git status | head");
    let ratio = piped.map_or(f64::MAX, |(_, ours, parser)| ours / parser.unwrap());
    let line = serde_json::json!({
        "bench": "effects",
        "rows": json,
        "ratios": [{
            "name": "unfold `git status | head` against its parser alone",
            "ratio": ratio, "bar": 4, "kind": "max", "ok": ratio <= 4.0,
        }],
    });
    println!("JSON {line}");
}

fn call(argv: &[String]) -> ProcessCall<'_> {
    ProcessCall {
        argv,
        cwd: Path::new("/workspace"),
        path: "/usr/bin",
        environment: &[],
        secrets: &[],
        stdin: Read::Nothing,
        home: Some("/home/ada"),
        workspace: Path::new("/workspace"),
        egress: palyra_core::EgressEnforcementMode::Strict,
        hosts: &[],
    }
}

fn parse(text: &str) {
    let options = brush_parser::ParserOptions::default();
    let parsed = brush_parser::Parser::new(text.as_bytes(), &options).parse_program();
    black_box(parsed.unwrap());
}

/// The median over rounds, each a batch.
fn microseconds(mut work: impl FnMut()) -> f64 {
    let mut times: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let start = Instant::now();
            for _ in 0..BATCH {
                work();
            }
            start.elapsed().as_secs_f64() * 1e6 / f64::from(BATCH)
        })
        .collect();
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap()
}
