# Install, uninstall and package. Builds and tests are cargo's; nothing here is needed for them.
#
#   make && sudo make install      into PREFIX (/usr/local), below DESTDIR if that is set; `make uninstall` undoes it
#   make deb                       target/debian/starhaul_VERSION_ARCH.deb, and a package with its debug information
#   make tarball                   target/dist-files/starhaul-TARGET.tar.gz with SHA256SUMS
#
# PROFILE=dev packages what the tests have built. TARGET=aarch64-unknown-linux-gnu builds for another machine;
# RUNNABLE=FILE is then a build for this one, which writes manual pages and completions. It needs that target of Rust (`rustup target
# add`) and, for arm64, Debian's gcc-aarch64-linux-gnu and libc6-dev-arm64-cross.

PREFIX ?= /usr/local
DESTDIR ?=
PROFILE ?= dist
TARGET ?=
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER ?= aarch64-linux-gnu-gcc
CARGO ?= cargo
INSTALL ?= install
# What cargo-deb compresses with: --fast for a trial.
DEB_OPTIONS ?=

BINDIR = $(PREFIX)/bin
MANDIR = $(PREFIX)/share/man
UNITDIR = $(PREFIX)/lib/systemd/system
BASHDIR = $(PREFIX)/share/bash-completion/completions
ZSHDIR = $(PREFIX)/share/zsh/site-functions
FISHDIR = $(PREFIX)/share/fish/vendor_completions.d
EXAMPLES = $(PREFIX)/share/doc/starhaul/examples

TARGET_DIR = $(or $(CARGO_TARGET_DIR),target)
# Cargo's folder of the profile dev has another name.
PROFILE_DIR = $(if $(filter dev,$(PROFILE)),debug,$(PROFILE))
BUILT = $(TARGET_DIR)/$(if $(TARGET),$(TARGET)/)$(PROFILE_DIR)/starhaul
RUNNABLE ?= $(BUILT)
FILES = target/package
UNITS = starhaul-gateway.service starhaul-router.service starhaul-relay.service starhaul-dtn.service
# In a package, debug information is a package of its own instead of a file beside the program.
FOR_TARGET = $(if $(TARGET),--target $(TARGET))
WITH_DEBUG = CARGO_PROFILE_DIST_SPLIT_DEBUGINFO=off

.PHONY: all package-files install uninstall deb deb-files tarball clean-package-files

all:
	$(CARGO) build --locked --profile $(PROFILE) -p starhaul $(FOR_TARGET)
	$(MAKE) package-files

# Manual pages, completions and samples, written by the program; and where that is, which `sudo make install` could not tell from
# the environment that it has.
package-files: clean-package-files
	mkdir -p $(FILES)/completions $(FILES)/examples
	ln -s $(abspath $(BUILT)) $(FILES)/starhaul
	$(RUNNABLE) manpages $(FILES)/man
	$(RUNNABLE) completions bash >$(FILES)/completions/starhaul.bash
	$(RUNNABLE) completions zsh >$(FILES)/completions/_starhaul
	$(RUNNABLE) completions fish >$(FILES)/completions/starhaul.fish
	$(RUNNABLE) gateway sample >$(FILES)/examples/gateway.toml
	$(RUNNABLE) dtn sample >$(FILES)/examples/dtn.toml
	$(RUNNABLE) relay --sample >$(FILES)/examples/relay.toml

clean-package-files:
	rm -rf $(FILES)

install:
	test -d $(FILES)/man || { echo "first build it: make" >&2; exit 1; }
	$(INSTALL) -d $(addprefix $(DESTDIR),$(BINDIR) $(MANDIR)/man1 $(MANDIR)/man5 $(UNITDIR) $(BASHDIR) $(ZSHDIR) $(FISHDIR) $(EXAMPLES))
	$(INSTALL) -m 755 -s $(FILES)/starhaul $(DESTDIR)$(BINDIR)/starhaul
	$(INSTALL) -m 644 $(FILES)/man/*.1 $(DESTDIR)$(MANDIR)/man1
	$(INSTALL) -m 644 $(FILES)/man/*.5 $(DESTDIR)$(MANDIR)/man5
	$(INSTALL) -m 644 $(FILES)/completions/starhaul.bash $(DESTDIR)$(BASHDIR)/starhaul
	$(INSTALL) -m 644 $(FILES)/completions/_starhaul $(DESTDIR)$(ZSHDIR)
	$(INSTALL) -m 644 $(FILES)/completions/starhaul.fish $(DESTDIR)$(FISHDIR)
	$(INSTALL) -m 644 $(FILES)/examples/*.toml $(DESTDIR)$(EXAMPLES)
	for unit in $(UNITS); do \
	    sed 's,/usr/bin/starhaul,$(BINDIR)/starhaul,' contrib/systemd/$$unit >$(DESTDIR)$(UNITDIR)/$$unit && \
	    chmod 644 $(DESTDIR)$(UNITDIR)/$$unit || exit 1; \
	done
	[ -d $(DESTDIR)/etc/starhaul ] || $(INSTALL) -d -m 755 $(DESTDIR)/etc/starhaul
	[ -d $(DESTDIR)/etc/starhaul/keys ] || $(INSTALL) -d -m 700 $(DESTDIR)/etc/starhaul/keys

# Configurations and keys stay, as with removal of a package.
uninstall:
	rm -f $(DESTDIR)$(BINDIR)/starhaul
	rm -f $(DESTDIR)$(MANDIR)/man1/starhaul.1 $(DESTDIR)$(MANDIR)/man1/starhaul-*.1 $(DESTDIR)$(MANDIR)/man5/starhaul-*.5
	rm -f $(DESTDIR)$(BASHDIR)/starhaul $(DESTDIR)$(ZSHDIR)/_starhaul $(DESTDIR)$(FISHDIR)/starhaul.fish
	rm -f $(addprefix $(DESTDIR)$(UNITDIR)/,$(UNITS))
	rm -rf $(DESTDIR)$(PREFIX)/share/doc/starhaul
	rmdir $(DESTDIR)/etc/starhaul/keys $(DESTDIR)/etc/starhaul 2>/dev/null || true

deb:
	$(WITH_DEBUG) $(CARGO) build --locked --profile $(PROFILE) -p starhaul $(FOR_TARGET)
	$(MAKE) package-files
	$(WITH_DEBUG) $(MAKE) deb-files

# From what is built already.
deb-files:
	$(CARGO) deb --locked --no-build --profile $(PROFILE) -p starhaul --dbgsym $(FOR_TARGET) $(DEB_OPTIONS)

# A static program: its target is STATIC, which `rustup target add` adds; its C code needs musl's compiler (Debian's musl-tools).
STATIC ?= $(shell uname -m)-unknown-linux-musl
STAGE = target/dist-files/starhaul-$(STATIC)

tarball:
	$(CARGO) build --locked --profile $(PROFILE) -p starhaul --target $(STATIC)
	$(MAKE) package-files TARGET=$(STATIC)
	rm -rf $(STAGE)
	$(MAKE) install TARGET=$(STATIC) DESTDIR=$(STAGE) PREFIX=/usr/local
	tar --sort=name --owner=0 --group=0 --numeric-owner -C $(dir $(STAGE)) -czf $(STAGE).tar.gz $(notdir $(STAGE))
	cd $(dir $(STAGE)) && sha256sum *.tar.gz >SHA256SUMS
