#!/bin/sh
# The documentation: C blocks compile, `sh run` blocks run, relative links lead somewhere.
#
# In README.md and docs/*.md a ```c block is
#   - a piece of a file of that page when its first line is a comment that holds a file's name and nothing else; the
#     pieces of one name are joined in their order,
#   - a file when it has an #include line,
#   - else the inside of a function in which the names of `prelude` are declared.
# ```sh run blocks are run by sh -e in the order of the page, in a folder that holds its named files, where TWOHEADS is
# the source tree, its build in build/; each line of a ```text block that follows is part of a line they printed, but for
# lines of three dots. BUILD names the folder that the libraries and the command were built in.
# Closes with "N passed, N failed".
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
  if [ "$2" = 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $1"; fi
}

mkdir "$work/tree"
for name in include lib docs tests; do ln -s "$PWD/$name" "$work/tree/$name"; done
ln -s "$(cd "$BUILD" 2>/dev/null && pwd || echo "$BUILD")" "$work/tree/build"
export TWOHEADS="$work/tree" CC

cat >"$work/prelude" <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "twoheads.h"
#include "twoheads_blis.h"
#include "twoheads_cpu.h"
#include "twoheads_layers.h"
void snippet(twh_context *context, twh_oracle_desc kernel, twh_oracle *oracle, twh_problem problem, twh_plan *plan,
             twh_plan_info info, twh_tensor q, twh_tensor k, twh_tensor v, twh_tensor out, twh_tensor lse, twh_tensors tensors,
             twh_run_options options, twh_run_stats stats, twh_error error, twh_status status);
void snippet(twh_context *context, twh_oracle_desc kernel, twh_oracle *oracle, twh_problem problem, twh_plan *plan,
             twh_plan_info info, twh_tensor q, twh_tensor k, twh_tensor v, twh_tensor out, twh_tensor lse, twh_tensors tensors,
             twh_run_options options, twh_run_stats stats, twh_error error, twh_status status)
{
END

# Write a page's blocks into the folder `to`: named files, block_LINE.c, block_LINE.sh. Prints "c FILE" and "sh FILE" once each.
extract() {
  awk -v to="$1" -v page="$2" -v prelude="$work/prelude" '
    function finish(   name, file, i) {
      if (kind != "c") {
        file = "block_" start "." kind
        printf "%s", body >(to "/" file)
        close(to "/" file)
        print kind " " file
        return
      }
      name = first
      if (sub(/^\/\* /, "", name) && sub(/ \*\/$/, "", name) && name ~ /^[a-z0-9_]+\.c$/) file = name
      else file = "block_" start ".c"
      if (file != name && !has_include) {
        while ((getline line <prelude) > 0) print line >(to "/" file)
        close(prelude)
        body = body "}\n"
      }
      if (!(file in seen)) print "c " file
      seen[file] = 1
      printf "#line %d \"%s\"\n%s", start + 1, page, body >>(to "/" file)
      close(to "/" file)
    }
    kind != "" && /^```[ \t]*$/ { if (kind != "other") finish(); kind = ""; next }
    kind != "" {
      if (body == "") first = $0
      if ($0 ~ /^ *# *include/) has_include = 1
      body = body $0 "\n"
      next
    }
    /^```/ {
      kind = $0 == "```c" ? "c" : $0 == "```sh run" ? "sh" : $0 == "```text" ? "text" : "other"
      start = FNR
      body = first = ""
      has_include = 0
    }
    END { if (kind != "") { print "open " start } }' "$2"
}

compile() {
  (cd "$work/$1" && $CC -std=c11 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Wpedantic -Werror -Wno-unused -Wno-unknown-pragmas \
    -Wno-unused-parameter -Wno-unused-but-set-parameter -I"$TWOHEADS/include" -fsyntax-only "$2")
}

run() {
  if [ ! -e "$BUILD/libtwoheads.a" ]; then echo "nothing is built in $BUILD"; return 1; fi
  (cd "$work/$1" && PATH="$TWOHEADS/build:$PATH" sh -e "$2" >log 2>&1) || { tail -n 20 "$work/$1/log"; return 1; }
}

# The last thing run has printed this.
printed() {
  while IFS= read -r line; do
    [ "$line" = ... ] || grep -q -F -e "$line" "$work/$1/log" || { echo "not printed: $line"; return 1; }
  done <"$work/$1/$2"
}

# What the headings of a page are called in links.
anchors() {
  awk '/^```/ { code = !code } !code && /^#+ / { sub(/^#+ /, ""); print }' "$1" |
    tr '[:upper:]' '[:lower:]' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

links() {
  bad=0
  for link in $(awk '/^```/ { code = !code } !code { line = $0
      while (match(line, /\]\([^)]*\)/)) {
        print substr(line, RSTART + 2, RLENGTH - 3)
        line = substr(line, RSTART + RLENGTH)
      } }' "$1" | sed 's/ /%20/g'); do
    case $link in *://* | mailto:*) continue ;; esac
    file=$(dirname "$1")/${link%%#*}
    [ "${link%%#*}" ] || file=$1
    if [ ! -e "$file" ]; then echo "$1: no $link"; bad=1; continue; fi
    case $link in *'#'*) anchors "$file" | grep -q -x -e "${link#*#}" || { echo "$1: no heading for $link"; bad=1; } ;; esac
  done
  return $bad
}

# Pages, and in quotes their headings, that sources speak of.
mentions() {
  bad=0
  for page in $(grep -rhoE 'docs/[a-z_/-]+\.md' include lib tools tests/unit tests/scripts | sort -u); do
    [ -e "$page" ] || { echo "sources mention $page, which is not there"; bad=1; }
  done
  grep -rhoE 'docs/[a-z-]+\.md, "[^"]+"' include lib tools | sort -u >"$work/mentions"
  while IFS='"' read -r page heading rest; do
    grep -q -i -x -E "#+ $heading" "${page%, }" 2>/dev/null && continue
    echo "sources mention $page\"$heading\", which is not there"
    bad=1
  done <"$work/mentions"
  return $bad
}

for page in README.md docs/*.md; do
  folder=page_$(echo "$page" | tr / _)
  mkdir "$work/$folder"
  extract "$work/$folder" "$page" >"$work/list"
  while read -r kind file; do
    case $kind in
      c) compile "$folder" "$file" ;;
      sh) run "$folder" "$file" ;;
      text) [ ! -e "$work/$folder/log" ] || printed "$folder" "$file" ;;
      *) echo "$page:$file: the block has no end"; false ;;
    esac
    verdict "$page: $file" $?
  done <"$work/list"
done

for page in README.md CHANGELOG.md docs/*.md docs/*/*.md tests/data/*/README.md; do
  [ -e "$page" ] || continue
  links "$page"
  verdict "$page: links" $?
done
mentions
verdict "pages that sources mention" $?

echo "$passed passed, $failed failed"
[ $failed = 0 ]
