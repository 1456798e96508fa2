#!/bin/sh
# Make sure that what a make target needs is installed: packages.sh demo | minilm | peers | check | all
#
# Looks for the thing itself, not for a package, so that a compiler or a BLIS from elsewhere counts. What is missing is
# installed with apt-get where the user may (root, or sudo without a password); else this prints the one line to run.
# libblis-serial-dev is the variant without threads: the library never asks BLIS for any, and so none of BLIS's comes along.
set -u

what=${1:-all}
CC=${CC:-cc}
missing=

has_command() { command -v "$1" >/dev/null 2>&1; }
has_header() { $CC -D_POSIX_C_SOURCE=200809L $2 -include "$1" -x c -E /dev/null >/dev/null 2>&1; }
need() { case " $missing " in *" $1 "*) ;; *) missing="$missing $1" ;; esac; }

look() {
  missing=
  has_command "${CC%% *}" && has_header stdio.h "" || need build-essential
  blis_flags=$(pkg-config --cflags blis 2>/dev/null || echo "-I/usr/include/blis -I/usr/local/include/blis")
  [ "${BLIS:-auto}" = no ] || has_header blis.h "$blis_flags" || need libblis-serial-dev
  [ "$what" = demo ] && return
  [ "$what" = check ] || python3 -m pip --version >/dev/null 2>&1 || need python3-pip
  [ "$what" = minilm ] && return
  [ "$what" = check ] || python3 -c 'import ensurepip' 2>/dev/null || need python3-venv
  [ "$what" = peers ] && return
  has_command g++ || need build-essential
  has_command pkg-config || need pkg-config
  has_command meson || need meson
  has_command ninja || need ninja-build
  has_header cmocka.h "-include stdarg.h -include stddef.h -include stdint.h -include setjmp.h" || need libcmocka-dev
  has_command python3 || need python3
  [ "$what" = check ] && return
  has_command clang && has_command clang++ || need clang
  has_command clang-format || need clang-format
}

case $what in
  demo | minilm | peers | check | all) ;;
  *) echo "usage: packages.sh demo | minilm | peers | check | all" >&2; exit 2 ;;
esac

look
[ -z "$missing" ] && exit 0
as_root=
if [ "$(id -u)" != 0 ]; then as_root="sudo "; fi
install="${as_root}apt-get update && ${as_root}apt-get install -y --no-install-recommends$missing"

if ! has_command apt-get; then
  echo "Missing here, by their Debian names:$missing" >&2
  exit 1
fi
if [ -n "$as_root" ] && ! sudo -n true 2>/dev/null; then
  echo "Missing:$missing. Run this, then make again:" >&2
  echo "  $install" >&2
  exit 1
fi

echo "Installing:$missing"
export DEBIAN_FRONTEND=noninteractive
# The package lists of a fresh machine are empty or old; a failing update alone is not the end.
${as_root:+sudo -n} apt-get update -qq || true
if ! ${as_root:+sudo -n} apt-get install -y -qq --no-install-recommends $missing >/dev/null; then
  echo "apt-get failed. Run this, then make again:" >&2
  echo "  $install" >&2
  exit 1
fi
look
[ -z "$missing" ] && exit 0
echo "Still missing after the installation:$missing" >&2
exit 1
