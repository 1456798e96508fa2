#!/bin/sh
# Make and meson install the same thing: files, pkg-config files, SONAMEs, exported names; and a stranger's program
# compiles, links (shared and static) and runs with either. Closes with "N passed, N failed".
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
CC=${CC:-cc}
PKG_CONFIG=${PKG_CONFIG:-pkg-config}
unset MAKEFLAGS MFLAGS MAKELEVEL DESTDIR
passed=0
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# Both install for the same prefix, each into a stage of its own, so that what they write can be compared byte by byte.
prefix=$work/prefix

verdict() {
  if [ "$2" = 0 ]; then passed=$((passed + 1)); echo "ok: $1"; else failed=$((failed + 1)); echo "FAILED: $1"; fi
}

quietly() { "$@" >"$work/log" 2>&1 || { tail -n 40 "$work/log"; return 1; }; }

files() { (cd "$1" && find . ! -type d | sort); }
soname() { readelf -d "$1" | sed -n -E 's/.*\((SONAME|NEEDED)\).*\[(.*)\]/\1 \2/p' | grep twoheads | sort; }
exports() { nm -D --defined-only "$1" | awk '{ print $3 }' | sort; }

# compare NAME COMMAND: the output of COMMAND for the two installations is the same and not empty.
compare() {
  name=$1
  shift
  for how in make meson; do (cd "$work/$how" && "$@") >"$work/$how.txt" 2>&1; done
  [ -s "$work/make.txt" ] && diff -u "$work/make.txt" "$work/meson.txt"
  verdict "$name" $?
}

# consumer HOW KIND: build and run the program with the installation moved to its prefix.
consumer() {
  flags=
  packages="twoheads-layers twoheads-cpu"
  if [ -n "$blis" ]; then flags=-DWITH_BLIS packages="$packages twoheads-blis"; fi
  rm -rf "$prefix"
  cp -R "$work/$1$prefix" "$prefix" || return 1
  static=
  if [ "$2" = static ]; then rm -f "$prefix"/lib/*.so*; static=--static; fi
  export PKG_CONFIG_PATH="$prefix/lib/pkgconfig"
  $CC -std=c11 -Wall -Wextra -Werror $flags $($PKG_CONFIG --cflags $packages) tests/install/consumer.c -o "$work/consumer" \
    $($PKG_CONFIG $static --libs $packages) || return 1
  LD_LIBRARY_PATH=$prefix/lib "$work/consumer" || return 1
  if [ "$2" = shared ]; then readelf -d "$work/consumer" | grep -q 'NEEDED.*libtwoheads' || { echo "linked statically"; return 1; }; fi
}

quietly make BUILD="$BUILD" CC="$CC" PREFIX="$prefix" DESTDIR="$work/make" install
verdict "make install" $?
case ${BLIS:-auto} in no) option=-Dblis=disabled ;; *) option= ;; esac
quietly env CC="$CC" meson setup "$work/build" --prefix="$prefix" --libdir=lib -Dtests=disabled $option &&
  quietly meson compile -C "$work/build" && DESTDIR="$work/meson" quietly meson install -C "$work/build"
verdict "meson install" $?

compare "the same files" files .
lib=./$prefix/lib
blis=
[ -e "$work/make$prefix/lib/libtwoheads-blis.so" ] && blis=twoheads-blis
for library in twoheads twoheads-layers twoheads-cpu $blis; do
  compare "$library: the same pkg-config file" cat "$lib/pkgconfig/$library.pc"
  compare "$library: the same SONAME and needs" soname "$lib/lib$library.so"
  compare "$library: the same exports" exports "$lib/lib$library.so"
done
for how in make meson; do
  for kind in shared static; do
    consumer $how $kind
    verdict "a program built on what $how installed, $kind" $?
  done
done

# And as a meson subproject, built with the host's own program.
mkdir -p "$work/host/subprojects"
ln -s "$PWD" "$work/host/subprojects/twoheads"
cp tests/install/consumer.c "$work/host/host.c"
cat >"$work/host/meson.build" <<'END'
project('host', 'c')
test('host', executable('host', 'host.c', dependencies: [dependency('twoheads'), dependency('twoheads-layers'), dependency('twoheads-cpu')]))
END
quietly env CC="$CC" meson setup "$work/host/build" "$work/host" --default-library=static --force-fallback-for=twoheads \
  ${option:+-Dtwoheads:blis=disabled} &&
  quietly meson test -C "$work/host/build"
verdict "a program with twoheads as its meson subproject" $?

echo "$passed passed, $failed failed"
[ $failed = 0 ]
