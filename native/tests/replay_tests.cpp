// Replays give the results of running in sequence, however many threads there are.
#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "check.h"
#include "dag.h"
#include "hooks.h"
#include "pool.h"
#include "replay.h"

using nimble::Pool;
using nimble::Tape;

namespace {

// Sanitizers make everything slower.
constexpr std::uint64_t kReplays = 1000;

void count(void* context) { static_cast<std::atomic<int>*>(context)->fetch_add(1); }

// Two tasks that need a thread each: neither ends before both have begun.
void meet(void* context) {
  auto& here = *static_cast<std::atomic<int>*>(context);
  here.fetch_add(1);
  while (here.load() < 2) std::this_thread::yield();
}

// A task for each thread, none of which ends before all have begun.
void need_threads(int threads) {
  struct Meeting {
    int wanted;
    std::atomic<int> here{0};
  } meeting{threads};
  Tape tape(threads, threads, 0);
  for (int task = 0; task < threads; ++task) {
    tape.call(task, task, [](void* context) {
      Meeting& meeting = *static_cast<Meeting*>(context);
      meeting.here.fetch_add(1);
      while (meeting.here.load() < meeting.wanted) std::this_thread::yield();
    }, &meeting);
  }
  tape.finish();
  nimble::replay(tape);
}

}  // namespace

TEST(random_networks_replay_as_in_sequence) {
  for (std::size_t workers = 1; workers <= 4; ++workers) {
    Pool::get().set_workers(workers);
    for (unsigned seed = 0; seed < 6; ++seed) {
      const int streams = 1 + static_cast<int>(seed);
      Dag dag({.seed = seed, .streams = streams, .tasks = 60});
      for (std::uint64_t i = 0; i < kReplays; ++i) dag.replay_and_check(i);
    }
  }
}

TEST(long_tasks_replay_as_in_sequence) {
  Pool::get().set_workers(3);
  for (unsigned seed = 10; seed < 14; ++seed) {
    Dag dag({.seed = seed, .streams = 4, .tasks = 40, .spin = 3000});
    for (std::uint64_t i = 0; i < 30; ++i) dag.replay_and_check(i);
  }
}

TEST(helpers_come_whether_they_were_polling_asleep_or_about_to_sleep) {
  Pool::get().set_workers(4);
  Dag dag({.seed = 3, .streams = 4, .tasks = 30});
  for (std::uint64_t i = 0; i < 200; ++i) {
    dag.replay_and_check(i);
    std::this_thread::sleep_for(std::chrono::microseconds((i * 7) % 300));
    if (i % 4 == 0) need_threads(4);
  }
}

TEST(more_streams_than_threads) {
  Pool::get().set_workers(2);
  Dag dag({.seed = 5, .streams = 16, .tasks = 200});
  for (std::uint64_t i = 0; i < kReplays; ++i) dag.replay_and_check(i);
}

TEST(an_empty_tape_and_empty_streams) {
  Pool::get().set_workers(4);
  Tape empty(3, 0, 0);
  empty.finish();
  nimble::replay(empty);

  std::atomic<int> calls{0};
  Tape sparse(4, 2, 0);
  sparse.call(1, 0, count, &calls);
  sparse.wait(3, 0);
  sparse.call(3, 1, count, &calls);
  sparse.finish();
  for (int i = 0; i < 100; ++i) nimble::replay(sparse);
  CHECK(calls == 200);
}

TEST(a_sleeping_thread_is_woken_when_its_stream_is_ready) {
  // The helper sleeps, since task 0 takes long; then tasks 1 and 2 need two threads to meet.
  Pool::get().set_workers(2);
  std::atomic<int> met{0};
  Tape tape(2, 3, 0);
  tape.call(0, 0, [](void* context) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    static_cast<std::atomic<int>*>(context)->store(0);
  }, &met);
  tape.call(0, 1, meet, &met);
  tape.wait(1, 0);
  tape.call(1, 2, meet, &met);
  tape.finish();
  for (int i = 0; i < 20; ++i) nimble::replay(tape);
}

TEST(the_caller_passes_its_time_where_it_waits) {
  // One thread each, since tasks 0 and 1 meet; then the caller waits for task 2, which takes long.
  Pool::get().set_workers(2);
  std::atomic<int> met{0};
  Tape tape(2, 4, 0);
  tape.call(0, 0, meet, &met);
  tape.call(1, 1, meet, &met);
  tape.call(1, 2, [](void*) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); }, nullptr);
  tape.wait(0, 2);
  tape.call(0, 3, [](void* context) { static_cast<std::atomic<int>*>(context)->store(0); }, &met);
  tape.finish();
  struct Pages {
    std::thread::id reader;
    int left;
    bool alone = true;
  } pages{std::this_thread::get_id(), 0};
  const nimble::Pastime reading{[](void* context) {
    Pages& pages = *static_cast<Pages*>(context);
    pages.alone &= std::this_thread::get_id() == pages.reader;
    return pages.left > 0 && --pages.left > 0;
  }, &pages};
  // Not in every replay: the system may have had other plans for the caller's core.
  int read = 0;
  for (int i = 0; i < 20; ++i) {
    pages.left = 100;
    nimble::replay(tape, &reading);
    read += pages.left == 0;
    CHECK(pages.alone);
  }
  CHECK(read > 0);
  pages.left = 100;
  met = 0;
  nimble::replay(tape);
  CHECK(pages.left == 100);
}

TEST(record_gives_times_in_an_order_that_the_waits_allow) {
  Pool::get().set_workers(2);
  std::atomic<int> calls{0};
  Tape tape(2, 4, 0);
  tape.call(0, 0, count, &calls);
  tape.wait(1, 0);
  tape.call(1, 1, count, &calls);
  tape.wait(0, 1);
  tape.call(0, 2, count, &calls);
  tape.call(1, 3, count, &calls);
  tape.finish();
  const auto spans = nimble::record(tape);
  CHECK(spans.size() == 4 && calls == 4);
  std::vector<nimble::Span> by_task(4);
  for (const auto& span : spans) by_task[span.task] = span;
  for (const auto& span : by_task) CHECK(span.start_ns <= span.stop_ns && span.thread < 2);
  CHECK(by_task[0].stop_ns <= by_task[1].start_ns);
  CHECK(by_task[1].stop_ns <= by_task[2].start_ns);
  CHECK(by_task[1].stop_ns <= by_task[3].start_ns);
}

TEST(hooks_are_entered_and_left_by_every_thread_around_its_part) {
  static std::atomic<int> entered, left;
  static thread_local bool inside = false;
  static std::atomic<bool> every_task_inside;
  entered = left = 0;
  every_task_inside = true;
  nimble::set_thread_hooks({[]() -> void* {
                              inside = true;
                              entered.fetch_add(1);
                              return &entered;
                            },
                            [](void* token) {
                              inside = false;
                              if (token == &entered) left.fetch_add(1);
                            }});
  Pool::get().set_workers(3);
  Tape tape(3, 30, 0);
  for (int task = 0; task < 30; ++task) {
    tape.call(task % 3, task, [](void*) {
      if (!inside) every_task_inside = false;
    }, nullptr);
  }
  tape.finish();
  for (int i = 0; i < 100; ++i) nimble::replay(tape);
  nimble::set_thread_hooks({nullptr, nullptr});
  for (int i = 0; i < 1000 && entered != left; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(every_task_inside);
  CHECK(entered >= 100 && entered == left);
}
