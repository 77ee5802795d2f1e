# The two that matter: `make demo` and `make test`. Both install what they need.
.DEFAULT_GOAL := help
.PHONY: help demo test test-long test-aarch64 coverage cuts fuzz bench bench-answers bench-answers-guest bench-applications bench-dedup bench-dedup-peers bench-journal bench-journal-guest bench-lab bench-layouts bench-packing bench-scrape soak docs fmt lint build clean deb rpm static container python

# Where rustup puts cargo, also for who has not logged in again since.
export PATH := $(PATH):/usr/sbin:/sbin:$(HOME)/.cargo/bin

# Where cargo puts the binary, also when CARGO_TARGET_DIR says elsewhere.
TARGET = $(or $(CARGO_TARGET_DIR),target)
# How long `make test-long` looks for crashes with fresh seeds.
VELLUM_SECONDS ?= 360

help: ## this list
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | awk -F'\t' '{ printf "make %-18s %s\n", $$1, $$2 }'

build: ## the `vellum` command, in target/release
	@scripts/setup.sh build
	cargo build --release --locked -p vellum-cli

deb: ## a Debian package, in target/package
	@scripts/setup.sh build package
	cargo build --release --locked -p vellum-cli
	packaging/deb.sh $(TARGET)/release/vellum $(TARGET)/package

rpm: ## an RPM package, in target/package
	@scripts/setup.sh build rpm
	cargo build --release --locked -p vellum-cli
	packaging/rpm.sh $(TARGET)/release/vellum $(TARGET)/package

static: ## a `vellum` that runs on any Linux of this architecture, in target/static
	@scripts/setup.sh build static
	scripts/static.sh
	STATIC=$(TARGET)/static/vellum tests/static.sh

container: ## a container image with nothing but that in it, in the storage of buildah and in target/package
	@scripts/setup.sh build static container
	scripts/static.sh
	packaging/container.sh $(TARGET)/static/vellum $(TARGET)/package
	STATIC=$(TARGET)/static/vellum tests/container.sh

python: ## the lab as a Python package: builds the wheel, in target/wheels, and tries it in a fresh environment
	@scripts/setup.sh python
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(abspath $(TARGET))/release/vellum scripts/python.sh

demo: ## a real ext4 on a volume of ours, beside the same on a plain file (under 3 minutes)
	@scripts/setup.sh demo
	@cargo build --release --locked -p vellum-cli
	@$(TARGET)/release/vellum demo

test: ## the fast tests: every crate, fixed seeds, the repository's own rules
	@scripts/setup.sh test
	cargo test --locked --workspace --no-fail-fast

test-long: ## the tests in full, crashes from fresh seeds, kill -9 under a real ext4, packages, the static program, the image, the demo
	@scripts/setup.sh test
	VELLUM_LONG=1 cargo test --locked -p vellum-lab --test run --test papers --test compare --test settled
	VELLUM_LONG=1 cargo test --locked -p vellum-cli --test full_ext4 --test properties --test cuts
	VELLUM_LONG=1 cargo test --locked -p vellum-device --test commits --test commit_order --test clones --test lying_drive \
		--test pledged_history --test snapshots --test stream
	VELLUM_LONG=1 cargo test --locked -p vellum-ext4 --test dynamic
	VELLUM_LONG=1 cargo test --locked -p vellum-core --test crash --test crash_tables --test damage
	VELLUM_SECONDS=$(VELLUM_SECONDS) cargo test --locked --release -p vellum-core --test crash --test crash_tables -- --nocapture --test-threads=2
	@set -e; for test in tests/*.sh; do if [ -f "$$test" ]; then echo "== $$test"; "$$test"; fi; done
	$(MAKE) --no-print-directory container
	STATIC=$(TARGET)/static/vellum tests/static.sh
	$(MAKE) --no-print-directory demo

test-aarch64: ## the core's tests on another processor, by qemu-user, and the digests of crashes beside this one's; needs root
	@scripts/aarch64.sh

soak: VELLUM_SECONDS = 3600
soak: ## simulated crashes, faults, commit orders and power cuts from fresh seeds, an hour or VELLUM_SECONDS=N a test, the core's with a digest for each seed
	VELLUM_SECONDS=$(VELLUM_SECONDS) VELLUM_DIGESTS=1 cargo test --locked --release -p vellum-core --test crash --test crash_tables -- --nocapture --test-threads=2 crashes faults
	VELLUM_SOAK=$(VELLUM_SECONDS) cargo test --locked --release -p vellum-device --test commit_order --test crash -- --nocapture a_committed_transaction_is_whole_in_any_order_of_arrival a_power_cut_keeps_a_prefix

coverage: ## what of the core no simulated life reaches, against xtask/unreached.toml; SHRINK=1 takes out of it what is reached now
	@scripts/setup.sh build
	@scripts/coverage.sh

cuts: SHELL = /bin/bash
cuts: CUTS = 1000
cuts: CUTS_EACH = 40
cuts: ## power cuts under file systems and applications, CUTS=N of them; SEED=N FS=xfs,btrfs PROPERTIES=usual,all APPS=sqlite KEEP=DIR; needs root
	@scripts/setup.sh test cuts
	@mkdir -p $(TARGET)
	@# Among mounts of its own: who makes a namespace of mounts meanwhile would keep ours, and their devices.
	set -o pipefail; CUTS=$(CUTS) CUTS_EACH=$(CUTS_EACH) SEED=$(SEED) FS=$(FS) PROPERTIES=$(PROPERTIES) APPS=$(APPS) KEEP=$(KEEP) $(shell unshare -m true 2>/dev/null && echo unshare -m) cargo test --locked -p vellum-cli --test cuts nothing -- --nocapture 2>&1 | tee -a $(TARGET)/cuts.log

fuzz: ## all fuzz targets, guided by coverage, a minute each or VELLUM_SECONDS=N; TARGETS='a b' for some
	@scripts/setup.sh build
	@scripts/fuzz.sh

bench: ## the table against nbdkit and the plain loop chain; rewrites docs/benchmarks/device.md
	@scripts/setup.sh bench
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/bench.sh

bench-answers: ## how long a write takes to be answered with everything on, beside nothing on, by kind of block
	@scripts/setup.sh bench
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/answers.sh

bench-answers-guest: ## the same over ublk, in a guest
	@scripts/setup.sh guest
	@scripts/setup.sh bench
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/answers_guest.sh

bench-applications: ## fifteen real applications, a volume as it comes beside ext4, XFS and btrfs; rewrites docs/benchmarks/applications.md
	@scripts/setup.sh applications
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/applications.sh

bench-journal: ## write-once journaling on a real ext4, against plain storage; rewrites docs/benchmarks/journal.md
	@scripts/setup.sh journal
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/journal.sh

bench-journal-guest: ## the same over a kernel's own block drivers, in a guest: remaps and bytes; rewrites docs/benchmarks/journal-guest.md
	@scripts/setup.sh journal guest
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/journal_guest.sh

bench-layouts: ## deduplication on each layout under a real ext4, against plain storage; rewrites docs/benchmarks/layouts-device.md
	@scripts/setup.sh layouts
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum LAYOUTS=1 benches/journal.sh

bench-packing: ## blocks in parts of pages on a real ext4, against plain storage; rewrites docs/benchmarks/packing.md
	@scripts/setup.sh journal
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum PACKING=1 benches/journal.sh

bench-dedup: ## in-line deduplication on and off: unique data, duplicates; rewrites docs/benchmarks/dedup-device.md
	@scripts/setup.sh bench
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/dedup.sh

bench-dedup-peers: ## copies of one file, and none, beside zfs-fuse and dm-vdo; rewrites docs/benchmarks/dedup-peers.md
	@scripts/setup.sh bench guest
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/dedup_peers.sh

bench-lab: ## the lab's own speed and memory: requests a CPU second, bytes a simulated page
	@scripts/setup.sh test
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/lab.sh

bench-scrape: ## an hour of scrapes by a Prometheus of a volume under load, or FOR=N seconds: gaps, and what they cost
	@scripts/setup.sh scrape
	@cargo build --release --locked -p vellum-cli
	@VELLUM=$(TARGET)/release/vellum benches/scrape.sh

docs: ## the guide's reference from the code, and the API documentation, warnings denied
	UPDATE=1 cargo test --locked -p vellum-cli --test reference
	RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps

fmt: ## format the source
	cargo fmt --all

lint: ## format check, clippy, the API documentation and the repository's own rules
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS=-Dwarnings cargo doc --locked --workspace --no-deps
	cargo test --locked -p xtask

clean: ## remove what was built
	cargo clean
