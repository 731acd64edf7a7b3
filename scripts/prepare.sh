# shellcheck shell=bash
# What ./run, ./test, the Makefile and .ci/run share: what a build needs, how to get it, and
# where it is built. Sourced, never executed.

say() { printf '%s\n' "$*" >&2; }

# The folder of the checkout, whatever the caller's working directory.
palyra_root() { (cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P); }

# One line for each command: the command, and the Debian package that brings it.
# The C compiler is for the bundled SQLite; curl fetches rustup.
build_needs() {
    cat <<'NEEDS'
cc gcc
ar binutils
make make
NEEDS
    has_rust || echo "curl curl"
}

# Outside programs that tests run inside the sandbox or against the daemon, and the solver.
client_needs() {
    cat <<'NEEDS'
git git
node nodejs
python3 python3
curl curl
cvc5 cvc5
bwrap bubblewrap
dbus-run-session dbus-daemon
gnome-keyring-daemon gnome-keyring
tmux tmux
openssl openssl
python3:requests python3-requests
NEEDS
}

# Outside programs that `make bench` compares with. Optional: what is missing is not compared with.
bench_needs() {
    cat <<'NEEDS'
socat socat
tinyproxy tinyproxy
NEEDS
}

# Which series of a client a distribution's release is tested with, as apt spells it. A release has
# one series for its whole life, so a mirror that has another is not the one that was meant.
client_pins() {
    cat <<'PINS'
bookworm git 1:2.39.*
bookworm nodejs 18.*
bookworm python3 3.11.*
bookworm curl 7.88.*
bookworm cvc5 1.0.*
bookworm bubblewrap 0.8.*
bookworm dbus-daemon 1.14.*
bookworm gnome-keyring 42.*
bookworm tmux 3.3*
bookworm openssl 3.0.*
bookworm python3-requests 2.28.*
trixie git 1:2.47.*
trixie nodejs 20.*
trixie python3 3.13.*
trixie curl 8.14.*
trixie cvc5 1.1.*
trixie bubblewrap 0.11.*
trixie dbus-daemon 1.16.*
trixie gnome-keyring 48.*
trixie tmux 3.5*
trixie openssl 3.5.*
trixie python3-requests 2.32.*
noble git 1:2.43.*
noble nodejs 18.19.*
noble python3 3.12.*
noble curl 8.5.*
noble cvc5 1.1.*
noble bubblewrap 0.9.*
noble dbus-daemon 1.14.*
noble gnome-keyring 46.*
noble tmux 3.4*
noble openssl 3.0.*
noble python3-requests 2.31.*
PINS
}

release_name() {
    # shellcheck disable=SC1091 # the distribution's
    (. /etc/os-release 2>/dev/null && printf '%s\n' "${VERSION_CODENAME:-unknown}")
}

# The package with its pin; by its name alone where this release has none.
pinned() {
    local release="$1" package="$2" version
    version="$(client_pins | awk -v r="$release" -v p="$package" '$1 == r && $2 == p { print $3 }')"
    printf '%s\n' "$package${version:+=$version}"
}

# Reads "command package" lines; prints those whose command is missing. `python3:NAME` is a module of
# the distribution's Python.
missing() {
    local command package
    while read -r command package; do
        is_there "$command" || printf '%s %s\n' "$command" "$package"
    done
}

is_there() {
    case "$1" in
    python3:*) /usr/bin/python3 -c "import ${1#*:}" >/dev/null 2>&1 </dev/null ;;
    *) command -v "$1" >/dev/null 2>&1 ;;
    esac
}

# A compiler without the C library's headers is not enough.
has_c_headers() { printf '#include <stdio.h>\n' | cc -E - >/dev/null 2>&1; }

rust_version() { sed -n 's/^channel *= *"\(.*\)"$/\1/p' "$(palyra_root)/rust-toolchain.toml"; }

# Cargo through rustup fetches the pinned toolchain itself; any other must be new enough.
has_rust() {
    command -v cargo >/dev/null 2>&1 || return 1
    command -v rustup >/dev/null 2>&1 && return 0
    local have want
    have="$(cargo --version 2>/dev/null | cut -d' ' -f2)"
    want="$(rust_version)"
    [ "$(printf '%s\n%s\n' "$want" "$have" | sort -V | head -n1)" = "$want" ]
}

use_cargo_home() {
    local env="${CARGO_HOME:-$HOME/.cargo}/env"
    # shellcheck disable=SC1090 # written by rustup
    if [ -f "$env" ]; then . "$env"; fi
}

as_root() {
    if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi
}

# Installs Debian packages without a question; says the command when it cannot.
apt_install() {
    local packages=("$@")
    if ! command -v apt-get >/dev/null 2>&1; then
        say "error: apt-get is not here; install these yourself: ${packages[*]}"
        return 1
    fi
    if [ "$(id -u)" -ne 0 ] && ! command -v sudo >/dev/null 2>&1; then
        say "error: neither root nor sudo; run as root: apt-get install -y ${packages[*]}"
        return 1
    fi
    local apt=(env DEBIAN_FRONTEND=noninteractive apt-get -y --no-install-recommends)
    if ! as_root "${apt[@]}" install "${packages[@]}" >&2; then
        # Most often the package lists are missing or old.
        as_root "${apt[@]}" update >&2
        as_root "${apt[@]}" install "${packages[@]}" >&2
    fi
}

install_rust() {
    say "installing the Rust toolchain $(rust_version) with rustup"
    local script
    script="$(mktemp)"
    if ! curl --proto '=https' --tlsv1.2 -sSf --retry 3 -o "$script" https://sh.rustup.rs; then
        rm -f "$script"
        say "error: rustup could not be fetched; install Rust $(rust_version) yourself, then run this again"
        return 1
    fi
    sh "$script" -y --no-modify-path --profile minimal --default-toolchain none >&2
    rm -f "$script"
    use_cargo_home
    rustup toolchain install "$(rust_version)" --profile minimal --component clippy --component rustfmt >&2
}

# Lists what is missing for a build, then installs it. Quick when nothing is.
prepare_build() {
    use_cargo_home
    local packages=() command package
    while read -r command package; do packages+=("$package"); done < <(build_needs | missing)
    has_c_headers || packages+=(libc6-dev)
    local rust=""
    has_rust || rust="Rust $(rust_version) (rustup)"
    if [ "${#packages[@]}" -gt 0 ] || [ -n "$rust" ]; then
        say "missing, to be installed: ${packages[*]}${rust:+ $rust}"
    fi
    if [ "${#packages[@]}" -gt 0 ]; then
        if [ -n "$rust" ]; then packages+=(ca-certificates); fi
        apt_install "${packages[@]}"
    fi
    if [ -n "$rust" ]; then install_rust; fi
}

# Outside clients: installed under CI, only named otherwise.
prepare_clients() { prepare_outside client_needs tests; }

# The same for what benches compare with.
prepare_peers() { prepare_outside bench_needs "comparisons in benches"; }

prepare_outside() {
    local needs="$1" what="$2" packages=() command package
    while read -r command package; do packages+=("$package"); done < <("$needs" | missing)
    if [ "${#packages[@]}" -eq 0 ]; then return 0; fi
    if [ -n "${CI:-}" ]; then
        local release pins=()
        release="$(release_name)"
        for package in "${packages[@]}"; do pins+=("$(pinned "$release" "$package")"); done
        say "missing, to be installed: ${pins[*]}"
        apt_install "${pins[@]}"
    else
        say "$what that need ${packages[*]} will not run; to add: sudo apt-get install -y ${packages[*]}"
    fi
}

# One target folder for everything; under CI outside the clone, so that it outlives it.
use_target_dir() {
    if [ -z "${CARGO_TARGET_DIR:-}" ]; then
        if [ -n "${CI:-}" ]; then
            CARGO_TARGET_DIR="${XDG_CACHE_HOME:-$HOME/.cache}/palyra-ci/target"
        else
            CARGO_TARGET_DIR="$(palyra_root)/target"
        fi
    fi
    export CARGO_TARGET_DIR
    if [ -n "${CI:-}" ]; then export CARGO_INCREMENTAL=0; fi
}

# Clients that nobody here wrote, from PyPI and npm, each pinned in scripts/clients. They lie beside
# the build: target/clients. Installed under CI, only named otherwise.
prepare_outside_clients() {
    if outside_clients_are_current; then return 0; fi
    if [ -n "${CI:-}" ]; then
        install_outside_clients
    else
        say "tests with outside MCP clients will not run; to add: . scripts/prepare.sh; use_target_dir; install_outside_clients"
    fi
}

outside_pins() { (cd "$(palyra_root)/scripts/clients" && sha256sum ./* | sha256sum); }

outside_clients_are_current() {
    [ "$(cat "$CARGO_TARGET_DIR/clients/pins" 2>/dev/null)" = "$(outside_pins)" ]
}

install_outside_clients() {
    local folder="$CARGO_TARGET_DIR/clients" pins
    pins="$(palyra_root)/scripts/clients"
    rm -rf "$folder"
    mkdir -p "$folder"
    command -v npm >/dev/null 2>&1 || apt_install npm
    python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv
    python3 -m venv "$folder/python"
    "$folder/python/bin/python" -m pip install --quiet --disable-pip-version-check \
        --no-deps -r "$pins/python.txt" >&2
    cp "$pins/package.json" "$pins/package-lock.json" "$folder/"
    (cd "$folder" && npm ci --no-audit --no-fund --silent >&2)
    outside_pins >"$folder/pins"
}
