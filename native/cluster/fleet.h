// The running jobs: what they hold, how fast they go, when they will end.
#pragma once

#include <cstdint>
#include <limits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "agenda.h"
#include "free_gpus.h"
#include "links.h"

namespace nimble::cluster {

// Progress is (t0, done, rate): nothing is stepped, only changed rates move a job's end.
class Fleet {
 public:
  static constexpr double kNever = std::numeric_limits<double>::infinity();

  Fleet(std::vector<int> gpus, std::vector<int> parent, std::vector<double> capacity, bool contention,
        double checkpoint_every, int classes)
      : free(std::move(gpus), std::move(parent), classes), links(std::move(capacity)),
        contention_(contention), checkpoint_every_(checkpoint_every) {}

  // From `at` on, `speed` units of work a second alone, until `total` are done. Its bytes count from now on.
  void begin(long long job, double now, double at, double done, double total, double speed, double demand,
             Traffic traffic);
  double end(long long job, double now);   // the work done
  double fail(long long job, double now);  // the work saved by its last checkpoint
  double done(long long job, double now) const;
  double share(long long job) const;
  // After jobs came and went at `now`: makes rates fair, moves ends. `changed`: (job, share of its speed alone).
  void settle(double now, std::vector<std::pair<long long, double>>& changed);
  std::pair<double, long long> next() const;
  double probe(double demand, Traffic traffic) { return links.probe(demand, std::move(traffic)) / demand; }

  // Sum over links of the time with two jobs or more; sum over jobs of the time slower than alone.
  double shared_link_s(double now) const { return shared_s_ + (now - counted_) * links.shared(); }
  double slowed_s(double now) const { return slowed_s_ + (now - counted_) * slowed_; }
  int running() const { return static_cast<int>(slots_.size()); }

  FreeGpus free;
  Links links;

 private:
  struct Run {
    long long job = -1;
    double t0 = 0, done = 0, total = 0, speed = 0, share = 1, demand = 0;
    double begun = 0, saved = 0;
  };

  int slot(long long job) const;
  double done_at(const Run& run, double now) const;
  void advance(Run& run, double now);
  void schedule(int slot);
  void count(double now);
  void drop(long long job, int slot, double now);

  std::unordered_map<long long, int> slots_;
  std::vector<Run> runs_;
  std::vector<int> unused_;
  Agenda agenda_;
  bool contention_;
  double checkpoint_every_;
  double counted_ = 0, shared_s_ = 0, slowed_s_ = 0;
  int slowed_ = 0;
};

}  // namespace nimble::cluster
