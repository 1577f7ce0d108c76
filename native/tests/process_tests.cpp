// fork(), sleep, affinity and cores: how a replay lives with its process.
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <mutex>
#include <thread>

#include "check.h"
#include "cores.h"
#include "dag.h"
#include "pool.h"
#include "replay.h"

using nimble::Pool;

namespace {

// ThreadSanitizer cannot start threads in the child of a process that has several.
#if defined(__SANITIZE_THREAD__)
constexpr std::size_t kWorkersInChild = 1;
#else
constexpr std::size_t kWorkersInChild = 3;
#endif

bool child_succeeds(const std::function<void()>& body) {
  const pid_t child = fork();
  if (child == 0) {
    int status = 0;
    try {
      Pool::get().set_workers(kWorkersInChild);
      body();
    } catch (const std::exception& error) {
      std::fprintf(stderr, "in the child: %s\n", error.what());
      status = 1;
    }
    _exit(status);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void replay_often(Dag& dag) {
  for (std::uint64_t i = 0; i < 100; ++i) dag.replay_and_check(i);
}

std::chrono::microseconds cpu_time() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return std::chrono::seconds(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         std::chrono::microseconds(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void write(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST(a_child_replays_before_and_after_its_parent_has) {
  CHECK(child_succeeds([] {
    Dag dag({.seed = 1, .streams = 3, .tasks = 30});
    replay_often(dag);
  }));
  Pool::get().set_workers(3);
  Dag dag({.seed = 1, .streams = 3, .tasks = 30});
  for (int i = 0; i < 5; ++i) {
    replay_often(dag);
    CHECK(child_succeeds([&] {
      CHECK(Pool::get().size() == 0);
      replay_often(dag);
      CHECK(Pool::get().size() == kWorkersInChild - 1);
      CHECK(child_succeeds([&] { replay_often(dag); }));
      replay_often(dag);
    }));
  }
  replay_often(dag);
}

TEST(a_child_replays_when_other_threads_of_the_parent_are_replaying) {
  Pool::get().set_workers(3);
  Dag shared({.seed = 2, .streams = 3, .tasks = 30}), other({.seed = 3, .streams = 3, .tasks = 30});
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (Dag* dag : {&shared, &other, &shared}) {
    threads.emplace_back([&stop, dag] {
      for (std::uint64_t i = 0; !stop; ++i) dag->replay_and_check(i);
    });
  }
  bool all = true;
  for (int i = 0; i < 20; ++i) {
    all &= child_succeeds([&] {
      replay_often(shared);
      replay_often(other);
    });
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(all);
}

TEST(a_kernel_may_fork) {
  nimble::Tape tape(1, 1, 0);
  tape.call(0, 0, [](void*) { CHECK(child_succeeds([] {})); }, nullptr);
  tape.finish();
  const std::lock_guard held(tape);
  nimble::replay(tape);
}

TEST(an_idle_pool_burns_no_cpu) {
  Pool::get().set_workers(4);
  Dag dag({.seed = 1, .streams = 4, .tasks = 30});
  replay_often(dag);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto before = cpu_time();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  CHECK(cpu_time() - before < std::chrono::milliseconds(3));
}

TEST(the_caller_keeps_its_affinity_and_helpers_have_one_core_each) {
  cpu_set_t before, after;
  pthread_getaffinity_np(pthread_self(), sizeof before, &before);
  Pool::get().set_workers(2);
  static std::atomic<int> meeting, helper_cores;
  meeting = 0;
  nimble::Tape tape(2, 2, 0);
  const auto look = [](void*) {
    meeting.fetch_add(1);
    while (meeting.load() < 2) std::this_thread::yield();
    cpu_set_t mine;
    pthread_getaffinity_np(pthread_self(), sizeof mine, &mine);
    if (gettid() != getpid()) helper_cores = CPU_COUNT(&mine);
  };
  tape.call(0, 0, look, nullptr);
  tape.call(1, 1, look, nullptr);
  tape.finish();
  nimble::replay(tape);
  pthread_getaffinity_np(pthread_self(), sizeof after, &after);
  CHECK(CPU_EQUAL(&before, &after));
  CHECK(helper_cores == 1);
}

TEST(quotas_of_control_groups_limit_the_cores) {
  char name[] = "/tmp/nimble-cores-XXXXXX";
  const std::filesystem::path root = mkdtemp(name);
  CHECK(std::isinf(nimble::cpu_quota(root)));

  write(root / "proc/self/mountinfo",
        "30 20 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw\n");
  write(root / "proc/self/cgroup", "0::/batch/job\n");
  write(root / "sys/fs/cgroup/batch/job/cpu.max", "max 100000\n");
  CHECK(std::isinf(nimble::cpu_quota(root)));
  write(root / "sys/fs/cgroup/batch/cpu.max", "250000 100000\n");
  CHECK(nimble::cpu_quota(root) == 2.5);
  write(root / "sys/fs/cgroup/batch/job/cpu.max", "50000 100000\n");
  CHECK(nimble::cpu_quota(root) == 0.5);

  // As inside a container: the group's path does not show in the mount.
  write(root / "proc/self/mountinfo",
        "31 20 0:27 /docker/4f /sys/fs/cgroup/cpu,cpuacct ro - cgroup cgroup rw,cpu,cpuacct\n");
  write(root / "proc/self/cgroup", "4:cpu,cpuacct:/docker/4f\n5:memory:/docker/4f\n");
  write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
  write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
  CHECK(std::isinf(nimble::cpu_quota(root)));
  write(root / "sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "300000\n");
  CHECK(nimble::cpu_quota(root) == 3);
  std::filesystem::remove_all(root);
  CHECK(nimble::usable_cores() >= 1);
}
