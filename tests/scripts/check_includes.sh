#!/bin/sh
# Who may include whom (docs/architecture.md), and who may name the allocator.
#
# A stage of lib/core includes the public header, the base, the records, its own headers, and the view, through which all
# reading and writing of the host's tensors goes; only the two drivers, plan and run, include other stages. The other libraries and the command see the core as a stranger does: by its public headers.
# In lib/core only base/memory.c names the functions of malloc's family.
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0

# The names in quotes that a file includes, with the folder made explicit where a file names a neighbour.
included() {
  sed -n -E 's/^[ ]*#[ ]*include[ ]*"([^"]+)".*/\1/p' "$1" | while read -r name; do
    if [ -e "$(dirname "$1")/$name" ]; then echo "$(dirname "$1")/$name" | sed 's|^lib/||'; else echo "$name"; fi
  done
}

# allow FILE PATTERN...: every name that FILE includes matches one of the patterns.
allow() {
  file=$1
  shift
  for name in $(included "$file"); do
    for pattern in "$@"; do
      case $name in *..*) ;; $pattern) continue 2 ;; esac
    done
    echo "$file must not include $name"
    bad=1
  done
}

for file in lib/core/*/*.[ch]; do
  stage=$(basename "$(dirname "$file")")
  case $stage in
    base) allow "$file" twoheads.h 'core/base/*' ;;
    plan | run) allow "$file" twoheads.h 'core/*' ;;
    view) allow "$file" twoheads.h 'core/base/*' core/records.h 'core/view/*' ;;
    *) allow "$file" twoheads.h 'core/base/*' core/records.h core/view/view.h "core/$stage/*" ;;
  esac
done
for file in lib/core/*.[ch]; do [ -e "$file" ] && allow "$file" twoheads.h 'core/base/*'; done
for file in $(find lib/layers -name '*.[ch]'); do allow "$file" twoheads.h twoheads_layers.h 'layers/*'; done
for file in $(find lib/cpu -name '*.[ch]'); do allow "$file" twoheads.h twoheads_cpu.h 'cpu/*'; done
for file in $(find lib/blis -name '*.[ch]' 2>/dev/null); do allow "$file" twoheads.h twoheads_blis.h 'blis/*'; done
for file in $(find lib/reference -name '*.[ch]' 2>/dev/null); do allow "$file" twoheads.h 'reference/*'; done
for file in $(find tools -name '*.[ch]' 2>/dev/null); do
  allow "$file" twoheads.h twoheads_blis.h twoheads_cpu.h twoheads_layers.h reference/reference.h 'tools/*'
done

if grep -n -E '^ *# *include' include/twoheads.h | grep -v -E '<(stddef|stdint)\.h>'; then
  echo "include/twoheads.h includes more than <stddef.h> and <stdint.h>"
  bad=1
fi

# Comments and strings are taken out first: a comment may say malloc.
for file in $(find lib/core -name '*.[ch]' ! -path lib/core/base/memory.c); do
  if sed -E 's~"([^"\\]|\\.)*"~~g; s~/\*([^*]|\*[^/])*\*/~~g' "$file" | awk '
    { line = $0
      if (inside) { if ((at = index(line, "*/")) == 0) next; line = substr(line, at + 2); inside = 0 }
      if ((at = index(line, "/*")) > 0) { line = substr(line, 1, at - 1); inside = 1 }
      if (line ~ /(^|[^A-Za-z0-9_])(malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|alloca)([^A-Za-z0-9_]|$)/) {
        print NR ": " line; found = 1 } }
    END { exit !found }'; then
    echo "$file names the allocator: only lib/core/base/memory.c may"
    bad=1
  fi
done

[ $bad = 0 ] && echo "the includes keep to the stages"
exit $bad
