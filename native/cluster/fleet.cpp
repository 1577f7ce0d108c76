#include "fleet.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

namespace nimble::cluster {

int Fleet::slot(long long job) const {
  auto found = slots_.find(job);
  if (found == slots_.end()) throw std::out_of_range("job " + std::to_string(job) + " does not run");
  return found->second;
}

double Fleet::done_at(const Run& run, double now) const {
  if (now <= run.t0) return run.done;
  return std::min(run.total, run.done + (now - run.t0) * run.speed * run.share);
}

// Brings (t0, done) to now; a checkpoint in between is remembered.
void Fleet::advance(Run& run, double now) {
  if (now <= run.t0) return;
  if (checkpoint_every_ < kNever) {
    const double last = run.begun + std::floor((now - run.begun) / checkpoint_every_) * checkpoint_every_;
    if (last > run.t0) run.saved = done_at(run, last);
  }
  run.done = done_at(run, now);
  run.t0 = now;
}

void Fleet::schedule(int slot) {
  const Run& run = runs_[slot];
  agenda_.set(slot, run.t0 + std::max(0.0, run.total - run.done) / (run.speed * run.share), run.job);
}

void Fleet::count(double now) {
  shared_s_ = shared_link_s(now);
  slowed_s_ = slowed_s(now);
  counted_ = now;
}

void Fleet::begin(long long job, double now, double at, double done, double total, double speed,
                  double demand, Traffic traffic) {
  if (slots_.contains(job)) throw std::invalid_argument("job " + std::to_string(job) + " runs already");
  int s;
  if (unused_.empty()) {
    s = static_cast<int>(runs_.size());
    runs_.emplace_back();
  } else {
    s = unused_.back();
    unused_.pop_back();
  }
  slots_.emplace(job, s);
  runs_[s] = Run{job, at, done, total, speed, 1.0, demand, at, done};
  if (contention_ && !traffic.empty()) {
    count(now);
    links.add(s, demand, std::move(traffic));
  }
  schedule(s);
}

void Fleet::drop(long long job, int s, double now) {
  if (links.has(s)) {
    count(now);
    slowed_ -= runs_[s].share < 1;
    links.remove(s);
  }
  agenda_.erase(s);
  slots_.erase(job);
  unused_.push_back(s);
}

double Fleet::end(long long job, double now) {
  const int s = slot(job);
  const double done = done_at(runs_[s], now);
  drop(job, s, now);
  return done;
}

double Fleet::fail(long long job, double now) {
  const int s = slot(job);
  advance(runs_[s], now);
  const double saved = runs_[s].saved;
  drop(job, s, now);
  return saved;
}

double Fleet::done(long long job, double now) const { return done_at(runs_[slot(job)], now); }

double Fleet::share(long long job) const { return runs_[slot(job)].share; }

void Fleet::settle(double now, std::vector<std::pair<long long, double>>& changed) {
  std::vector<std::pair<int, double>> rates;
  links.settle(rates);
  if (rates.empty()) return;
  count(now);
  for (auto [s, rate] : rates) {
    Run& run = runs_[s];
    advance(run, now);
    slowed_ -= run.share < 1;
    run.share = std::min(1.0, rate / run.demand);
    slowed_ += run.share < 1;
    schedule(s);
    changed.emplace_back(run.job, run.share);
  }
}

std::pair<double, long long> Fleet::next() const {
  if (agenda_.empty()) return {kNever, -1};
  return {agenda_.time(agenda_.top()), runs_[agenda_.top()].job};
}

}  // namespace nimble::cluster
