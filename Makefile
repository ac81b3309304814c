# Every command that a person or the continuous integration runs. `make` alone lists them.

.DEFAULT_GOAL := help
.PHONY: help setup demo test proof soak check fuzz sim net browser kernels bench man dist image static arm64 schema docs drawing clean
SHELL := /bin/bash
BIN := .venv/bin

help: ## list these targets
	@awk -F ':[^#]*## ' '/^[a-z0-9]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: ## install what is missing (packages, Rust, .venv), saying what; a second run installs nothing
	@scripts/setup.sh test

demo: ## measure what a Linux bridge adds, on this machine, in a few minutes from nothing
	@scripts/setup.sh demo
	@scripts/demo.sh

test: ## what a change can break: Rust, Python, simulated scenarios, namespaces, browser
	@scripts/setup.sh test
	@scripts/test.sh

proof: ## what takes longer: thousands of repetitions, many kills, long studies, bare machines; or some: SUITES="proof-net proof-alone"
	@scripts/setup.sh proof
	@scripts/proof.sh $(SUITES)

soak: ## the emulator and the log of TCP at load, five tests of an hour each, or SECONDS=600: memory flat, every packet accounted; then the proof page
	@scripts/setup.sh test
	status=0; SOJOURN_PROOF=$(CURDIR)/build/proof/figures SOJOURN_SUITE=soak SOJOURN_SOAK=$(or $(SECONDS),3600) \
	    $(BIN)/pytest -m proof -s tests/net/test_soak.py || status=$$?; \
	    $(BIN)/python -m scripts.write_proof || status=$$?; exit $$status

sim: ## only the simulated scenarios: known truth in, reported number out
	@scripts/setup.sh test
	$(BIN)/pytest tests/scenarios

net: ## only the tests over network namespaces: real frames, real kernel
	@scripts/setup.sh test
	$(BIN)/pytest tests/net

browser: ## only the test that opens the report in headless Chromium
	@scripts/setup.sh test
	$(BIN)/pytest tests/browser

fuzz: ## search by coverage for bytes that no reader of ours can take: SECONDS=60 for each target, or MINUTES=120 in all
	@scripts/setup.sh test
	@scripts/fuzz.sh $(if $(MINUTES),minutes $(MINUTES),$(or $(SECONDS),60))

check: ## formatting, lints, types, layers, schema, licences, lock files: nothing is run, nothing is changed
	@scripts/setup.sh test
	@scripts/check.sh

kernels: ## boot other kernels in QEMU, log TCP and configure netem in each, then measure over SSH, and start the services: downloads, ten minutes a kernel
	@scripts/setup.sh kernels
	@scripts/kernels.sh
	$(BIN)/pytest -m proof tests/net/test_guests.py tests/net/test_services.py

bench: ## side by side with ping, sockperf, trafgen and other generators, about 80 minutes
	@scripts/setup.sh bench
	$(BIN)/python -m bench

man: ## man pages and completion of bash, zsh and fish, from the programs' own help: build/man, build/completion
	@scripts/setup.sh test
	$(BIN)/python -m scripts.make_manual

dist: ## a manylinux wheel, an sdist and .debs in dist/; after make arm64 also a wheel for arm64
	@scripts/setup.sh demo
	$(BIN)/python -m scripts.make_dist

image: ## a container image of the .deb in dist/, in a file (OCI), without a daemon
	@scripts/setup.sh proof
	@ls dist/sojourn_*.deb >/dev/null 2>&1 || $(BIN)/python -m scripts.make_dist
	$(BIN)/python -m scripts.make_image

static: ## an instrument without shared libraries, for the hosts of a bed over SSH; some three minutes
	@scripts/setup.sh demo
	@scripts/static.sh

arm64: ## an instrument for arm64 hosts and for the wheel of make dist, compiled here; fetches 6 MB of packages and Rust's library
	@scripts/setup.sh demo
	@scripts/arm64.sh

schema: ## write again the JSON file that Python reads the tables of crates/record from
	@scripts/setup.sh test
	$(BIN)/python scripts/generate_schema.py

docs: ## write again the generated pages (commands, records, studies), then build the site of docs/: build/site/index.html
	@scripts/setup.sh test
	$(BIN)/python scripts/generate_reference.py
	$(BIN)/python -m scripts.make_gallery
	$(BIN)/python -m scripts.make_site

drawing: ## draw the modules with their layers again, in ARCHITECTURE.md
	@scripts/setup.sh test
	. scripts/paths.sh && $(BIN)/python scripts/draw_modules.py

clean: ## remove everything built; leaves runs and the lock files alone
	rm -rf target build dist .venv .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find python tests bench -name __pycache__ -type d -prune -exec rm -rf {} +
