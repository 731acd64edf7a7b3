# For people who work on Palyra. To use it: ./run and ./test.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help check bench bench-long demo crash attacks fuzz

# Tools and target folder, the same for every target.
READY := . scripts/prepare.sh; prepare_build; use_target_dir

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

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

bench-long: ## memory and proofs of a journal with ten million entries
	@$(READY); PALYRA_LIFE_ENTRIES=10000000 cargo bench --locked -p palyra-journal --bench life

demo: ## an allowed, an asked and a denied call with their records, on a throw-away daemon
	@$(READY); scripts/demo.sh

crash: ## kill -9 at 500 points under load (./test does 25), the power cut at 2,000 (./test does 36)
	@$(READY); cargo build --workspace --locked --bins; \
	PALYRA_CRASH_ROUNDS=500 cargo test --locked -p palyra-daemon crash -- --nocapture; \
	PALYRA_POWER_CUTS=700 cargo test --locked -p palyra-journal --lib power_cut -- --nocapture

attacks: ## every attack on the sandbox, the daemon and policy, with its control, one by one
	@$(READY); cargo build --workspace --locked --bins; \
	cargo test --locked -p palyra-sandbox --test it -- --nocapture --test-threads=1; \
	cargo test --locked -p palyra-daemon --test it -- attacks:: tool_is_no_principal --nocapture --test-threads=1; \
	cargo test --locked -p palyra-egress --test it -- --nocapture --test-threads=1; \
	cargo test --locked -p palyra-policy --test it -- attacks --nocapture --test-threads=1; \
	cargo test --locked -p palyra-effects --test it -- --nocapture --test-threads=1

fuzz: ## 10,000 random policy sets, 50,000 spoiled journals, 500,000 messages (./test does 500, 300, 500), every bit of a vault
	@$(READY); PALYRA_FUZZ_CASES=50000 cargo test --locked -p palyra-journal --test it -- fuzzing::; \
	PALYRA_POLICY_CASES=10000 cargo test --locked -p palyra-policy --test it -- hostile:: slices::; \
	PALYRA_EGRESS_CASES=500000 cargo test --release --locked -p palyra-egress --lib -- fuzzing::; \
	PALYRA_VAULT_SPOILS=all cargo test --release --locked -p palyra-vault --test it -- spoiled::
