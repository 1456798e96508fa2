#!/bin/sh
# Run test programs and check scripts, JOBS at a time, and close with the line "N passed, N failed".
#
# Each argument is one command. A CMocka program counts with its tests, as its closing lines say; a script that ends with
# "N passed, N failed" with those numbers; any other script as one. A program that dies, or runs no test, is a failure.
# What a program prints is shown in full when something in it failed (or with VERBOSE=1), else only its closing lines.
set -u

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT TERM
passed=0
failed=0
failures=

# Command number n leaves its output in $work/n and, when it has ended, its exit code in $work/n.code.
start() {
  n=0
  for command in "$@"; do
    n=$((n + 1))
    printf '%s\0%s\0' "$n" "$command"
  done | WORK=$work xargs -r -0 -n 2 -P "${JOBS:-1}" sh -c \
    'sh -c "exec $2" >"$WORK/$1" 2>&1 </dev/null; echo $? >"$WORK/$1.part"; mv "$WORK/$1.part" "$WORK/$1.code"' run
}

number() { sed -n -E "$1" "$log" | tail -n 1; }

# Count and show what the command named $name printed into $log before it ended with $code.
report() {
  if grep -q '^\[==========\] Running' "$log"; then
    good=$(number 's/^\[  PASSED  \] ([0-9]+) test.*/\1/p')
    bad=$(number 's/^\[  FAILED  \] ([0-9]+) test.*/\1/p')
  else
    good=$(number 's/^([0-9]+) passed, ([0-9]+) failed.*/\1/p')
    bad=$(number 's/^([0-9]+) passed, ([0-9]+) failed.*/\2/p')
    if [ -z "$good" ] && [ "$code" = 0 ]; then good=1; fi
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
}

start "$@" &
runner=$!
n=0
for command in "$@"; do
  n=$((n + 1))
  log=$work/$n
  name=$(echo "$command" | sed -E 's|^[^ ]*/||; s| .*||')
  echo "== $name"
  while [ ! -e "$log.code" ] && kill -0 $runner 2>/dev/null; do sleep 0.1; done
  [ -e "$log.code" ] || sleep 0.5
  touch "$log"
  code=$(cat "$log.code" 2>/dev/null || echo "none")
  report
done

echo
if [ -n "$failures" ]; then echo "failed:$failures"; fi
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" != 0 ]
