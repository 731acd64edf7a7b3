# For people who work on Palyra. To use it: ./run and ./test.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help check bench demo crash attacks fuzz

# Tools and target folder, the same for every target.
READY := . scripts/prepare.sh; prepare_build; use_target_dir

help: ## this list
	@awk -F':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

check: ## formatting, clippy, docs and dependencies, warnings denied
	@$(READY); set -x; \
	cargo fmt --all --check; \
	cargo clippy --workspace --all-targets --locked -- -D warnings; \
	RUSTDOCFLAGS=-Dwarnings cargo doc --workspace --no-deps --locked
	@$(READY); if command -v cargo-deny >/dev/null; then \
		cargo deny --locked check bans licenses sources; \
	else echo "cargo-deny is not installed, so bans, licenses and sources were not checked (cargo install --locked cargo-deny)"; fi

bench: ## each promise about speed: ours, the baseline of the same run, the ratio
	@$(READY); scripts/bench.sh

demo: ## an allowed, an asked and a denied call with their records, on a throw-away daemon
	@$(READY); scripts/demo.sh

crash: ## kill -9 at 500 random points under load (./test does 25)
	@$(READY); cargo build --workspace --locked --bins; \
	PALYRA_CRASH_ROUNDS=500 cargo test --locked -p palyra-daemon crash -- --nocapture

attacks: ## every attack on the sandbox, the daemon and policy, with its control, one by one
	@$(READY); cargo build --workspace --locked --bins; \
	cargo test --locked -p palyra-sandbox --test it -- --nocapture --test-threads=1; \
	cargo test --locked -p palyra-daemon --test it -- attacks:: tool_is_no_principal --nocapture --test-threads=1; \
	cargo test --locked -p palyra-policy --test it -- attacks --nocapture --test-threads=1; \
	cargo test --locked -p palyra-effects --test it -- --nocapture --test-threads=1

fuzz: ## 10,000 random policy sets, requests and records (./test does 500)
	@$(READY); PALYRA_POLICY_CASES=10000 cargo test --locked -p palyra-policy --test it -- hostile:: slices::
