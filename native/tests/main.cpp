// Runs all tests, those named, or with `race` a tape that lacks a wait, which TSan has to report. With
// `instruction_sets` it names those of this machine.
#include <cstdio>
#include <cstring>

#include "check.h"
#include "dag.h"
#include "kernels.h"
#include "pool.h"

namespace {

void replay_with_a_wait_missing() {
  nimble::Pool::get().set_workers(2);
  for (unsigned seed = 0; seed < 20; ++seed) {
    Dag dag({.seed = seed, .streams = 2, .tasks = 40, .spin = 2000, .without_wait = 20});
    for (std::uint64_t i = 0; i < 50; ++i) {
      const std::lock_guard held(dag.tape());
      dag.replay(i);
    }
  }
}

bool passes(const Test& test) {
  try {
    test.body();
  } catch (const std::exception& error) {
    std::printf("FAILED %s\n  %s\n", test.name, error.what());
    return false;
  }
  std::printf("ok %s\n", test.name);
  return true;
}

}  // namespace

int main(int count, char** names) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (count == 2 && std::strcmp(names[1], "race") == 0) {
    replay_with_a_wait_missing();
    return 0;
  }
  if (count == 2 && std::strcmp(names[1], "instruction_sets") == 0) {
    for (const std::string& name : nimble::instruction_sets()) std::puts(name.c_str());
    return 0;
  }
  bool passed = true;
  for (const Test& test : all_tests()) {
    bool chosen = count == 1;
    for (int i = 1; i < count; ++i) chosen |= std::strcmp(names[i], test.name) == 0;
    if (chosen) passed &= passes(test);
  }
  return passed ? 0 : 1;
}
