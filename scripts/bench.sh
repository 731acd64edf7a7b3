#!/usr/bin/env bash
# Runs every bench of the workspace and prints one table.
#
# A bench program prints, besides whatever a person wants to read, one line for each promise:
#   JSON {"name":"…","ours":1.0,"baseline":2.0,"unit":"µs","ratio":0.5,"bar":"<=3","ok":true}
# The lines are kept in $CARGO_TARGET_DIR/bench.json, one object a line. Exits 1 when a bar is
# missed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/prepare.sh
. scripts/prepare.sh
use_target_dir

results="$CARGO_TARGET_DIR/bench.json"
mkdir -p "$CARGO_TARGET_DIR"
log="$(mktemp)"
trap 'rm -f "$log"' EXIT

# The whole-corridor bench starts the real programs, which lie beside it.
cargo build --release --locked --bin palyra --bin palyrad --bin palyra-jail
broken=0
for folder in crates/*/benches; do
    [ -d "$folder" ] || continue
    package="$(basename "$(dirname "$folder")")"
    say "== $package"
    cargo bench --locked -p "$package" --bench '*' | tee -a "$log" || broken=1
done
sed -n 's/^JSON //p' "$log" >"$results"

awk '
    # The value of a key in a flat JSON object.
    function field(key,    text) {
        if (!match($0, "\"" key "\":(\"[^\"]*\"|[^,}]*)")) return ""
        text = substr($0, RSTART + length(key) + 3, RLENGTH - length(key) - 3)
        gsub(/^"|"$/, "", text)
        return text
    }
    function number(text) { return text == "" || text == "null" ? "-" : sprintf("%.4g", text) }
    function row(a, b, c, d, e, f, g) { printf "%-44s %12s %12s %-8s %8s %8s  %s\n", a, b, c, d, e, f, g }
    NR == 1 { print ""; row("promise", "ours", "baseline", "unit", "ratio", "bar", "") }
    {
        ok = field("ok") == "true"
        if (!ok) missed++
        row(field("name"), number(field("ours")), number(field("baseline")), field("unit"),
            number(field("ratio")), field("bar"), ok ? "ok" : "MISSED")
    }
    END {
        if (NR == 0) { print "no bench reported anything"; exit 1 }
        printf "\n%d promises, %d missed\n", NR, missed
        exit missed > 0
    }' "$results" || broken=1
say "kept in $results"
exit "$broken"
