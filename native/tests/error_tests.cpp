// What a tape refuses, and what a failing kernel leaves behind.
#include <atomic>
#include <mutex>

#include "check.h"
#include "dag.h"
#include "pool.h"
#include "replay.h"

using nimble::Pool;
using nimble::Tape;

namespace {

void nothing(void*) {}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST(the_first_failure_reaches_the_caller_and_the_tape_works_on) {
  for (std::size_t workers = 1; workers <= 4; ++workers) {
    Pool::get().set_workers(workers);
    for (int fails = 0; fails < 60; fails += 7) {
      Dag failing({.seed = 1, .streams = 4, .tasks = 60, .fails = fails});
      for (int i = 0; i < 20; ++i) {
        CHECK(refusal([&] { failing.replay_and_check(1); }) == "task failed");
        CHECK(failing.tape().failed_task == static_cast<std::uint32_t>(fails));
      }
    }
  }
}

TEST(a_failure_of_one_replay_is_forgotten_by_the_next) {
  Pool::get().set_workers(2);
  struct Counts {
    bool fail = false;
    std::atomic<int> later = 0;
  } counts;
  const auto fail_if_told = [](void* context) {
    if (static_cast<Counts*>(context)->fail) throw std::runtime_error("no");
  };
  const auto count = [](void* context) { static_cast<Counts*>(context)->later.fetch_add(1); };
  Tape tape(2, 3, 0);
  tape.call(0, 0, fail_if_told, &counts);
  tape.wait(1, 0);
  tape.call(1, 1, count, &counts);
  tape.call(0, 2, count, &counts);
  tape.finish();
  for (int i = 0; i < 100; ++i) {
    counts.fail = i % 2 == 1;
    counts.later = 0;
    if (counts.fail) {
      CHECK(refusal([&] { nimble::replay(tape); }) == "no");
      CHECK(tape.failed_task == 0u && counts.later == 0);
    } else {
      nimble::replay(tape);
      CHECK(!tape.failed_task && counts.later == 2);
    }
  }
}

TEST(waits_that_cannot_be_satisfied_are_refused) {
  Tape unknown(2, 3, 0);
  unknown.wait(0, 2);
  unknown.call(0, 0, nothing, nullptr);
  CHECK(refusal([&] { unknown.finish(); }) ==
        "task 0 on stream 0 waits for task 2, which is on no stream");

  Tape trailing(2, 2, 0);
  trailing.call(0, 0, nothing, nullptr);
  trailing.wait(1, 0);
  CHECK(contains(refusal([&] { trailing.finish(); }), "stream 1 ends with a wait for task 0"));

  Tape own_future(1, 2, 0);
  own_future.wait(0, 1);
  own_future.call(0, 0, nothing, nullptr);
  own_future.call(0, 1, nothing, nullptr);
  CHECK(refusal([&] { own_future.finish(); }) ==
        "the waits form a deadlock: task 0 after task 1 after task 0");

  Tape crossed(2, 5, 0);
  crossed.call(0, 4, nothing, nullptr);
  crossed.wait(0, 3);
  crossed.call(0, 0, nothing, nullptr);
  crossed.call(0, 1, nothing, nullptr);
  crossed.wait(1, 1);
  crossed.call(1, 2, nothing, nullptr);
  crossed.call(1, 3, nothing, nullptr);
  const std::string message = refusal([&] { crossed.finish(); });
  CHECK(contains(message, "task 1 after task 0 after task 3 after task 2 after task 1") ||
        contains(message, "task 0 after task 3 after task 2 after task 1 after task 0"));
}

TEST(misuse_is_refused) {
  Tape tape(1, 2, 1);
  CHECK(contains(refusal([&] { nimble::replay(tape); }), "not finished"));
  CHECK(contains(refusal([&] { tape.call(1, 0, nothing, nullptr); }), "stream 1 is out of range"));
  CHECK(contains(refusal([&] { tape.call(0, 2, nothing, nullptr); }), "task 2 is out of range"));
  tape.call(0, 0, nothing, nullptr);
  CHECK(contains(refusal([&] { tape.call(0, 0, nothing, nullptr); }), "already on stream 0"));
  tape.native(0, 1, "copy_strided", {{0, 0}, {0, 8}}, {1, 1, 8, 1, 1, 0}, {});
  tape.finish();
  CHECK(contains(refusal([&] { tape.wait(0, 0); }), "finished"));
  CHECK(contains(refusal([&] { nimble::replay(tape); }), "slot 0"));
  char bytes[16] = "........copied!";
  tape.set_slot(0, bytes);
  nimble::replay(tape);
  CHECK(std::string(bytes) == "copied!");
}
