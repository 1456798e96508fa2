#!/bin/sh
# Names in lib/: a static function begins with the name of its file or stage and is the only one of that name, so that the
# sources can be joined into one file; what has linkage across files begins with twh_ (public) or twh__ (internal).
# BUILD names the folder in which the archives were built.
set -u
cd "$(dirname "$0")/../.." || exit 1
BUILD=${BUILD:-build}
bad=0
all=$(mktemp)
trap 'rm -f "$all"' EXIT

# rows_lanes.h and the lanes_*.h are included once for each width of register: their names are made there, by a macro.
for file in $(find lib -name '*.c'); do
  stem=$(basename "$file" .c)
  stage=$(basename "$(dirname "$file")")
  for name in $(sed -n -E 's/^static ([A-Za-z_][A-Za-z0-9_ ]*[ *]+)+([a-z_][a-z0-9_]*)\(.*/\2/p' "$file" | sort -u); do
    echo "$name $file" >>"$all"
    case $name in
      "$stem"_* | "$stage"_*) ;;
      *) echo "$file: static $name does not begin with ${stem}_ or ${stage}_"; bad=1 ;;
    esac
  done
done
for name in $(cut -d ' ' -f 1 "$all" | sort | uniq -d); do
  echo "static $name is defined in more than one file:" $(sed -n "s/^$name //p" "$all")
  bad=1
done

for archive in "$BUILD/libtwoheads.a" "$BUILD/libtwoheads-layers.a" "$BUILD/libtwoheads-cpu.a" "$BUILD/libtwoheads-blis.a" "$BUILD/libtwoheads-reference.a"; do
  [ -e "$archive" ] || continue
  for name in $(nm -g --defined-only "$archive" | awk 'NF == 3 { print $3 }' | grep -v '^twh_'); do
    echo "$archive: $name does not begin with twh_"
    bad=1
  done
done
[ $bad = 0 ] && echo "$(wc -l <"$all") static names, each in its file"
exit $bad
