# The commands of a day. Each does its own set-up: on a fresh Debian with a Rust toolchain, any of them works.

# The toolchain may not be on the PATH of a shell that was open before it was installed.
export PATH := $(PATH):$(HOME)/.cargo/bin
SHELL := /bin/bash

.PHONY: help setup build sdk-c wheel demo test lint fmt bench clean

help:
	@echo "make demo    build, then show a volume being made, mounted and used"
	@echo "make build   the program: target/release/sluice"
	@echo "make sdk-c   the library for C below PREFIX=/usr/local; docs/c.md"
	@echo "make wheel   the Python package: target/wheels; docs/python.md"
	@echo "make test    everything that must hold; STAGES='pjdfstest fsx' runs some (scripts/test --list)"
	@echo "make lint    formatting, clippy, dependency policy, documentation"
	@echo "make fmt     format the sources"
	@echo "make bench   measure; JUICEFS=/path/to/juicefs measures it beside and prints the ratios"
	@echo "make clean   remove what was built"

setup:
	@scripts/setup

build: setup
	cargo build --locked --release -p sluice-cli

PREFIX ?= /usr/local

sdk-c: setup
	@scripts/sdk-c $(PREFIX)

wheel: setup
	cargo build --locked --release -p sluice-python
	@scripts/wheel

demo: setup
	cargo build --locked --profile demo -p sluice-cli
	@scripts/demo

test: setup
	@scripts/test $(STAGES)

lint: setup
	@scripts/test format clippy deny docs

fmt:
	cargo fmt --all

bench: build
	@scripts/bench $(ROWS)

clean:
	cargo clean
