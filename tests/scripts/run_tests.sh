#!/bin/sh
# Run test programs and check scripts one after the other, and close with the line "N passed, N failed".
#
# Each argument is one command. A CMocka program counts with its tests, as its closing lines say; a script that ends with
# "N passed, N failed" with those numbers; any other script as one. A program that dies, or runs no test, is a failure.
# What a program prints is shown in full when something in it failed (or with VERBOSE=1), else only its closing lines.
set -u

log=$(mktemp)
trap 'rm -f "$log"' EXIT
passed=0
failed=0
failures=

number() { sed -n -E "$1" "$log" | tail -n 1; }

for command in "$@"; do
  name=$(echo "$command" | sed -E 's|^[^ ]*/||; s| .*||')
  echo "== $name"
  sh -c "exec $command" >"$log" 2>&1
  code=$?
  if grep -q '^\[==========\] Running' "$log"; then
    good=$(number 's/^\[  PASSED  \] ([0-9]+) test.*/\1/p')
    bad=$(number 's/^\[  FAILED  \] ([0-9]+) test.*/\1/p')
  else
    good=$(number 's/^([0-9]+) passed, ([0-9]+) failed.*/\1/p')
    bad=$(number 's/^([0-9]+) passed, ([0-9]+) failed.*/\2/p')
    if [ -z "$good" ]; then good=$((code == 0)); fi
  fi
  good=${good:-0}
  bad=${bad:-0}
  if [ "$code" != 0 ] && [ "$bad" = 0 ]; then bad=1; fi
  if [ "$good" = 0 ] && [ "$bad" = 0 ]; then
    echo "no test ran" >>"$log"
    bad=1
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
  if [ "$bad" != 0 ]; then
    failures="$failures $name"
    cat "$log"
    echo "-- $name FAILED, exit code $code"
  elif [ -n "${VERBOSE:-}" ]; then
    cat "$log"
  else
    grep -E '^\[==========\] [0-9]+ test|^\[  PASSED  \]|^\[  SKIPPED \]' "$log" || tail -n 1 "$log"
  fi
done

echo
if [ -n "$failures" ]; then echo "failed:$failures"; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
