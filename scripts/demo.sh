#!/usr/bin/env bash
# A walk with a throw-away daemon: an allowed, an asked and a denied call, with their records.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=scripts/prepare.sh
. scripts/prepare.sh
use_target_dir

# Whichever build is there, the newest first; else a debug build.
find_bin() {
    local newest="" profile
    for profile in release debug; do
        local candidate="$CARGO_TARGET_DIR/$profile"
        if [ -x "$candidate/palyra" ] && [ -x "$candidate/palyrad" ] && [ -x "$candidate/palyra-jail" ]; then
            if [ -z "$newest" ] || [ "$candidate/palyrad" -nt "$newest/palyrad" ]; then newest="$candidate"; fi
        fi
    done
    printf '%s' "$newest"
}

bin="$(find_bin)"
if [ -z "$bin" ]; then
    prepare_build
    cargo build --locked --bin palyra --bin palyrad --bin palyra-jail
    bin="$(find_bin)"
fi

# One stream, so that what a command says stands under it.
exec 2>&1
demo="$(mktemp -d)"
export PALYRA_HOME="$demo/home"
mkdir "$demo/project"
daemon=""
cleanup() {
    if [ -n "$daemon" ]; then
        kill "$daemon" 2>/dev/null || true
        wait "$daemon" 2>/dev/null || true
    fi
    rm -rf "$demo"
}
trap cleanup EXIT

palyra() { "$bin/palyra" "$@"; }
tell() { printf '\n\033[1m%s\033[0m\n' "$*"; }
if [ -n "${NO_COLOR:-}" ] || [ ! -t 1 ]; then tell() { printf '\n== %s\n' "$*"; }; fi

# A command as it would be typed.
show() {
    local word line='$'
    for word in "$@"; do
        case "$word" in
        '&') line+=" &" ;;
        *[!A-Za-z0-9_./:=-]* | '') line+=" '$word'" ;;
        *) line+=" $word" ;;
        esac
    done
    printf '%s\n' "$line"
}

# Shows a command, runs it, and insists on its exit code.
expect() {
    local want="$1" got=0
    shift
    show "$@"
    "$@" || got=$?
    if [ "$got" -ne "$want" ]; then
        say "the demo expected exit $want and got $got"
        exit 1
    fi
    if [ "$got" -ne 0 ]; then printf '(exit %s)\n' "$got"; fi
}

# Shows a command and leaves it running: it waits for an answer.
ask() {
    show "$@" '&'
    "$@" &
    asking=$!
}

# The id of the approval that waits; a few seconds must do.
pending() {
    local id tries
    for tries in $(seq 100); do
        id="$(palyra --quiet approvals list -n 1 | grep -o 'appr_[0-9a-z]*' || true)"
        if [ -n "$id" ]; then
            printf '%s' "$id"
            return
        fi
        sleep 0.1
    done
    say "no approval appeared after $tries looks"
    return 1
}

last_call() { palyra --quiet calls list -n 1 | grep -o 'call_[0-9a-z]*'; }

tell "A daemon with a home of its own, thrown away at the end"
"$bin/palyrad" >"$demo/palyrad.log" 2>&1 &
daemon=$!
for _ in $(seq 100); do
    if palyra status >/dev/null 2>&1; then break; fi
    sleep 0.1
done
expect 0 palyra status
cd "$demo/project"

tell "Allowed: the owner's own command runs without a question"
expect 0 palyra exec -- sh -c 'echo hello > greeting; cat greeting'
expect 0 palyra calls show "$(last_call)"

tell "Asked: an agent may read, but running a program needs a person"
expect 0 palyra agents add helper --workspace "$demo/project"
expect 0 palyra call palyra.fs.read --as agent:helper --args '{"path":"greeting"}'
ask palyra exec --as agent:helper -- cp greeting copy
id="$(pending)"
expect 0 palyra approvals show "$id"
expect 0 palyra approvals decide "$id" --decision allow
expect 0 wait "$asking"
expect 0 ls -l copy
expect 0 palyra calls show "$(last_call)"

tell "Denied: the agent cannot answer for itself, the person says no, and nothing runs"
ask palyra exec --as agent:helper -- rm -f greeting copy
id="$(pending)"
expect 3 palyra approvals decide "$id" --decision allow --as agent:helper
expect 0 palyra approvals decide "$id" --decision deny --reason 'these are still needed'
expect 121 wait "$asking"
expect 0 ls -l greeting copy
expect 0 palyra calls show "$(last_call)"

tell "The journal: every step of it"
expect 0 palyra journal tail -n 40

tell "Done"
