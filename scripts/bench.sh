#!/usr/bin/env bash
# Runs every bench of the workspace and prints one table of what was promised.
#
# A bench program prints, besides whatever a person wants to read, one line for programs:
#   JSON {"bench":"…","rows":[{"name":"…","value":1.0,"unit":"…"}],
#         "ratios":[{"name":"…","ratio":0.5,"bar":3,"kind":"max","ok":true}]}
# The lines are kept in bench.json in the target folder, one object a line. Exits 1 when a bar is
# missed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/prepare.sh
. scripts/prepare.sh
use_target_dir
prepare_peers

results="$CARGO_TARGET_DIR/bench.json"
mkdir -p "$CARGO_TARGET_DIR"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

# Benches start the real programs, which lie beside them.
cargo build --release --locked --bin palyra --bin palyrad --bin palyra-jail
broken=0
for folder in crates/*/benches; do
    [ -d "$folder" ] || continue
    package="$(basename "$(dirname "$folder")")"
    say "== $package"
    features=()
    [ "$package" = palyra-journal ] && features=(--features unsealed)
    cargo bench --locked -p "$package" "${features[@]}" --bench '*' | tee -a "$log" || broken=1
done
sed -n 's/^JSON //p' "$log" >"$results"

# Looks at the innermost objects of each line: those with a ratio are promises.
awk '
    function field(object, key,    text) {
        if (!match(object, "\"" key "\": *(\"[^\"]*\"|[^,}]*)")) return ""
        text = substr(object, RSTART, RLENGTH)
        sub("\"" key "\": *", "", text)
        gsub(/^"|"$/, "", text)
        return text
    }
    function row(a, b, c, d, e) { printf "%-14s %-48s %10s %10s  %s\n", a, b, c, d, e }
    BEGIN { print ""; row("bench", "promise", "ratio", "bar", "") }
    {
        bench = field($0, "bench")
        rest = $0
        while (match(rest, /\{[^{}]*\}/)) {
            object = substr(rest, RSTART, RLENGTH)
            rest = substr(rest, RSTART + RLENGTH)
            if (object !~ /"ok":/) continue
            promises++
            kept = field(object, "ok") == "true"
            if (!kept) missed++
            ratio = field(object, "ratio")
            if (ratio ~ /^[-+.0-9eE]+$/) ratio = sprintf("%.2f", ratio)
            bar = field(object, "kind") " " field(object, "bar")
            row(bench, field(object, "name"), ratio, bar, kept ? "ok" : "MISSED")
        }
    }
    END {
        if (promises == 0) { print "no bench reported a promise"; exit 1 }
        printf "\n%d promises, %d missed\n", promises, missed
        exit missed > 0
    }' "$results" || broken=1
say "kept in $results"
exit "$broken"
