#!/bin/sh
# Runs the native tests under ThreadSanitizer and AddressSanitizer with UBSan and LeakSanitizer,
# and makes sure that ThreadSanitizer reports a tape that lacks a wait.
#
#   native/sanitize.sh [build directory, default build]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}

# Kernels are compiled for three instruction sets, each checked access by access: -O1 and short debug
# information keep that to minutes.
configure_and_build() {  # name, sanitizers
  cmake -S native/tests -B "$build/$1" -DCMAKE_BUILD_TYPE=None \
    -DCMAKE_CXX_FLAGS="-O1 -g1 -fno-omit-frame-pointer -fno-sanitize-recover=all -fsanitize=$2" >/dev/null
  cmake --build "$build/$1" --parallel 2
}

# ThreadSanitizer cannot always place its memory where addresses are randomised.
plain_addresses() { setarch "$(uname -m)" -R "$@"; }

configure_and_build tsan thread
export TSAN_OPTIONS="die_after_fork=0 exitcode=66"
plain_addresses "$build/tsan/native_tests"

if plain_addresses "$build/tsan/native_tests" race >"$build/tsan/race.log" 2>&1 ||
  ! grep -q "data race" "$build/tsan/race.log"; then
  echo "ThreadSanitizer did not report the missing wait: see $build/tsan/race.log" >&2
  exit 1
fi
echo "ok ThreadSanitizer reports the missing wait"

configure_and_build asan address,undefined
export UBSAN_OPTIONS="print_stacktrace=1"
for isa in $("$build/asan/native_tests" instruction_sets); do
  # GCC 12 aligns what it moves off the stack, to see a use after return, to 32 bytes only.
  after_return=$([ "$isa" = avx512 ] && echo 0 || echo 1)
  ASAN_OPTIONS="detect_leaks=1 detect_stack_use_after_return=$after_return" \
    NIMBLE_ISA=$isa "$build/asan/native_tests"
done
echo "sanitizers found nothing"
