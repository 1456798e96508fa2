#!/bin/sh
# The rules of the house style that a line or a count can break: no tab, no blank at a line's end, no // comment, a first
# comment that says what the file is, at most 500 lines in a source and 60 in a function. Lines aim at 128 columns and
# end at 140, but for the rows of a table.
set -u
cd "$(dirname "$0")/../.." || exit 1

files=$(find include lib tools tests docs/examples -name '*.[ch]' | sort)
awk '
  function complain(text) { print FILENAME ":" FNR ": " text; bad = 1 }
  FNR == 1 { start = 0; if ($0 !~ /^\/\*/) complain("the first line does not begin the comment that says what the file is") }
  length($0) > 140 && !/^ +[{]/ { complain("longer than 140 columns") }
  /\t/ { complain("a tab") }
  / $/ { complain("a blank at the end of the line") }
  /^ *\/\// || /[;{}] *\/\/ / { complain("a // comment") }
  FNR == 501 && FILENAME !~ /^include/ { complain("more than 500 lines") }
  /^{/ { start = FNR }
  /^}/ { if (start && FNR - start > 61) complain("a function of " FNR - start - 1 " lines"); start = 0 }
  END { exit bad }' $files || exit 1
echo "$(echo "$files" | wc -l) files keep to the style"
