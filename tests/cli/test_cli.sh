#!/bin/sh
# The twoheads command as a user meets it: figures, results, exit codes, and errors of one line that name what is wrong.
#
#   test_cli.sh COMMAND
#
# CC compiles the two small programs that it needs; python3 reads pictures and computes by the definition. The last line says how
# many checks passed and failed.
set -u

[ $# = 1 ] || { echo "usage: test_cli.sh COMMAND"; exit 2; }
case $1 in
  /*) command=$1 ;;
  *) command=$PWD/$1 ;;
esac
source=$(cd "$(dirname "$0")/../.." && pwd) || exit 2
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 2

passed=0
failed=0

good() { passed=$((passed + 1)); }

bad() {
  failed=$((failed + 1))
  echo "FAILED: $*"
  sed 's/^/    stdout: /' stdout | head -n 5
  sed 's/^/    stderr: /' stderr | head -n 5
}

# ---- what a check is made of ---------------------------------------------------------------------------------------------

# run CODE ARGUMENT...: the command ends with this exit code, and says nothing on standard error when it is 0.
run() {
  want=$1
  shift
  "$command" "$@" >stdout 2>stderr
  code=$?
  if [ $code != "$want" ]; then bad "exit code $code, not $want: twoheads $*"; return 1; fi
  if [ "$want" = 0 ] && [ -s stderr ]; then bad "something on standard error: twoheads $*"; return 1; fi
  good
}

# refused CODE WORDS ARGUMENT...: the command fails with this code, prints nothing but one line, and the line has the words.
refused() {
  want=$1
  words=$2
  shift 2
  "$command" "$@" >stdout 2>stderr
  code=$?
  if [ $code != "$want" ]; then bad "exit code $code, not $want: twoheads $*"; return 1; fi
  if [ "$(wc -l <stderr)" != 1 ]; then bad "not one line on standard error: twoheads $*"; return 1; fi
  if [ -s stdout ]; then bad "something on standard output: twoheads $*"; return 1; fi
  grep -q -e "$words" stderr || { bad "no word of '$words': twoheads $*"; return 1; }
  good
}

# json KEY: its value in the last output, of an array all values.
json() { sed -n 's/.*"'"$1"'": \(\[[^]]*\]\|[^,}]*\).*/\1/p' stdout; }

# is KEY VALUE: the last output has this member.
is() {
  if [ "$(json "$1")" = "$2" ]; then good; else bad "$1 is '$(json "$1")', not '$2'"; fi
}

# holds EXPRESSION: an awk expression, in which keys of the last output stand for their values. One that is missing or null makes
# it no expression, which fails.
holds() {
  expression=$1
  for key in max_abs_error one_call_error max_lse_error wall_s oracle_s busy_s idle_s utilisation calls lower_bound_calls workspace_bytes \
    calls_per_n_over_m full_tiles lower_tiles upper_tiles band_tiles host_tiles tiles slots_used estimated_s host_rows median_rel_error \
    max_rel_error sampled_keys drawn_tiles estimate_calls exact_calls_max error_bound median p95 exact_rows exact_calls samples_needed \
    logit_std measured_c measured_d repair_calls; do
    case $expression in *$key*) ;; *) continue ;; esac
    expression=$(echo "$expression" | sed "s/\b$key\b/($(json $key | sed 's/null/,/'))/g")
  done
  if awk "BEGIN { exit !($expression) }" 2>/dev/null; then good; else bad "untrue: $1, which is $expression"; fi
}

# shows FILE TEXT: an array's type, sizes and range.
shows() {
  if [ "$(./make_npy show "$1" 2>&1)" = "$2" ]; then good; else bad "$1 is '$(./make_npy show "$1" 2>&1)', not '$2'"; fi
}

# has WORDS: the last output has them.
has() {
  if grep -q -e "$1" stdout; then good; else bad "no '$1' in the output"; fi
}

# picture BYTES ROWS KEYS ARGUMENT...: plan --svg draws what the plan says, in so many bytes (see picture.py). In place of KEYS also
# KEYS:EXACT:SAMPLED, the pairs of exact and of drawn keys; any: marks that are wider.
picture() {
  bytes=$1
  rows=$2
  keys=$(echo "$3" | tr : ' ')
  shift 3
  run 0 plan "$@" --svg picture.svg --json || return 1
  # shellcheck disable=SC2086 # several words
  if python3 "$source/tests/cli/picture.py" picture.svg stdout "$bytes" "$rows" $keys >stderr 2>&1; then
    good
  else
    bad "the picture of twoheads plan $*"
  fi
}

# defined ORACLE OPTION...: a run on q.npy, k.npy and v.npy is what --verify says it should be; on one of the kernels, the one named
# by `definition`, that is also what the definition says, written down a second time.
defined() {
  oracle=$1
  shift
  run 0 run --q q.npy --k k.npy --v v.npy -o o.npy --lse l.npy --verify --json "$@" --oracle "$oracle" || return 1
  holds 'max_abs_error < 1e-6 && max_abs_error > 0 && max_lse_error < 1e-6 && one_call_error < 1e-6 && one_call_error > 0'
  [ "$oracle" = "$definition" ] || return 0
  if python3 "$source/tests/cli/definition.py" q.npy k.npy v.npy o.npy l.npy 2e-6 "$@" >stderr 2>&1; then
    good
  else
    bad "not what the definition says: $* on $oracle"
  fi
}

# estimated OPTION...: a run on q.npy, k.npy and v.npy in which keys are drawn; the errors that --verify tells are those that the
# definition gives, written down a second time.
estimated() {
  run 0 run --q q.npy --k k.npy --v v.npy -o o.npy --lse l.npy --verify --json "$@" || return 1
  holds 'drawn_tiles > 0 && sampled_keys >= drawn_tiles && median_rel_error > 0.01 && median_rel_error <= max_rel_error'
  holds 'max_abs_error > 0.001 && max_lse_error > 0 && one_call_error < 1e-6'
  errors=$(json median_rel_error),$(json max_rel_error)
  if python3 "$source/tests/cli/definition.py" q.npy k.npy v.npy o.npy l.npy 1e-4 --rel-errors "$errors" "$@" >stderr 2>&1; then
    good
  else
    bad "not the errors of: $*"
  fi
}

# told ROWS KEYS OPTION...: a run on q.npy, k.npy and unit vectors v.npy, on a kernel of so many rows and keys, tells of its errors what
# plain Python finds (see estimate.py).
told() {
  rows=$1
  keys=$2
  shift 2
  run 0 run --q q.npy --k k.npy --v v.npy -o sampled.npy --json "$@" || return 1
  cp stdout figures.json
  if python3 -B "$source/tests/cli/estimate.py" q.npy k.npy sampled.npy figures.json "$rows" "$keys" "$@" >stderr 2>&1; then
    good
  else
    bad "not the errors that are told: $*"
  fi
}

# redone ERROR ROWS KEYS OPTION...: the same with this target: blocks of rows above it, and only they, are those of the exact method.
redone() {
  error=$1
  shift
  told "$@" || return 1
  rows=$1
  keys=$2
  shift 2
  exact=$(echo "$*" | sed -E 's/--(method|estimate|samples|seed)[= ][a-z0-9]* ?//g; s/--estimate//')
  # shellcheck disable=SC2086 # several words
  run 0 run --q q.npy --k k.npy --v v.npy -o exact.npy $exact || return 1
  run 0 run --q q.npy --k k.npy --v v.npy -o made.npy --json "$@" --target-error "$error" || return 1
  cp stdout figures.json
  if python3 -B "$source/tests/cli/estimate.py" q.npy k.npy sampled.npy figures.json "$rows" "$keys" "$@" --target-error "$error" \
    --made made.npy --exact exact.npy >stderr 2>&1; then
    good
  else
    bad "not what a target of $error asks for: $*"
  fi
}

# same FILE FILE: bit for bit.
same() {
  if cmp -s "$1" "$2"; then good; else bad "$1 and $2 differ"; fi
}

cc=${CC:-cc}
$cc -std=c11 -O1 -D_POSIX_C_SOURCE=200809L -I"$source/include" -o make_npy "$source"/tests/cli/make_npy.c \
  "$source"/tools/npy.c "$source"/tools/npy_header.c "$source"/tools/npy_write.c "$source"/tools/number.c \
  "$source"/tools/outfile.c "$source"/tools/complaint.c "$source"/tools/rounding.c -lm ||
  { echo "make_npy.c does not compile"; exit 1; }
$cc -std=c11 -O1 -fPIC -shared -I"$source/include" -o plugin.so "$source"/tests/cli/plugin.c -lm ||
  { echo "plugin.c does not compile"; exit 1; }
printf 'int nothing;\n' >empty.c
$cc -shared -fPIC -o empty.so empty.c || exit 1

# ---- help and version ----------------------------------------------------------------------------------------------------

version=$(sed -n -E 's/^.define TWH_VERSION_(MAJOR|MINOR|PATCH) ([0-9]+)$/\2/p' "$source/include/twoheads.h" | paste -sd. -)
run 0 --version && has "^twoheads $version\$"
run 0 --help && has '^usage: twoheads'
for name in plan run check; do
  run 0 $name --help && has "^usage: twoheads $name"
  run 0 $name -h
done
run 0 run --q nowhere.npy --help

# ---- usage ---------------------------------------------------------------------------------------------------------------

refused 2 'no command'
refused 2 "'walk'" walk
refused 2 '--q-len' plan --oracle reference
refused 2 '--q-len' plan
refused 2 '-o' run --q q --k k --v v --oracle reference
refused 2 '--v' run --q q --k k -o o --oracle reference
refused 2 "'--colour'" plan --colour --q-len 8 --oracle reference
refused 2 "'8'" plan 8 --q-len 8 --oracle reference
refused 2 'sizes go with --random' run --q-len 8 --q q --k k --v v -o o --oracle reference
refused 2 'sizes go with --random' run --dim 8 --q q --k k --v v -o o --oracle reference
refused 2 '--svg is no option of run' run --svg p.svg --q q --k k --v v -o o --oracle reference
refused 2 'exclude each other' run --random 1 --q-len 8 --q q --oracle reference
refused 2 '--q-len' run --random 1 --oracle reference
refused 2 "'x'" run --random x --q-len 8 --oracle reference
refused 2 '--random is no option of plan' plan --random 1 --q-len 8 --oracle reference
refused 2 'exclude each other' plan --lens 1 --batch-lens lens.txt --oracle reference
for option in --q-len --kv-len --batch; do
  refused 2 "follow from --lens" plan --lens 1,2 $option 3 --oracle reference
done
for lens in '' , x 1,x 1.5 -1 1,-1 99999999999999999999 2000000000000000000; do
  refused 2 '--lens' plan --lens "$lens" --oracle reference
done
refused 2 '--oracle is given twice' check --oracle reference --oracle reference
many=
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do many="$many --oracle reference,lse"; done
refused 2 'more than 16 times' plan --q-len 8 $many
refused 2 '--threads is no option of plan' plan --q-len 8 --threads 2 --oracle reference
refused 2 '--q-len is given twice' plan --q-len 8 --q-len 8 --oracle reference
refused 2 '--q-len needs a value' plan --oracle reference --q-len
refused 2 '--json takes no value' plan --q-len 8 --json=yes --oracle reference
for number in '' 8x ' 8' 8.5 1e3 0x8 nan 99999999999999999999 -99999999999999999999; do
  refused 2 '--q-len' plan --q-len "$number" --oracle reference
done
for number in '' 1x nan inf -inf 1e999; do
  refused 2 '--scale' plan --q-len 8 --scale "$number" --oracle reference
done
for method in '' all Sampled sample hybrid, 1; do
  refused 2 "--method: '$method'" plan --q-len 8 --method "$method" --oracle reference
  refused 2 "--method: '$method'" run --random 1 --q-len 8 --method="$method" --oracle reference
done
for option in --method --seed --samples --strata --exact-sinks --exact-window; do
  refused 2 "$option is no option of check" check $option 1 --oracle reference
  refused 2 "$option needs a value" plan --q-len 8 --oracle reference $option
  case $option in --method) continue ;; esac
  refused 2 "$option goes with --method" plan --q-len 8 $option 1 --oracle reference
  refused 2 "$option goes with --method" run --random 1 --q-len 8 --method exact $option 1 --oracle reference
  for number in '' 1.5 x 99999999999999999999; do
    refused 2 "$option: '$number'" plan --q-len 8 --method hybrid $option "$number" --oracle reference
  done
done
for option in --samples --strata --exact-sinks; do
  refused 2 "$option: 0 is less than 1" plan --q-len 8 --method hybrid $option 0 --oracle reference
done
refused 2 '--exact-window: -1 is less than 0' plan --q-len 8 --method hybrid --exact-window -1 --oracle reference
refused 2 '--exact-sinks goes with --method hybrid' plan --q-len 8 --method sampled --exact-sinks 1 --oracle reference
refused 2 '--exact-window goes with --method hybrid' plan --q-len 8 --method sampled --exact-window 0 --oracle reference
refused 2 '--seed is given twice' plan --q-len 8 --method sampled --seed 1 --seed 2 --oracle reference
for estimate in '' all Doubled double replicates, 1; do
  refused 2 "--estimate: '$estimate'" plan --q-len 8 --method sampled --estimate="$estimate" --oracle reference
  refused 2 "--estimate: '$estimate'" run --random 1 --q-len 8 --method hybrid --estimate "$estimate" --oracle reference
done
refused 2 '--estimate is no option of check' check --estimate --oracle reference
refused 2 '--estimate is given twice' plan --q-len 8 --method sampled --estimate --estimate=none --oracle reference
for estimate in --estimate --estimate=doubled --estimate=replicates; do
  refused 2 '--estimate goes with --method sampled or hybrid' plan --q-len 8 $estimate --oracle reference
  refused 2 '--estimate goes with --method sampled or hybrid' run --random 1 --q-len 8 --method exact $estimate --oracle reference
done
for option in --target-error --bound-c --bound-d; do
  refused 2 "$option is no option of check" check $option 1 --oracle reference
  refused 2 "$option needs a value" plan --q-len 8 --oracle reference $option
  refused 2 "$option goes with --method sampled or hybrid" plan --q-len 8 $option 2 --oracle reference
  refused 2 "$option goes with --method sampled or hybrid" run --random 1 --q-len 8 --method exact $option 2 --oracle reference
  for number in '' 1x nan inf 1e999; do
    refused 2 "$option: '$number'" plan --q-len 8 --method hybrid --estimate $option "$number" --oracle reference
  done
done
refused 2 '--target-error goes with --estimate' plan --q-len 8 --method sampled --target-error 0.1 --oracle reference
refused 2 '--target-error goes with --estimate' plan --q-len 8 --method sampled --estimate none --target-error 0.1 --oracle reference
for number in 0 -0.1 -0; do
  refused 2 '--target-error: .* is not above 0' plan --q-len 8 --method sampled --estimate --target-error=$number --oracle reference
done
for number in 0 0.999 -3; do
  refused 2 "--bound-c: $number is less than 1" plan --q-len 8 --method sampled --bound-c $number --bound-d 2 --oracle reference
  refused 2 "--bound-d: $number is less than 1" plan --q-len 8 --method sampled --bound-c 2 --bound-d=$number --oracle reference
done
refused 2 '--bound-c and --bound-d go together' plan --q-len 8 --method sampled --bound-c 2 --oracle reference
refused 2 '--bound-c and --bound-d go together' run --random 1 --q-len 8 --method sampled --bound-d 2 --oracle reference
for number in 0 -1 1025 x; do
  refused 2 '--threads' run --threads "$number" --q q --k k --v v -o o --oracle reference
done
refused 2 '--verify' run --verify=0 --q q --k k --v v -o o --oracle reference
refused 2 '--verify' run --verify=all --q q --k k --v v -o o --oracle reference
refused 2 'same file' run --q q --k k --v v -o o --lse o --oracle reference
for oracle in '' ',' cuda BLIS plugin: plugin; do
  refused 2 '--oracle' plan --q-len 8 --oracle "$oracle"
done
for item in '' length=8 len len= len=8x len=1e3 len=99999999999999999999 len=8,len=8 nomask=1 lse,lse lse,lse2 scale=nan \
  softcap=inf dtype=f64 dtype=int8 cost_us=0 cost_us=-1 'len = 8'; do
  refused 2 '--oracle' check --oracle "reference,$item"
done

# ---- plan ----------------------------------------------------------------------------------------------------------------

problem='--q-len 1024 --q-heads 4'
run 0 plan $problem --oracle reference,nomask,lse --json && is calls 64 && is tiles 64 && is lower_bound_calls 64 && is rounds 1
holds 'utilisation == 1 && workspace_bytes > 0'
is estimated_s ''
run 0 plan $problem --oracle reference,nomask --json && is calls 128
run 0 plan $problem --oracle reference,nomask,v=65 --json && is calls 64
run 0 plan $problem --oracle reference,nomask,v=65,slots=4 --json && is calls 16
run 0 plan $problem --oracle reference,nomask,v=65,slots=3 --json && is calls 22
run 0 plan $problem --oracle reference,nomask,lse,len=512 --json && is calls 16
run 0 plan $problem --oracle reference,nomask,lse,q_len=512,k_len=128 --json && is calls 64
run 0 plan $problem --oracle reference,nomask,lse,cost_us=1000 --json && is estimated_s 0.064
run 0 plan $problem --causal --oracle reference,causal,v=65 --json && is calls 64
run 0 plan $problem --causal --oracle reference,nomask,causal,lse --json && is calls 40
run 0 plan $problem --causal --oracle reference,mask,lse --json && is calls 40
run 0 plan --batch=2 --q-heads=8 --kv-heads=2 --q-len=256 --kv-len=512 --oracle reference,nomask,lse --json && is calls 32
run 0 plan --q-len 1048576 --causal --dim 64 --oracle reference,len=512,causal,v=65 --json && is calls 4194304
run 0 plan --q-len 0 --oracle reference --json && is calls 0
run 0 plan $problem --oracle reference,nomask,lse,cost_us=1000 && has '0.064 s estimated'
[ "$(wc -l <stdout)" -gt 3 ] && good || bad "the text of a plan has $(wc -l <stdout) lines"
run 0 plan $problem --left -1 --right -1 --oracle reference --json

# Windows, in calls for each block of query rows; what a kernel without masks does on the diagonal.
run 0 plan --q-len 4096 --causal --left 63 --oracle reference,len=128,causal,v=65,qk=80 --json
holds 'calls_per_n_over_m <= 2.2 && calls_per_n_over_m == calls / (4096 / 128) && slots_used == calls && tiles > calls'
run 0 plan --q-len 4096 --q-heads 3 --batch 2 --oracle reference,len=128,nomask,lse --json && is calls_per_n_over_m 32
run 0 plan --lens 100,28,300 --oracle reference,len=128,nomask,lse --json && holds 'calls_per_n_over_m == calls / (428 / 128)'
run 0 plan --q-len 0 --oracle reference --json && is calls_per_n_over_m 0
run 0 plan --q-len 512 --left 20 --right 30 --oracle reference,len=128,mask,lse --json && holds 'band_tiles > 0'
holds 'full_tiles + lower_tiles + upper_tiles + band_tiles == tiles && host_tiles == 0'
run 0 plan --q-len 8 --causal --oracle reference,nomask,lse,len=8 --json && holds 'host_tiles > 0'

# Several kernels: who makes how many calls, and what that costs.
run 0 plan --q-len 640 --oracle reference,len=128,nomask,lse --oracle reference,len=512,nomask,lse --json
is oracle 1 && is calls_by_oracle "[0, $(json calls)]"
run 0 plan --q-len 640 --oracle reference,len=128,nomask,lse,cost_us=1 --oracle reference,len=512,nomask,lse,cost_us=1000 --json
is oracle 0 && is calls_by_oracle "[25, 0]" && is estimated_s 2.5e-05
run 0 plan --q-len 640 --oracle reference,len=128,nomask,lse --oracle reference,len=512,nomask,lse
has '^number 0  0 calls: reference,len=128,nomask,lse$' && has '^number 1  [0-9]* calls: reference,len=512'
run 0 plan --q-len 64 --causal --oracle reference,len=32,lse --oracle reference,len=16,nomask,lse --measure --json &&
  holds 'estimated_s > 0'

run 0 plan --q-len 640 --oracle reference,len=128,nomask,slots=3,cost_us=1 --oracle reference,len=512,nomask,cost_us=1000 --json
is oracle 0 && is calls_by_oracle "[$(json calls), 0]"

# Keys that are drawn: one block of them for each block of queries, or as many as asked for; the diagonal is exact.
run 0 plan $problem --oracle reference,nomask,lse --json && is method '"exact"' && is sampled_keys 0 && is drawn_tiles 0
drawing='--q-len 1024 --oracle reference,len=64,nomask,lse --json'
run 0 plan $drawing --method exact && is method '"exact"' && is calls 256 && is drawn_tiles 0
run 0 plan $drawing --method sampled && is method '"sampled"' && is calls 16 && is sampled_keys 1024 && is drawn_tiles 16
run 0 plan $drawing --method sampled --seed -5 --samples 3 && is calls 48 && is sampled_keys 3072 && is drawn_tiles 48
run 0 plan $drawing --method sampled --strata 2 && is calls 32
run 0 plan $drawing --method sampled --strata 2 --samples 4 --seed 9223372036854775807 && is calls 64
run 0 plan $drawing --method sampled --samples 16 && is calls 256 && is drawn_tiles 0
run 0 plan $drawing --method hybrid && is method '"hybrid"' && holds 'calls > 32 && calls <= 48 && drawn_tiles == 16'
run 0 plan $drawing --method hybrid --exact-window 1 && window=$(json calls) && holds 'calls > 48 && calls <= 80'
run 0 plan $drawing --method hybrid --exact-window 65 && holds "calls > $window && calls <= 112"
run 0 plan $drawing --method hybrid --exact-window 1 --exact-sinks 64 && is calls "$window"
run 0 plan $drawing --method hybrid --exact-window 1 --exact-sinks 65 && holds "calls > $window && calls <= 96"
run 0 plan $drawing --method hybrid --exact-window 0 --exact-sinks 1 --samples 2 --strata 1 && holds 'drawn_tiles == 32'
run 0 plan --q-len 1024 --causal --oracle reference,len=64,nomask,causal,lse --method sampled --json && is calls 31
run 0 plan --q-len 1024 --causal --left 99 --oracle reference,len=64,lse --method sampled --json && is drawn_tiles 0
run 0 plan --q-len 1024 --oracle reference,len=64,lse --method sampled && has '^sampled .* estimates'
refused 1 '--samples is 3; it must be a multiple of --strata 2' plan $drawing --method sampled --samples 3 --strata 2
refused 1 '--samples is 9223372036854775807' plan $drawing --method sampled --samples 9223372036854775807
refused 1 '--strata is 1048577' plan $drawing --method sampled --strata 1048577
refused 1 '--exact-sinks is 9223372036854775807' plan $drawing --method hybrid --exact-sinks 9223372036854775807
refused 1 '--exact-window is 9223372036854775807' plan $drawing --method hybrid --exact-window 9223372036854775807
# What an estimate takes: nothing from replicates; as many calls as the samples with a column to spare, twice as many without.
run 0 plan $drawing --method sampled && is estimate '"none"' && is estimate_calls 0 && is exact_calls_max 0 && is error_bound 0
run 0 plan $drawing && is estimate '"none"' && is estimate_calls 0 && is exact_calls_max 0 && is error_bound 0
run 0 plan $drawing --estimate=none && is estimate '"none"'
run 0 plan $drawing --method sampled --estimate none && is estimate '"none"' && is calls 16
run 0 plan $drawing --method sampled --estimate && is estimate '"doubled"' && is calls 48 && is estimate_calls 32 && is drawn_tiles 16
run 0 plan $drawing --method sampled --estimate --samples 1 && is estimate '"doubled"'
run 0 plan $drawing --method sampled --estimate --samples 2 && is estimate '"replicates"' && is calls 32 && is estimate_calls 0
run 0 plan $drawing --method sampled --samples 2 --estimate doubled && is estimate '"doubled"' && is calls 96
run 0 plan $drawing --method hybrid --samples 2 --estimate=replicates && is estimate '"replicates"' && is estimate_calls 0
run 0 plan $drawing --method sampled --samples 16 --estimate --target-error 1 && is drawn_tiles 0 && is exact_calls_max 0
doubling='--q-len 1024 --method sampled --estimate --json'
run 0 plan $doubling --oracle reference,len=64,nomask,lse,v=65 && is calls 32 && is estimate_calls 16
run 0 plan $doubling --oracle reference,len=64,nomask,v=66 && is calls 32 && is estimate_calls 16
run 0 plan $doubling --oracle reference,len=64,nomask,v=65 && is calls 48 && is estimate_calls 32
run 0 plan $doubling --oracle reference,len=64,causal,v=66 && is calls 64 && is estimate_calls 32 && is tiles 64 && is drawn_tiles 32
run 0 plan $doubling --causal --oracle reference,len=64,nomask,causal,lse,v=65 && is calls 45 && is estimate_calls 14
run 0 plan $doubling --oracle reference,len=64,nomask,lse,v=65 --oracle reference,len=128,nomask,lse,v=65
holds 'calls == 2 * estimate_calls' && is calls_by_oracle "[0, $(json calls)]" && is calls 16
run 0 plan $doubling --target-error 0.5 --oracle reference,len=64,nomask,lse,v=65 && is calls 32 && is exact_calls_max 256
run 0 plan $doubling --target-error 0.5 --oracle reference,len=64,nomask,v=66 && is repair_calls_max 32 && is exact_calls_max 512
run 0 plan $drawing --method sampled --bound-c 2 --bound-d 5 && holds 'error_bound / (4 * 6 * sqrt(2 * log(40) / 64)) - 1 < 1e-12'
holds 'error_bound / (4 * 6 * sqrt(2 * log(40) / 64)) - 1 > -1e-12' && bound=$(json error_bound)
run 0 plan $drawing --method sampled --bound-c 2 --bound-d 5 --samples 4 && holds "error_bound * 2 - $bound < 1e-9" &&
  holds "error_bound * 2 - $bound > -1e-9"
run 0 plan $drawing --method hybrid --bound-c 2 --bound-d 5 && holds "error_bound - 2 * $bound < 1e-9" &&
  holds "error_bound - 2 * $bound > -1e-9"
run 0 plan $drawing --method sampled --bound-c 1 --bound-d 1 --samples 16 && is error_bound 0
run 0 plan --q-len 1024 --oracle reference,len=64,nomask,lse --method sampled --estimate --target-error 0.25 --bound-c 2 --bound-d 5
has '^estimate .* 32 calls more' && has '^target  *0.25' && has '^bound '
refused 1 '--estimate takes --strata 1' plan $drawing --method sampled --strata 2 --estimate
refused 1 '--estimate: replicates takes --samples 2 or more' plan $drawing --method sampled --estimate=replicates
refused 1 '--estimate: doubled .*--softcap' plan --q-len 64 --softcap 3 --method sampled --estimate --oracle reference,softcap=3,lse
refused 1 '--estimate: replicates needs --oracle nomask' plan --q-len 1024 --method sampled --samples 2 --estimate \
  --oracle reference,len=64,causal,v=65
./make_npy m.npy '|b1' lower 64 64
refused 1 '^twoheads: --method: .*--mask' plan --q-len 64 --mask m.npy --method sampled --oracle reference,len=16,lse

# Ragged batches.
printf '5, 40\t0\n33 100\n' >lens.txt
run 0 plan --lens 5,40,0,33,100 --causal --oracle reference,len=32,lse --json && all=$(json calls)
run 0 plan --batch-lens lens.txt --causal --oracle reference,len=32,lse --json && is calls "$all"
refused 1 'nowhere.txt' plan --batch-lens nowhere.txt --oracle reference
printf '5 x\n' >bad.txt
refused 1 "bad.txt: 'x'" plan --batch-lens bad.txt --oracle reference
printf '5\0005' >bad.txt
refused 1 'bad.txt' plan --batch-lens bad.txt --oracle reference
: >bad.txt
refused 1 'bad.txt' plan --batch-lens bad.txt --oracle reference

# Biases declare the problem: without a spare coordinate there is no way.
run 0 plan --q-len 64 --alibi --oracle reference,len=16,nomask,lse,qk=65 --json
refused 1 '--alibi needs 1 spare' plan --q-len 64 --alibi --oracle reference,len=16,nomask,lse
./make_npy bias.npy '<f4' normal:1:9 64
run 0 plan --q-len 64 --key-bias bias.npy --oracle reference,len=16,nomask,lse,qk=65 --json
refused 1 '--key-bias needs 1 spare' plan --q-len 64 --key-bias bias.npy --oracle reference,len=16,nomask,lse
refused 1 'bias.npy has 64 keys, the problem has 63' plan --q-len 63 --key-bias bias.npy --oracle reference,qk=65
refused 1 'nowhere.npy' plan --q-len 64 --key-bias nowhere.npy --oracle reference,qk=65
refused 1 'nowhere.npy' plan --q-len 64 --alibi nowhere.npy --oracle reference,qk=65
refused 1 'bias.npy is not of shape .4.' plan --q-len 64 --q-heads 4 --alibi=bias.npy --oracle reference,qk=65
refused 1 '--softcap' plan --q-len 64 --alibi --softcap 3 --oracle reference,qk=65,softcap=3

# ---- pictures ------------------------------------------------------------------------------------------------------------

picture 20000 64 64 --q-len 64 --causal --oracle reference,len=16,causal,v=65
picture 20000 128 128 --q-len 128 --causal --left 15 --oracle reference,len=32,causal,v=65
picture 20000 128 128 --q-len 128 --causal --left 15 --sink-tokens 4 --oracle reference,len=32,causal,v=65,qk=80
picture 20000 128 128 --q-len 128 --left 7 --right 9 --oracle reference,len=32,mask,v=65
picture 40000 128 128 --q-len 128 --left 7 --right 9 --oracle reference,len=32,causal,v=65,qk=80
picture 60000 512 512 --q-len 512 --causal --left 40 --oracle reference,len=64,nomask,v=65,qk=74
picture 20000 2048 2048 --q-len 2048 --oracle reference,len=512,nomask,v=65
picture 20000 64 64 --q-len 64 --causal --left 0 --oracle reference,len=32,causal,v=65
picture 20000 1 65536 --q-len 1 --kv-len 65536 --oracle reference,q_len=1,k_len=512,nomask,v=65
picture 20000 160 100 --q-len 40 --kv-len 100 --q-heads 4 --kv-heads 1 --oracle reference,len=32,nomask,lse,slots=3
picture 20000 301 301 --lens 100,120,0,81 --causal --oracle reference,len=64,causal,v=65,qk=70
picture 20000 0 0 --q-len 0 --oracle reference
picture 40000 700 700 --q-len 700 --causal --oracle reference,len=128,lse --oracle reference,len=32,lse
picture 40000 65536 65536 --q-len 65536 --causal --oracle reference,len=512,causal,v=65
picture 40000 65536 65536 --q-len 65536 --causal --left 255 --sink-tokens 4 --oracle reference,len=512,causal,v=65,qk=80
picture 60000 65536 65536 --q-len 65536 --causal --left 299 --sink-tokens 64 --oracle reference,len=512,nomask,v=65,qk=80
picture 200000 60001 60001 --q-len 60001 --left 333 --right 100 --oracle reference,len=500,causal,v=65,qk=80
picture 40000 1048576 1048576 --q-len 1048576 --causal --left 4095 --sink-tokens 4 --oracle reference,len=512,v=65,qk=80
# Marks of drawn keys: so many rows of a block times so many keys of a sample, apart from what is exact.
picture 40000 256 256:0:8192 --q-len 256 --method sampled --oracle reference,len=32,nomask,lse
picture 60000 256 256:0:16384 --q-len 256 --method sampled --strata 2 --oracle reference,len=32,nomask,lse
picture 40000 256 256:5248:6144 --q-len 256 --causal --method sampled --oracle reference,len=32,mask,lse
picture 40000 256 256:5248:6144 --q-len 256 --causal --method sampled --oracle reference,len=32,causal,v=65
run 0 plan --q-len 256 --causal --method sampled --oracle reference,len=32,causal,v=65 --svg other.svg && same picture.svg other.svg
run 0 plan --q-len 256 --causal --method sampled --seed 1 --oracle reference,len=32,causal,v=65 --svg other.svg
cmp -s picture.svg other.svg && bad 'two seeds give the same picture' || good
picture 40000 300 100:0:19200 --q-len 100 --q-heads 3 --kv-heads 1 --method sampled --samples 2 --oracle reference,len=32,nomask,lse
picture 40000 64 600:0:4096 --q-len 64 --kv-len 600 --method sampled --oracle reference,len=64,nomask,lse
picture 40000 64 16384:0:any --q-len 64 --kv-len 16384 --method sampled --oracle reference,len=64,nomask,lse
picture 40000 65536 65536 --q-len 65536 --causal --method hybrid --oracle reference,len=512,causal,v=65
picture 40000 8192 8192 --q-len 8192 --method sampled --samples 2 --oracle reference,len=256,nomask,lse
# What only serves an estimate is not drawn: the same marks as without it.
picture 40000 256 256:0:8192 --q-len 256 --method sampled --estimate --oracle reference,len=32,nomask,lse,v=65
picture 40000 256 256:5248:6144 --q-len 256 --causal --method sampled --estimate --oracle reference,len=32,causal,v=66
picture 40000 256 256:0:16384 --q-len 256 --method sampled --estimate --samples 2 --oracle reference,len=32,nomask,lse
picture 40000 8192 8192 --q-len 8192 --method sampled --samples 2 --estimate=doubled --oracle reference,len=256,nomask,lse
picture 99000 500 500:25634:5440 --lens 300,0,200 --causal --method hybrid --exact-window 20 --estimate --oracle reference,len=16,lse
picture 99000 500 500:25634:5440 --lens 300,0,200 --causal --method hybrid --exact-window 20 --oracle reference,len=16,lse
run 0 plan --q-len 64 --oracle reference,len=32,lse --svg picture.svg && has '^problem'
cp plugin.so 'a<b>&"c.so'
picture 40000 80 80 --q-len 80 --dim 4 --oracle 'plugin:./a<b>&"c.so'
refused 1 'nowhere/p.svg' plan --q-len 64 --oracle reference --svg nowhere/p.svg
[ ! -c /dev/full ] || refused 1 '/dev/full' plan --q-len 64 --oracle reference --svg /dev/full

refused 1 '--q-len' plan --q-len -8 --oracle reference
refused 1 '--batch' plan --q-len 8 --batch -1 --oracle reference
refused 1 '--q-heads is 6, not a multiple of --kv-heads 4' plan --q-len 8 --q-heads 6 --kv-heads 4 --oracle reference
refused 1 'heads' plan --q-len 8 --q-heads 0 --oracle reference
refused 1 '--dim' plan --q-len 8 --dim 0 --oracle reference
refused 1 '--v-dim' plan --q-len 8 --v-dim -1 --oracle reference
refused 1 '--left' plan --q-len 8 --left -3 --oracle reference
refused 1 '--right' plan --q-len 8 --right -2 --oracle reference
refused 1 '--sink-tokens' plan --q-len 8 --sink-tokens -1 --oracle reference
refused 1 '--softcap' plan --q-len 8 --softcap -1 --oracle reference
refused 1 '--softcap' plan --q-len 8 --softcap 5 --oracle reference
refused 1 'len' plan --q-len 8 --oracle reference,len=0
refused 1 'len' plan --q-len 8 --oracle reference,len=-4
refused 1 'slots' plan --q-len 8 --oracle reference,slots=0
refused 1 '--oracle qk is 32' plan --q-len 8 --oracle reference,qk=32
refused 1 'scale' plan --q-len 8 --oracle reference,scale=0
refused 1 '--batch' plan --q-len 9223372036854775807 --batch 9223372036854775807 --oracle reference
refused 1 'nowhere.npy' plan --q-len 8 --mask nowhere.npy --oracle reference
refused 1 'nowhere.npy' plan --q-len 8 --sink-logits nowhere.npy --oracle reference
"$command" plan $problem --oracle reference --json >/dev/full 2>stderr
[ $? = 1 ] && [ "$(wc -l <stderr)" = 1 ] && good || bad 'a full disk behind standard output goes unnoticed'

# ---- run -----------------------------------------------------------------------------------------------------------------

# What a result of f32 may be off by: twice one call's error, and a unit in the last place of outputs up to 4. One call itself
# must be near: a comparison with a wrong truth would find both far away.
bound='max_abs_error <= 2 * one_call_error + 5e-7 && one_call_error < 1e-5'
small='--q q.npy --k k.npy --v v.npy -o o.npy'
./make_npy q.npy '<f4' normal:1:1 4 100 16
./make_npy k.npy '<f4' normal:1:2 4 100 16
./make_npy v.npy '<f4' normal:1:3 4 100 16

for oracle in lse lse2 v=17 v=18 v=16 v=7 nomask nomask,v=17 causal,v=17 causal,v=18 causal causal,lse mask mask,v=17 \
  slots=3,lse slots=3,v=17 q_len=100,k_len=100,lse q_len=7,k_len=33,v=17 scale=1; do
  run 0 run $small --oracle reference,len=32,$oracle --verify --json && holds "$bound"
done
for oracle in lse v=17 causal,v=17 causal mask,v=17 nomask,causal,lse; do
  run 0 run $small --causal --oracle reference,len=32,$oracle --verify --lse l.npy --json &&
    holds "$bound && max_abs_error > 0 && max_lse_error < 1e-5"
done
run 0 run $small --oracle reference,len=32,lse --verify && has '^calls  *64 ' && has 'one call'
shows o.npy "$(./make_npy show o.npy | sed 's/^.*\( [^ ]* [^ ]*\)$/<f4 4 100 16\1/')"

# The figures of a run: 4 heads of 4 x 4 blocks.
run 0 run $small --oracle reference,len=25,v=17,nomask --json && is calls 64 && is repair_calls 0 && is host_rows 0
holds 'wall_s > 0 && oracle_s > 0'
is max_abs_error ''

# The same bits whatever the threads; more threads than there is work.
run 0 run $small --causal --oracle reference,len=32,causal,v=17 && mv o.npy one.npy
for threads in 2 3 64; do
  run 0 run $small --causal --oracle reference,len=32,causal,v=17 --threads $threads && same o.npy one.npy
done

# ---- the kernel of the CPU, which is the default ----------------------------------------------------------------------------------

run 0 run $small --causal --verify --json && holds "$bound"
run 0 run $small --causal --oracle cpu,len=25,isa=portable,nomask,lse --verify --json && holds "$bound"
for dtype in f32 f16 bf16; do run 0 check --oracle cpu,len=32,dtype=$dtype,lse; done
run 0 check
run 0 plan --q-len 4096 --json && is calls 256
refused 2 'isa' plan --q-len 64 --oracle cpu,isa=mmx
refused 2 "'isa' goes with cpu" plan --q-len 64 --oracle reference,isa=avx2

# ---- a simulated accelerator, and what happened when ---------------------------------------------------------------------------

# traced KERNELS ARGUMENT...: run --trace writes a file that agrees with what the run prints (see timeline.py).
traced() {
  kernels=$1
  shift
  run 0 run "$@" --json --trace trace.json || return 1
  if python3 "$source/tests/cli/timeline.py" trace.json stdout "$kernels" >stderr 2>&1 && [ ! -s stderr ]; then good
  else bad "the trace of: twoheads run $*"; fi
}

# untraced: neither trace.json nor a temporary file of it is there.
untraced() { ls trace.json* >/dev/null 2>&1 && bad 'a run that fails has left a trace' || good; }

sim=sim,len=25,v=17,nomask,batch_us=300,call_us=50,gbps=2
run 0 run $small --oracle reference,len=25,v=17,nomask && mv o.npy one.npy
for more in '' ,depth=1 ,depth=4,batch=3 ,depth=64,batch=1; do
  traced 1 $small --oracle $sim$more && same o.npy one.npy && is calls 64
  holds 'busy_s >= 0.0056 && idle_s >= 0 && wall_s >= busy_s'
done
run 0 run $small --oracle $sim && has '^accelerator  *[0-9.]* s   busy'
traced 1 $small --causal --oracle reference,len=25,v=17,nomask --threads 2
traced 1 $small --causal --oracle reference,len=25,lse,nomask --threads 3
traced 1 $small --oracle reference,len=25,nomask --scale 9
traced 1 $small --causal --oracle sim,len=25,nomask,depth=4,batch=2 --scale 9
traced 2 $small --causal --oracle $sim,depth=3 --oracle reference,len=25,v=17,causal,cost_us=1
traced 1 --random 1 --lens 30,1,70,4 --q-heads 2 --dim 8 --oracle sim,len=16,slots=3,lse --threads 2
run 0 check --oracle sim,len=16,lse,call_us=5 --json
echo old >trace.json
refused 1 'qk is 8' run $small --causal --oracle sim,len=25,v=16,causal,qk=8 --trace trace.json
if [ "$(cat trace.json)" = old ]; then good; else bad "a run that fails has written a trace"; fi
refused 1 'cannot write' run $small --oracle $sim --trace no/such/folder.json
refused 2 'same file' run $small --oracle $sim --trace o.npy
refused 2 'no option of plan' plan --q-len 64 --oracle $sim --trace trace.json
refused 2 "'depth' goes with sim" plan --q-len 64 --oracle reference,depth=2
refused 2 'is not in 1..64' plan --q-len 64 --oracle sim,depth=65
refused 2 'less than zero' plan --q-len 64 --oracle sim,call_us=-1
refused 2 'less than 1' plan --q-len 64 --oracle sim,batch=0

all=0
# A sample of rows finds an error no larger than all rows have, and no exact zero.
run 0 run $small --causal --oracle reference,len=32,causal,v=17 --verify --json && all=$(json max_abs_error)
for rows in 1 2 7 99 100 1000; do
  run 0 run $small --causal --oracle reference,len=32,causal,v=17 --verify=$rows --json
  holds "max_abs_error <= $all && max_abs_error > 0 && one_call_error > 0 && one_call_error < 1e-6"
done

# A position offset: chunks of a prompt, and queries before every key.
./make_npy q.npy '<f4' normal:1:1 4 30 16
for offset in 70 0 13 -10 -100 200; do
  run 0 run $small --causal --q-offset $offset --oracle reference,len=32,lse --verify --lse l.npy --json &&
    holds "$bound && max_lse_error < 1e-5"
  run 0 run $small --causal --q-offset $offset --oracle reference,len=32,causal,v=17 --verify=5 --json &&
    holds "$bound"
done

# Windows, sinks, offsets, ragged batches, biases: what the definition says, on kernels with masks and without.
./make_npy q.npy '<f8' normal:1:1 6 23 4
./make_npy k.npy '<f8' normal:1:2 2 23 4
./make_npy v.npy '<f8' normal:1:3 2 23 3
./make_npy bias.npy '<f8' normal:2:4 6 23
./make_npy common.npy '<f4' normal:2:4 1 23
./make_npy sinks.npy '<f8' normal:1:5 6
definition=reference,len=8,causal,v=4,qk=12
for oracle in causal,v=4,qk=12 causal,v=4,qk=6,nomask mask,lse,qk=5 nomask,v=4,qk=12; do
  oracle=reference,len=8,$oracle
  defined $oracle --causal --left 3
  defined $oracle --left 2 --right 4
  defined $oracle --right 3
  defined $oracle --left 0
  defined $oracle --causal --left 3 --sink-tokens 2
  defined $oracle --left 2 --sink-tokens 5
  defined $oracle --causal --left 4 --sink-tokens 1 --q-offset 3
  defined $oracle --left 3 --right 2 --q-offset -5 --sink-tokens 1
  defined $oracle --lens 5,0,11,7
  defined $oracle --lens 5,0,11,7 --causal --left 2 --sink-tokens 1
  defined $oracle --alibi --causal
  defined $oracle --alibi --left 5 --right 1 --key-bias bias.npy
  defined $oracle --key-bias common.npy --lens 9,14 --sink-logits sinks.npy
done
run 0 run $small --causal --left 4 --oracle reference,len=8,causal,v=4 --verify=5 --json && holds 'max_abs_error < 1e-6'
run 0 run $small --lens 9,14 --alibi --oracle reference,len=8,lse,qk=7 --verify=5 --json && holds 'max_abs_error < 1e-6'
run 0 run $small --causal --left 4 --oracle reference,len=8,lse --oracle reference,len=16,lse --verify && has '^  on kernel 1 '
run 0 run $small --alibi --oracle reference,len=8,lse,qk=7,dtype=bf16 --verify --json &&
  holds 'max_abs_error <= 2 * one_call_error + 0.016 && one_call_error < 0.05'
./make_npy slopes.npy '<f4' constant:0 6
run 0 run $small --causal --oracle reference,len=8,lse,qk=7 && mv o.npy plain.npy
run 0 run $small --causal --alibi slopes.npy --oracle reference,len=8,lse,qk=7 --verify --json && holds 'max_abs_error < 1e-6'
refused 1 'the number of tokens is 23, but 22' run $small --lens 9,13 --oracle reference
./make_npy w.npy '<f8' normal:1:1 2 6 23 4
refused 1 'the batch is 2' run --q w.npy --k w.npy --v w.npy -o o.npy --lens 9,14 --oracle reference

# Drawn keys: the same for the same seed, whatever the threads; errors are told, not judged.
./make_npy q.npy '<f4' normal:1:1 2 60 4
./make_npy k.npy '<f4' normal:1:2 2 60 4
./make_npy v.npy '<f4' normal:1:3 2 60 3
drawing='--oracle reference,len=8,lse'
estimated $drawing --method sampled && is method '"sampled"' && is sampled_keys 128 && is calls 16
estimated $drawing --method sampled --seed 7 --samples 4 --strata 2
estimated $drawing --method sampled --causal
estimated $drawing --method hybrid --exact-sinks 9 --exact-window 3 --samples 2 && is method '"hybrid"'
estimated $drawing --method hybrid --lens 33,27
run 0 run $small $drawing --method sampled --samples 8 --verify --json && is drawn_tiles 0 && holds 'max_rel_error < 1e-5'
holds 'median_rel_error > 0'
run 0 run $small $drawing --verify --json && is method '"exact"' && is max_rel_error '' && is median_rel_error ''
run 0 run $small $drawing --method sampled --json && is max_rel_error '' && mv o.npy one.npy
run 0 run $small $drawing --method sampled --seed 0 --threads 3 && same o.npy one.npy
run 0 run $small $drawing --method sampled --seed 1
cmp -s o.npy one.npy && bad 'two seeds draw the same' || good
run 0 run $small $drawing --method sampled --verify=7 && has '^keys drawn  *128 .* estimates$' && has '^error of a row .*median'
run 0 run $small $drawing --method sampled --samples 8 --verify && has '^keys drawn  *0 .* exact'
run 0 run $small $drawing --method sampled && has ' estimates$'
run 0 run --random 3 --seed 4 --method sampled --q-len 50 --dim 8 --oracle reference,len=8,lse --verify=1 --json
holds 'median_rel_error == max_rel_error && max_rel_error > 0.01'
run 0 run --random 3 --method sampled --q-len 0 --oracle reference,len=8,lse --verify --json && holds 'max_rel_error == 0'
# What is told of errors: from results that show which keys were drawn, the same by plain Python.
./make_npy q.npy '<f4' normal:1:1 2 56 4
./make_npy k.npy '<f4' normal:1:2 1 52 4
./make_npy v.npy '<f4' unit 1 52 52
alone=reference,q_len=8,k_len=1,lse
told 8 8 --method sampled --estimate --oracle reference,len=8,lse && is estimate '"doubled"'
told 8 8 --method sampled --estimate --oracle reference,len=8,lse,v=53 && holds 'estimate_calls * 2 == calls'
told 8 8 --method sampled --estimate=doubled --samples 3 --seed 2 --oracle reference,len=8,nomask,v=54
told 8 8 --method sampled --estimate=doubled --samples 3 --scale 0.1 --oracle reference,len=8,nomask --threads 2
told 8 8 --method sampled --estimate --scale -0.2 --oracle reference,len=8,causal,v=54 --bound-c 3 --bound-d 4
told 8 8 --method sampled --estimate=doubled --samples 2 --causal --q-offset 3 --oracle reference,len=8,nomask,causal,lse
told 8 8 --method sampled --estimate=doubled --samples 2 --scale 3 --oracle reference,len=8,lse,v=53 && is p95 null &&
  holds 'median > 1'
told 8 8 --method sampled --estimate=doubled --samples 4 --scale 0.9 --oracle reference,len=8,lse,v=53 && holds 'median > 0'
run 0 run $small --method sampled --estimate --scale 3 --oracle reference,len=8,lse && has '^estimated error  *[0-9.]* .* at most unknown$'
run 0 run $small --method sampled --estimate --scale 20 --oracle reference,len=8,lse && has '^estimated error  *unknown .* at most unknown$'
told 8 8 --method hybrid --estimate=doubled --exact-window 3 --samples 2 --oracle reference,len=8,mask,lse
told 8 1 --method sampled --estimate --samples 5 --oracle $alone && is estimate '"replicates"' && is estimate_calls 0
told 8 1 --method sampled --estimate --samples 2 --causal --oracle $alone
told 8 1 --method hybrid --estimate --samples 4 --seed 3 --oracle $alone
redone 0.99 8 8 --method sampled --estimate=doubled --samples 2 --oracle reference,len=8,lse
redone 0.9 8 8 --method sampled --estimate=doubled --samples 2 --causal --oracle reference,len=8,nomask,causal,v=54
redone 1.24 8 1 --method sampled --estimate --samples 4 --oracle $alone
run 0 run $small --oracle reference,len=8,lse --json && for key in exact_rows exact_calls assumption_holds samples_needed logit_std \
  measured_c measured_d assumption_words estimated_error; do is $key ''; done
run 0 run $small --oracle reference,len=8,lse --method sampled --json && is estimated_error '' && is exact_rows 0 &&
  is assumption_holds false
run 0 run $small --oracle reference,len=8,lse --method sampled --samples 7 --estimate --target-error 0.1 --json &&
  is median 0 && is p95 0 && is assumption_holds null && is exact_rows 0 && is assumption_words '""'
# Far apart and near: what the run says of it, and that a target mends it.
random='--random 3 --q-len 512 --q-heads 2 --dim 16 --v-dim 8 --oracle reference,len=64,lse --method sampled --estimate'
run 0 run $random --scale 1 --target-error 0.01 --verify --json && is assumption_holds false && holds 'max_rel_error < 0.02'
has '"assumption_words": "head [01]: logits spread by ' && holds 'samples_needed == 8 && logit_std > 3 && logit_std < 6'
holds 'exact_rows > 0 && exact_calls == exact_rows / 64 * 8 && p95 <= 0.01 && exact_calls <= exact_calls_max'
run 0 run $random --scale 1 --target-error 0.01 && has '^drawn keys suffice  *no   head [01]: logits spread' &&
  has '^rows made exact  *1024   in 128 more calls' && has '^estimated error  *0 ' && has '^  for the estimate  *32$'
run 0 run $random --scale 0.05 --json && is assumption_holds true && is assumption_words '""' && holds 'samples_needed == 1'
holds 'median > 0.3 && median <= p95 && exact_rows == 0 && logit_std > 0.1 && logit_std < 0.4 && measured_c > 1 && measured_c < 3'
run 0 run $random --scale 0.05 && has '^drawn keys suffice  *yes ' && has '^estimated error .*median'
if grep -q 'made exact' stdout; then bad 'exact rows without a target'; else good; fi
run 0 run $random --scale 0.05 --bound-c 1.1 --bound-d 50 --json && is assumption_holds false && has 'words": ".*--bound-c 1.1 '
run 0 run $random --scale 0.05 --bound-c 5 --bound-d 1.5 --json && is assumption_holds false && has 'words": ".*--bound-d is 1.5"'
run 0 run $random --scale 0.05 --bound-c 5 --bound-d 500 --json && is assumption_holds true && holds 'error_bound > 1'
run 0 run --random 3 --lens 300,0,212 --dim 8 --causal --method hybrid --samples 2 --estimate --target-error 0.3 --oracle reference,len=16,lse \
  --verify --json && holds 'p95 <= 0.3 && exact_rows > 0 && max_rel_error < 1 && exact_calls <= exact_calls_max'
run 0 run --random 3 --q-len 0 --method sampled --estimate --target-error 1 --oracle reference,len=8,lse --json && is median 0 && is p95 0
run 0 run --random 3 --q-len 256 --dim 8 --scale 9 --method sampled --estimate --target-error 0.001 --oracle reference,len=32,nomask,v=10 \
  --json && holds 'repair_calls > 0 && exact_rows == 256 && exact_calls == 64'
# Values of 1 and -1 in turn, all keys alike: exactly 0, and what a sample finds counts as it is.
python3 - <<'EOF'
import struct
def save(path, numbers, shape):
    head = "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }" % (shape,)
    head += " " * (-(len(head) + 11) % 64) + "\n"
    data = b"\x93NUMPY\x01\0" + struct.pack("<H", len(head)) + head.encode() + struct.pack("<%df" % len(numbers), *numbers)
    open(path, "wb").write(data)
save("q.npy", [0] * 60, (60, 1))
save("v.npy", [(-1) ** i for i in range(60)], (60, 1))
save("n.npy", [float("nan") if i == 29 else 0 for i in range(60)], (60, 1))
save("some.npy", [float("nan") if i < 24 else 0 for i in range(60)], (60, 1))
EOF
cp q.npy k.npy
estimated --method sampled --oracle reference,len=9,lse
holds 'max_rel_error <= 1 && max_rel_error == max_abs_error'
"$command" run --q n.npy --k k.npy --v v.npy -o o.npy --oracle reference,len=9,lse --method sampled --verify --json >stdout 2>stderr
[ $? = 1 ] && grep -q NaN stderr && good || bad "one row of NaN passes for an estimate"
is max_rel_error null && is median_rel_error null

# An estimate that is no number is larger than all others.
run 0 run --q some.npy --k k.npy --v v.npy -o o.npy --method sampled --estimate --oracle reference,len=9,lse --json && is p95 null &&
  holds 'median > 0'
run 0 run --q n.npy --k k.npy --v v.npy -o o.npy --method sampled --estimate --oracle reference,len=9,lse --json && holds 'p95 >= median'
run 0 run --q n.npy --k k.npy --v n.npy -o o.npy --method sampled --estimate --oracle reference,len=60,lse --json && is median 0

# Random arrays: the same for the same seed, of mean 0 and deviation 1, and no file is needed.
random='--q-len 50 --q-heads 2 --dim 8 --causal --oracle reference,len=16,lse'
run 0 run --random 7 $random --verify --json && holds "$bound && max_abs_error > 0"
run 0 run --random 7 $random -o o.npy && mv o.npy one.npy
run 0 run --random 7 $random -o o.npy && same o.npy one.npy
run 0 run --random 8 $random -o o.npy
cmp -s o.npy one.npy && bad 'two seeds give the same' || good
run 0 run --random 3 --q-len 2000 --causal --left 0 --dim 8 --oracle reference,len=16,lse -o o.npy # the values themselves
near='{ exit !($(NF - 1) > -3.4642 && $(NF - 1) < -3 && $NF < 3.4642 && $NF > 3) }'
if ./make_npy show o.npy | awk "$near"; then good; else bad "no deviation of 1"; fi
run 0 run --random -1 --lens 20,30 --kv-heads 1 --q-heads 4 --v-dim 5 --left 3 --oracle reference,len=16,lse --verify --json \
  -o o.npy
holds "$bound" && shows o.npy "$(./make_npy show o.npy | sed 's/^.*\( [^ ]* [^ ]*\)$/<f4 1 4 50 5\1/')"
run 0 run --random 1 --q-len 3000 --kv-len 1 --dim 1 --v-dim 1 --scale 0 --oracle reference,len=256,lse
refused 1 'length' run --random 1 --q-len -8 --oracle reference
refused 1 '--kv-heads' run --random 1 --q-len 8 --q-heads 3 --kv-heads 2 --oracle reference

# Ranks, grouped heads, and values of another dimension.
./make_npy q.npy '<f4' normal:1:1 2 4 20 8
./make_npy k.npy '<f4' normal:1:2 2 2 30 8
./make_npy v.npy '<f4' normal:1:3 2 2 30 5
run 0 run $small --lse l.npy --oracle reference,len=8,lse --verify --json && holds "$bound"
shows o.npy "$(./make_npy show o.npy | sed 's/^.*\( [^ ]* [^ ]*\)$/<f4 2 4 20 5\1/')"
shows l.npy "$(./make_npy show l.npy | sed 's/^.*\( [^ ]* [^ ]*\)$/<f4 2 4 20\1/')"
./make_npy q.npy '<f4' normal:1:1 20 8
./make_npy k.npy '<f4' normal:1:2 30 8
./make_npy v.npy '<f4' constant:1 30 5
run 0 run $small --oracle reference,len=8,nomask,v=6 && shows o.npy '<f4 20 5 1 1'
./make_npy q.npy '<f4' normal:1:1 0 8
run 0 run $small --oracle reference,len=8 --verify && shows o.npy '<f4 0 5 inf -inf'
./make_npy q.npy '<f4' constant:1 3 8
./make_npy k.npy '<f4' constant:1 0 8
./make_npy v.npy '<f4' constant:1 0 5
run 0 run $small --lse l.npy --oracle reference,len=8 --verify && shows o.npy '<f4 3 5 0 0' && shows l.npy '<f4 3 -inf -inf'

# Data types, of the arrays and of the kernel.
for descr in '<f2' '<f4' '<f8' '<u2'; do
  ./make_npy q.npy "$descr" normal:1:1 2 50 16
  ./make_npy k.npy "$descr" normal:1:2 2 50 16
  ./make_npy v.npy "$descr" normal:1:3 2 50 16
  for dtype in f32 f16 bf16; do
    run 0 run $small --lse l.npy --bf16 --oracle reference,len=16,dtype=$dtype,v=17 --verify --json
    case $descr$dtype in
      *bf16 | '<u2'*) ulp=0.016 ;;
      *f16 | '<f2'*) ulp=0.002 ;;
      *) ulp=5e-7 ;;
    esac
    holds "max_abs_error <= 2 * one_call_error + $ulp && max_abs_error > 0 && one_call_error < 0.05"
    shows o.npy "$(./make_npy show o.npy | sed "s/^.*\( [^ ]* [^ ]*\)\$/$descr 2 50 16\1/")"
    case $descr in '<f8') lse='<f8' ;; *) lse='<f4' ;; esac
    shows l.npy "$(./make_npy show l.npy | sed "s/^.*\( [^ ]* [^ ]*\)\$/$lse 2 50\1/")"
  done
done
refused 1 '--bf16' run $small --oracle reference,len=16

# Masks: a lower triangle is what --causal is; broadcasting; sink logits: four keys and one of 0 give ln 5.
./make_npy q.npy '<f4' normal:1:1 2 40 8
./make_npy k.npy '<f4' normal:1:2 2 40 8
./make_npy v.npy '<f4' normal:1:3 2 40 8
for descr in '|b1' '<f4' '<f2' '<f8'; do
  for shape in '40 40' '1 40 40' '2 40 40' '1 2 40 40'; do
    ./make_npy m.npy "$descr" lower $shape
    run 0 run $small --mask m.npy --oracle reference,len=16,mask,lse --verify --json
    holds "$bound"
  done
done
mv o.npy masked.npy
run 0 run $small --causal --oracle reference,len=16,mask,lse
run 0 run $small --mask m.npy --oracle reference,len=16,mask,v=9 --verify=6 --json && holds "$bound"
./make_npy m.npy '<f4' normal:2:4 40 1
run 0 run $small --mask m.npy --oracle reference,len=16,mask,lse --verify=9 --json && holds "$bound"
./make_npy m.npy '<f4' normal:2:4 2 1 40
run 0 run $small --mask m.npy --oracle reference,len=16,mask,lse --verify=9 --json && holds "$bound"
refused 1 '--mask: --oracle needs mask' run $small --mask m.npy --oracle reference,len=16,nomask,lse
./make_npy m.npy '<f4' constant:0 2 2 40
refused 1 'm.npy has 2 queries' run $small --mask m.npy --oracle reference,len=16,lse
./make_npy m.npy '<f4' constant:0 40
refused 1 'dimensions' run $small --mask m.npy --oracle reference,len=16,lse
./make_npy q.npy '<f4' constant:0 3 8
./make_npy k.npy '<f4' constant:0 4 8
./make_npy v.npy '<f4' constant:1 4 8
./make_npy s.npy '<f4' constant:0 1
run 0 run $small --sink-logits s.npy --lse l.npy --oracle reference,len=2,v=9 --verify --json && holds 'max_abs_error < 1e-6'
shows o.npy '<f4 3 8 0.800000012 0.800000012'
shows l.npy '<f4 3 1.60943794 1.60943794'
./make_npy s.npy '<f4' constant:0 2
refused 1 's.npy' run $small --sink-logits s.npy --oracle reference,len=2,v=9

# A cap that the kernel has too, and one that it has not.
./make_npy q.npy '<f4' normal:3:1 40 8
./make_npy k.npy '<f4' normal:3:2 40 8
./make_npy v.npy '<f4' normal:1:3 40 8
run 0 run $small --softcap 5 --oracle reference,len=16,softcap=5,v=9 --verify --json && holds "$bound"
refused 1 'softcap' run $small --softcap 5 --oracle reference,len=16,v=9
run 0 run $small --scale 0 --oracle reference,len=16,v=9 --verify --json && holds 'max_abs_error < 1e-6'
run 0 run $small --scale -0.5 --oracle reference,len=16,v=9 --verify --json && holds "$bound"

# What goes wrong with files: named in the message, and what was there before is kept.
echo kept >o.npy
refused 1 'nowhere.npy' run --q nowhere.npy --k k.npy --v v.npy -o o.npy --oracle reference
printf "\223NUMPY\001\000\106\000{'descr': '<f4', 'fortran_order': True, 'shape': (40, 8), }          \n" >f.npy
refused 1 'f.npy is in Fortran order' run --q f.npy --k k.npy --v v.npy -o o.npy --oracle reference
head -c 1000 q.npy >cut.npy
refused 1 'cut.npy is cut off' run --q cut.npy --k k.npy --v v.npy -o o.npy --oracle reference
printf "\223NUMPY\001\000\106\000{'descr': '<f4', 'fortran_order': False, 'shape': (1099511627776, 8), }\n" >huge.npy
refused 1 'huge.npy' run --q q.npy --k huge.npy --v v.npy -o o.npy --oracle reference
refused 1 'empty.c' run --q q.npy --k k.npy --v empty.c -o o.npy --oracle reference
refused 1 "$work" run --q "$work" --k k.npy --v v.npy -o o.npy --oracle reference
./make_npy b.npy '|b1' constant:0 40 8
refused 1 'b.npy' run --q q.npy --k b.npy --v v.npy -o o.npy --oracle reference
./make_npy w.npy '<f4' constant:0 41 8
refused 1 'w.npy: the number of keys' run --q q.npy --k k.npy --v w.npy -o o.npy --oracle reference
./make_npy w.npy '<f4' constant:0 40 9
refused 1 'w.npy: the head dimension' run --q q.npy --k w.npy --v v.npy -o o.npy --oracle reference
./make_npy w.npy '<f4' constant:0 2 1 40 8
refused 1 'the batch' run --q w.npy --k k.npy --v v.npy -o o.npy --oracle reference
./make_npy w.npy '<f4' constant:0 3 40 8
./make_npy x.npy '<f4' constant:0 2 40 8
refused 1 'w.npy has 3 heads' run --q w.npy --k x.npy --v x.npy -o o.npy --oracle reference
refused 1 'nowhere/o.npy' run --q q.npy --k k.npy --v v.npy -o nowhere/o.npy --oracle reference
refused 1 'nowhere/l.npy' run $small --lse nowhere/l.npy --oracle reference
[ "$(cat o.npy)" = kept ] && good || bad 'a run that failed has changed its output'
if [ -c /dev/full ]; then
  refused 1 '/dev/full' run --q q.npy --k k.npy --v v.npy -o /dev/full --oracle reference
  [ -c /dev/full ] && good || bad '/dev/full was replaced'
fi
rm -f new.npy
refused 1 '--oracle qk is 4' run --q q.npy --k k.npy --v v.npy -o new.npy --oracle reference,qk=4
[ ! -e new.npy ] && good || bad 'a run that failed has left a file'
ls ./*.tmp >/dev/null 2>&1 && bad 'temporary files are left' || good

# NaN is an error of the comparison, whatever else went well.
./make_npy n.npy '<f4' constant:nan 40 8
"$command" run --q n.npy --k k.npy --v v.npy -o o.npy --oracle reference,len=16,lse --verify --json >stdout 2>stderr
code=$?
[ $code = 1 ] && [ "$(wc -l <stderr)" = 1 ] && grep -q NaN stderr && good || bad "NaN passes the comparison: exit code $code"
is max_abs_error null
"$command" run --q q.npy --k k.npy --v n.npy -o o.npy --oracle reference,len=16,lse --method sampled --verify --json >stdout 2>stderr
code=$?
[ $code = 1 ] && grep -q NaN stderr && good || bad "NaN passes for an estimate: exit code $code"
is max_rel_error null
is median_rel_error null

# ---- plugins -------------------------------------------------------------------------------------------------------------

./make_npy q.npy '<f4' normal:1:1 20 4
./make_npy k.npy '<f4' normal:1:2 20 4
./make_npy v.npy '<f4' normal:1:3 20 4
run 0 run $small --oracle plugin:./plugin.so --verify --json && is calls 9 && holds "$bound"
run 0 plan --q-len 80 --dim 4 --oracle plugin:./plugin.so,cost_us=100 --json && is calls 100 && is estimated_s 0.01
run 0 plan --q-len 80 --dim 4 --oracle plugin:plugin.so --json && is calls 100
refused 1 '77' run $small --oracle plugin:./plugin.so,fail
# A run that fails leaves no trace: on bad arrays, where the kernel fails, and where something fails after the kernel.
rm -f trace.json
./make_npy wide.npy '<f4' normal:1:2 20 5
refused 1 'wide.npy' run --q q.npy --k wide.npy --v v.npy -o o.npy --oracle plugin:./plugin.so --trace trace.json && untraced
refused 1 'missing.npy' run --q q.npy --k k.npy --v missing.npy -o o.npy --oracle plugin:./plugin.so --trace trace.json && untraced
refused 1 '77' run $small --oracle plugin:./plugin.so,fail --trace trace.json && untraced
refused 1 '77' run $small --oracle plugin:./plugin.so,fail --trace trace.json --threads 2 && untraced
if [ -c /dev/full ]; then
  refused 1 '/dev/full' run --q q.npy --k k.npy --v v.npy -o /dev/full --oracle plugin:./plugin.so --trace trace.json && untraced
  refused 1 '/dev/full' run $small --lse /dev/full --oracle plugin:./plugin.so --trace trace.json && untraced
fi
./make_npy nan.npy '<f4' constant:nan 20 4
"$command" run --q nan.npy --k k.npy --v v.npy -o o.npy --oracle plugin:./plugin.so --verify --json --trace trace.json >stdout 2>stderr
code=$?
[ $code = 1 ] && grep -q NaN stderr && good || bad "NaN passes the comparison of a traced run: exit code $code"
is max_abs_error null && untraced
traced 1 $small --oracle plugin:./plugin.so && mv trace.json kept.json && cp kept.json trace.json
refused 1 '77' run $small --oracle plugin:./plugin.so,fail --trace trace.json
cmp -s kept.json trace.json && good || bad 'a run that fails has changed a trace'
refused 1 '5' plan --q-len 80 --dim 4 --oracle plugin:./plugin.so,refuse
refused 1 'twh_plugin_oracle' plan --q-len 80 --oracle plugin:./empty.so
refused 1 'nowhere.so' plan --q-len 80 --oracle plugin:./nowhere.so
refused 2 'cost_us' plan --q-len 80 --oracle plugin:./plugin.so,cost_us=x

# ---- check ---------------------------------------------------------------------------------------------------------------

for oracle in len=32 len=32,lse len=32,lse2 len=32,causal,v=65 len=32,nomask len=32,mask len=32,dtype=f16,lse \
  len=32,dtype=bf16 slots=2,len=16,qk=8,v=9 len=16,softcap=3; do
  run 0 check --oracle reference,$oracle && has '^promise ' && has ' holds ' && has ' 0 untrue'
done
run 0 check --oracle reference,len=32,lse --json && has '^\[{"promise": ' && has '"verdict": "holds"'
run 0 check --oracle plugin:./plugin.so
run 1 check --oracle plugin:./plugin.so,lie && has ' UNTRUE '
run 1 check --oracle plugin:./plugin.so,lie --json && has '"verdict": "UNTRUE"'
refused 1 '77' check --oracle plugin:./plugin.so,fail
refused 1 'len' check --oracle reference,len=0

# ---- BLIS ----------------------------------------------------------------------------------------------------------------

"$command" plan --q-len 8 --oracle blis >stdout 2>stderr
if grep -q 'built without BLIS' stderr; then
  echo 'built without BLIS: its checks are skipped'
else
  ./make_npy q.npy '<f4' normal:1:1 2 300 64
  ./make_npy k.npy '<f4' normal:1:2 2 300 64
  ./make_npy v.npy '<f4' normal:1:3 2 300 64
  for oracle in lse lse2 v=65 nomask,causal causal,v=65 mask; do
    run 0 run $small --causal --oracle blis,len=128,qk=80,$oracle --verify --json && holds "$bound"
    run 0 run $small --oracle blis,len=128,$oracle --verify=50 --threads 2 --json && holds "$bound"
  done
  run 0 check --oracle blis,len=64,lse
  refused 1 'dtype=f16' plan --q-len 8 --oracle blis,dtype=f16
fi

# ---- sampled keys --------------------------------------------------------------------------------------------------------

kernel=reference,len=64,v=17,nomask,causal
run 0 plan --q-len 1000 --dim 16 --oracle $kernel --json && is method '"exact"' && is sampled_keys 0 && is drawn_tiles 0
run 0 plan --q-len 1000 --dim 16 --method sampled --oracle $kernel --json && is method '"sampled"' && is calls 16 &&
  is sampled_keys 1024 && is drawn_tiles 16
run 0 plan --q-len 1024 --dim 16 --causal --method sampled --oracle $kernel --json && is tiles 31 && is drawn_tiles 14
run 0 plan --q-len 1000 --dim 16 --method sampled --samples 4 --strata 2 --oracle $kernel --json && is calls 64
run 0 plan --q-len 1024 --dim 16 --causal --method hybrid --exact-sinks 70 --exact-window 64 --oracle $kernel && has '^sampled '
run 0 run --random 2 --q-len 700 --q-heads 2 --dim 16 --method sampled --seed 3 --verify --oracle $kernel --json &&
  is method '"sampled"' && is calls 22
sampled=$(json median_rel_error)
run 0 run --random 2 --q-len 700 --q-heads 2 --dim 16 --method sampled --seed 3 --verify --oracle $kernel --json &&
  is median_rel_error "$sampled"
run 0 run --random 2 --q-len 700 --q-heads 2 --dim 16 --method sampled --seed 4 --verify --oracle $kernel --json &&
  if [ "$(json median_rel_error)" = "$sampled" ]; then bad "another seed draws the same keys"; else good; fi
run 0 run --random 2 --q-len 700 --q-heads 2 --dim 16 --method sampled --samples 11 --verify --oracle $kernel --json &&
  is sampled_keys 0 && is method '"sampled"' && holds 'max_abs_error < 1e-5'
run 0 run --random 2 --q-len 700 --dim 16 --causal --method hybrid --verify --oracle $kernel && has 'results are estimates' &&
  has '^error of a row'
run 0 plan --q-len 512 --causal --method hybrid --samples 2 --oracle reference,len=32,v=65,nomask,causal --svg sampled.svg &&
  if grep -q 'class="sampled"' sampled.svg && python3 -c 'import sys, xml.dom.minidom as d; d.parse("sampled.svg")'; then good
  else bad "no drawn keys in the picture"; fi
refused 2 "'some'" plan --q-len 64 --method some --oracle $kernel
refused 2 '--seed goes with' plan --q-len 64 --seed 1 --oracle $kernel
refused 2 '--exact-window goes with' plan --q-len 64 --method sampled --exact-window 3 --oracle $kernel
refused 2 '--samples' plan --q-len 64 --method sampled --samples 0 --oracle $kernel
refused 1 'strata' plan --q-len 64 --method sampled --samples 3 --strata 2 --oracle $kernel

echo "$passed passed, $failed failed"
[ $failed = 0 ]
