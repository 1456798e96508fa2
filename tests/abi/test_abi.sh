#!/bin/sh
# The binary interface: what the headers declare, what the version scripts list and what the shared libraries export are the
# same names; public structs keep their layout; the libraries need and call nothing that they promise not to.
# BUILD names the folder in which they were built. Closes with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
CC=${CC:-cc}
passed=0
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# verdict NAME CODE: count one case; its complaints were printed before.
verdict() {
  if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok: $1"; else failed=$((failed + 1)); echo "FAILED: $1"; fi
}

# The names that follow the export macro in a header, that a version script lists, and that a shared object defines.
declared() { sed -n -E 's/^TWH_API (TWH_[A-Z_]+(\([^)]*\))? )*[^(]*[ *](twh_[a-z0-9_]+)\(.*/\3/p' "$1" | sort; }
mapped() { sed -n -E '/global:/,/local:/s/^ *(twh_[a-z0-9_]+);.*/\1/p' "$1" | sort; }
exported() { nm -D --defined-only "$1" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort; }

# same NAME FILE FILE
same() { diff -u "$2" "$3"; verdict "$1" $?; }

layout() {
  for compiler in "$CC" gcc clang; do
    command -v "${compiler%% *}" >/dev/null || continue
    # -Wpadded: no field can be slipped into a hole without moving another.
    $compiler -std=c11 -Wall -Wextra -Wpedantic -Wpadded -Werror -Iinclude -fsyntax-only tests/abi/layout*.c || return 1
  done
  # A field that the test forgot would be one that nobody watches: the fields of each struct fill it.
  awk -F '[(, )]+' '/^SIZE/ { if (sum != size) exit bad = 1; sum = 0; size = $3 } /^FIELD/ { sum += $5 }
    END { exit bad || sum != size }' tests/abi/layout*.c || { echo "tests/abi: a field is missing"; return 1; }
  # And every public struct and constant has its lines.
  for name in $(sed -n -E 's/^typedef struct (twh_[a-z_]+) \{.*/\1/p' include/*.h); do
    grep -q "^SIZE($name," tests/abi/layout*.c || { echo "tests/abi: $name is missing"; return 1; }
  done
  for name in $(sed -E 's~/\*.*~~' include/*.h | grep -oE '\bTWH_[A-Z0-9_]+ *= ' | sed 's/ .*//'); do
    grep -q "^VALUE($name," tests/abi/layout*.c || { echo "tests/abi: $name is missing"; return 1; }
  done
}

# The kernel on the CPU is made with the core.
needed() {
  readelf -d "$1" | sed -n -E 's/.*\(NEEDED\).*\[(.*)\]/\1/p' | grep -v -E '^(libtwoheads|libc|libm|libpthread|libdl|ld-linux.*)\.so' && return 1
  return 0
}

# No printing, no ending of the process, no change of its environment, signals, locale or rounding.
calls_nothing_forbidden() {
  nm -D --undefined-only "$1" | awk '{ sub(/@.*/, "", $NF); print $NF }' |
    grep -E '^(_?_?v?f?printf(_chk)?|puts|putchar|fputs|fwrite|perror|abort|_?exit|atexit|__assert_fail|setenv|putenv|signal|sigaction|setlocale|fesetround|longjmp|srand|rand)$' && return 1
  return 0
}

# Writable data of the whole process would be shared by all its users. Constant tables of pointers are in .data.rel.ro.
has_no_globals() {
  size -A "$1" | awk '$1 ~ /^\.(data|bss|tdata|tbss)(\.[^r].*)?$/ && $2 > 0 { print; bad = 1 } END { exit bad }'
}

soname() { [ "$(readelf -d "$1" | sed -n -E 's/.*\(SONAME\).*\[(.*)\]/\1/p')" = "$2" ]; }

layout
verdict "layout of public structs" $?

major=$(sed -n 's/^.define TWH_VERSION_MAJOR //p' include/twoheads.h)
for library in twoheads twoheads-layers twoheads-cpu twoheads-blis; do
  so=$BUILD/lib$library.so
  [ -e "$so" ] || { [ $library = twoheads-blis ] && continue; }
  header=include/$(echo $library | tr - _).h
  declared "$header" >"$work/declared"
  mapped lib/$library.map >"$work/mapped"
  exported "$so" >"$work/exported"
  [ -s "$work/declared" ]
  verdict "$library: the header declares functions" $?
  same "$library: header and version script" "$work/declared" "$work/mapped"
  same "$library: version script and exports" "$work/mapped" "$work/exported"
  soname "$so" lib$library.so.$major
  verdict "$library: SONAME" $?
  calls_nothing_forbidden "$so"
  verdict "$library: prints, ends and changes nothing" $?
done

for library in twoheads twoheads-layers twoheads-cpu; do
  needed "$BUILD/lib$library.so"
  verdict "$library: needs libc, libm, pthreads only" $?
  has_no_globals "$BUILD/lib$library.a"
  verdict "$library: no writable globals" $?
done

# The command uses the public interface only: it links against what the shared libraries export.
blis=
[ -e "$BUILD/libtwoheads-blis.so" ] && blis=-ltwoheads-blis
$CC -pthread -o "$work/twoheads" "$BUILD/static/tools/main.o" "$BUILD/libtwoheads-tools.a" "$BUILD/libtwoheads-reference.a" -L"$BUILD" $blis \
  -ltwoheads-layers -ltwoheads-cpu -ltwoheads -Wl,-rpath-link,"$BUILD" -lm
verdict "the command links against the shared libraries" $?

echo "$passed passed, $failed failed"
[ $failed = 0 ]
