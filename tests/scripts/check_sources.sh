#!/bin/sh
# Every .c file that is built is in lib/sources.mk, and everything in lib/sources.mk is there.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0

value() { sed -n "s/^$1=//p" lib/sources.mk; }

listed=$(mktemp)
there=$(mktemp)
trap 'rm -f "$listed" "$there"' EXIT
{
  for key in CORE_SOURCES LAYERS_SOURCES CPU_SOURCES BLIS_SOURCES REFERENCE_SOURCES TOOL_SOURCES TOOL_MAIN TEST_SOURCES EXAMPLE_SOURCES BENCH_SOURCES; do
    for file in $(value $key); do echo "$file"; done
  done
  for name in $(value UNIT_TESTS) $(value BLIS_UNIT_TESTS); do echo "tests/unit/$name.c"; done
  for name in $(value EXAMPLES) $(value BLIS_EXAMPLES) $(value BLIS_PROGRAMS) $(value PLUGINS); do echo "docs/examples/$name.c"; done
  for name in $(value BENCHES); do echo "tests/bench/$name.c"; done
} | sort >"$listed"
find lib tools tests/unit tests/bench docs/examples -name '*.c' 2>/dev/null | sort >"$there"

for file in $(uniq -d "$listed"); do echo "listed twice in lib/sources.mk: $file"; bad=1; done
for file in $(comm -13 "$listed" "$there"); do echo "not in lib/sources.mk: $file"; bad=1; done
for file in $(comm -23 "$listed" "$there" | uniq); do echo "in lib/sources.mk, but not there: $file"; bad=1; done
if grep -n '\\$' lib/sources.mk; then echo "lib/sources.mk: meson cuts a line at a backslash"; bad=1; fi
[ $bad = 0 ] && echo "every source is listed once"
exit $bad
