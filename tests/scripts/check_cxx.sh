#!/bin/sh
# The public headers compile as C99, C11 and C++ without a warning, alone and together, and the sources of the core, of
# twoheads-layers and of twoheads-cpu as C++.
# With clang++ where it is installed (CXX_COMPILERS names others).
set -u
cd "$(dirname "$0")/../.." || exit 1
bad=0
warnings="-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror"

compilers=${CXX_COMPILERS:-g++ clang++}
ran=0
for cxx in $compilers; do
  command -v "$cxx" >/dev/null || continue
  ran=1
  cc=$(echo "$cxx" | sed 's/clang++/clang/; s/g++/gcc/')
  for header in include/*.h; do
    name=$(basename "$header")
    for standard in c99 c11; do
      printf '#include "%s"\n#include "%s"\nint main(void) { return 0; }\n' "$name" "$name" |
        $cc -std=$standard $warnings -Iinclude -fsyntax-only -x c - || { echo "$header: $cc -std=$standard"; bad=1; }
    done
    for standard in c++11 c++17; do
      printf '#include "%s"\n#include "%s"\nint main() { return 0; }\n' "$name" "$name" |
        $cxx -std=$standard $warnings -Iinclude -fsyntax-only -x c++ - || { echo "$header: $cxx -std=$standard"; bad=1; }
    done
  done
  sources=$(sed -n -E 's/^(CORE|LAYERS|CPU)_SOURCES=//p' lib/sources.mk)
  # clang++ warns that C++ has deprecated treating .c files as C++; that is what is asked for here.
  $cxx -x c++ -std=c++17 -Wall -Iinclude -Ilib -D_POSIX_C_SOURCE=200809L -Werror -fsyntax-only $sources || bad=1
done
[ $ran = 1 ] || { echo "no C++ compiler"; bad=1; }
[ $bad = 0 ] && echo "headers, core, layers and CPU kernel compile as C and C++"
exit $bad
