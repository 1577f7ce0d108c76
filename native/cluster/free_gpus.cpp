#include "free_gpus.h"

#include <algorithm>
#include <bit>

namespace nimble::cluster {

int IndexSet::first() const {
  for (std::size_t s = 0; s < summary_.size(); ++s)
    if (summary_[s]) {
      const int word = static_cast<int>(s) * 64 + std::countr_zero(summary_[s]);
      return word * 64 + std::countr_zero(words_[word]);
    }
  return -1;
}

FreeGpus::FreeGpus(std::vector<int> gpus, std::vector<int> parent, int classes)
    : size_(std::move(gpus)), parent_(std::move(parent)), free_(size_), class_(size_.size(), 0),
      open_(size_.size(), 1), members_(parent_.size()), classes_(classes),
      most_(*std::max_element(size_.begin(), size_.end())), count_(parent_.size() * classes, 0) {
  std::vector<int> level(parent_.size(), 0);
  for (std::size_t d = 0; d < parent_.size(); ++d) {
    if (static_cast<std::size_t>(level[d]) >= domains_.size()) domains_.emplace_back();
    domains_[level[d]].push_back(static_cast<int>(d));
    if (parent_[d] >= 0) {
      level[parent_[d]] = level[d] + 1;
      members_[parent_[d]].push_back(static_cast<int>(d));
    }
  }
  with_.assign(static_cast<std::size_t>(classes_) * (most_ + 1), IndexSet(machines()));
  for (int m = 0; m < machines(); ++m) {
    with(0, size_[m]).insert(m);
    show(m, size_[m]);
  }
}

int FreeGpus::in(int domain, std::uint64_t allowed) const {
  int sum = 0;
  for (int c = 0; c < classes_; ++c)
    if (allowed >> c & 1) sum += count_[domain * classes_ + c];
  return sum;
}

bool FreeGpus::fit_machine(int gpus, Choice choice, std::uint64_t allowed, Placement& out) const {
  int found = -1;
  for (int step = 0; step <= most_ - gpus; ++step) {
    const int free = choice == Choice::kMost ? most_ - step : gpus + step;
    for (int c = 0; c < classes_; ++c) {
      if (!(allowed >> c & 1)) continue;
      const int machine = with(c, free).first();
      if (machine >= 0 && (found < 0 || machine < found)) found = machine;
    }
    if (found >= 0 && choice != Choice::kFirst) break;
  }
  if (found < 0) return false;
  out.emplace_back(found, gpus);
  return true;
}

bool FreeGpus::fit(int gpus, int tier, Choice choice, std::uint64_t allowed, Placement& out) const {
  if (gpus < 1 || tier < 0 || tier >= tiers()) return false;
  if (tier == 0) return fit_machine(gpus, choice, allowed, out);
  int best = -1, best_free = 0;
  for (int domain : domains_[tier]) {
    const int free = in(domain, allowed);
    if (free < gpus) continue;
    if (best < 0 || (choice == Choice::kBest ? free < best_free : free > best_free)) {
      best = domain;
      best_free = free;
      if (choice == Choice::kFirst) break;
    }
  }
  if (best < 0) return false;
  place(best, gpus, allowed, out);
  std::sort(out.begin(), out.end());
  return true;
}

void FreeGpus::place(int domain, int gpus, std::uint64_t allowed, Placement& out) const {
  if (domain < machines()) {
    out.emplace_back(domain, gpus);
    return;
  }
  std::vector<int> used;
  while (true) {
    int tight = -1, tight_free = 0, most = -1, most_free = 0;
    for (int member : members_[domain]) {
      const int free = in(member, allowed);
      if (free == 0 || std::find(used.begin(), used.end(), member) != used.end()) continue;
      if (free >= gpus && (tight < 0 || free < tight_free)) tight = member, tight_free = free;
      if (free > most_free) most = member, most_free = free;
    }
    if (tight >= 0) {
      place(tight, gpus, allowed, out);
      return;
    }
    place(most, most_free, allowed, out);
    used.push_back(most);
    gpus -= most_free;
  }
}

int FreeGpus::take(const Placement& placement, bool of_closed) {
  for (auto [machine, gpus] : placement)
    if (machine < 0 || machine >= machines() || gpus < 1 || free_[machine] < gpus ||
        !(open_[machine] || of_closed))
      return machine;
  for (auto [machine, gpus] : placement) set_free(machine, free_[machine] - gpus);
  return -1;
}

int FreeGpus::give(const Placement& placement) {
  for (auto [machine, gpus] : placement)
    if (machine < 0 || machine >= machines() || gpus < 1 || free_[machine] + gpus > size_[machine])
      return machine;
  for (auto [machine, gpus] : placement) set_free(machine, free_[machine] + gpus);
  return -1;
}

void FreeGpus::set_free(int machine, int gpus) {
  const int before = free_[machine];
  free_[machine] = gpus;
  if (!open_[machine]) return;
  with(class_[machine], before).erase(machine);
  with(class_[machine], gpus).insert(machine);
  show(machine, gpus - before);
}

void FreeGpus::show(int machine, int gpus) {
  total_ += gpus;
  for (int domain = machine; domain >= 0; domain = parent_[domain])
    count_[domain * classes_ + class_[machine]] += gpus;
}

void FreeGpus::set_open(int machine, bool open) {
  if (static_cast<bool>(open_[machine]) == open) return;
  open_[machine] = open;
  if (open)
    with(class_[machine], free_[machine]).insert(machine);
  else
    with(class_[machine], free_[machine]).erase(machine);
  show(machine, open ? free_[machine] : -free_[machine]);
}

void FreeGpus::set_class(int machine, int new_class) {
  const bool was_open = open_[machine];
  set_open(machine, false);
  class_[machine] = new_class;
  set_open(machine, was_open);
}

}  // namespace nimble::cluster
