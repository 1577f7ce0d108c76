// Several callers, several tapes, tapes that go away.
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>

#include "check.h"
#include "dag.h"
#include "hooks.h"
#include "pool.h"
#include "replay.h"

using nimble::Pool;

namespace {

// Runs the body in so many threads; throws what one of them threw.
void in_threads(int count, const std::function<void(unsigned)>& body) {
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < static_cast<unsigned>(count); ++i) {
    threads.emplace_back([&, i] {
      try {
        body(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
}

}  // namespace

TEST(several_tapes_at_once) {
  Pool::get().set_workers(3);
  in_threads(4, [](unsigned i) {
    Dag dag({.seed = i, .streams = 3, .tasks = 50});
    for (std::uint64_t k = 0; k < 300; ++k) dag.replay_and_check(k);
  });
}

TEST(eight_threads_on_one_tape) {
  Pool::get().set_workers(3);
  Dag dag({.seed = 7, .streams = 3, .tasks = 50});
  in_threads(8, [&](unsigned i) {
    for (std::uint64_t k = 0; k < 100; ++k) dag.replay_and_check(1000 * i + k);
  });
}

TEST(a_tape_whose_helpers_are_taken_is_replayed_by_its_caller_alone) {
  Pool::get().set_workers(2);
  struct Gate {
    std::atomic<int> waiting{0};
    std::atomic<bool> open{false};
  } gate;
  const auto wait_at_gate = [](void* context) {
    Gate& gate = *static_cast<Gate*>(context);
    gate.waiting.fetch_add(1);
    while (!gate.open.load()) std::this_thread::yield();
  };
  nimble::Tape held_up(2, 2, 0);
  held_up.call(0, 0, wait_at_gate, &gate);
  held_up.call(1, 1, wait_at_gate, &gate);
  held_up.finish();
  std::thread other([&] { nimble::replay(held_up); });
  while (gate.waiting.load() < 2) std::this_thread::yield();
  Dag dag({.seed = 4, .streams = 2, .tasks = 30});
  for (std::uint64_t k = 0; k < 100; ++k) dag.replay_and_check(k);
  gate.open = true;
  other.join();
}

TEST(a_helper_that_comes_late_holds_nobody_up) {
  static std::atomic<bool> open;
  static const std::thread::id caller = std::this_thread::get_id();
  open = false;
  nimble::set_thread_hooks({[]() -> void* {
                              while (std::this_thread::get_id() != caller && !open.load()) {
                                std::this_thread::yield();
                              }
                              return nullptr;
                            },
                            [](void*) {}});
  Pool::get().set_workers(3);
  Dag dag({.seed = 6, .streams = 3, .tasks = 30});
  for (std::uint64_t k = 0; k < 100; ++k) dag.replay_and_check(k);
  open = true;
  for (std::uint64_t k = 0; k < 100; ++k) dag.replay_and_check(k);
  nimble::set_thread_hooks({nullptr, nullptr});
}

TEST(a_tape_may_be_deleted_right_after_its_replay) {
  Pool::get().set_workers(4);
  in_threads(2, [](unsigned i) {
    for (unsigned k = 0; k < 150; ++k) {
      Dag dag({.seed = 200 * i + k, .streams = 4, .tasks = 12});
      dag.replay_and_check(k);
    }
  });
}

TEST(a_kernel_may_replay_another_tape) {
  Pool::get().set_workers(2);
  Dag inner({.seed = 1, .streams = 2, .tasks = 20});
  nimble::Tape outer(2, 2, 0);
  const auto replay_inner = [](void* dag) { static_cast<Dag*>(dag)->replay_and_check(5); };
  outer.call(0, 0, replay_inner, &inner);
  outer.call(1, 1, replay_inner, &inner);
  outer.finish();
  for (int i = 0; i < 50; ++i) {
    const std::lock_guard held(outer);
    nimble::replay(outer);
  }
}
