// The free GPUs of every machine, indexed so that "where do g GPUs fit" is answered without a scan of the machines.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace nimble::cluster {

using Placement = std::vector<std::pair<int, int>>;  // (machine, gpus), machines ascending

// A set of small integers that knows its smallest member.
class IndexSet {
 public:
  explicit IndexSet(int size) : words_((size + 63) / 64), summary_((words_.size() + 63) / 64) {}
  void insert(int i) {
    words_[i >> 6] |= bit(i);
    summary_[i >> 12] |= bit(i >> 6);
  }
  void erase(int i) {
    if (!(words_[i >> 6] &= ~bit(i))) summary_[i >> 12] &= ~bit(i >> 6);
  }
  int first() const;  // -1 if empty

 private:
  static std::uint64_t bit(int i) { return std::uint64_t{1} << (i & 63); }
  std::vector<std::uint64_t> words_, summary_;
};

enum class Choice { kBest, kFirst, kMost };

// Domains are numbered as in topology.py: machines first, every domain before the one above it.
class FreeGpus {
 public:
  FreeGpus(std::vector<int> gpus, std::vector<int> parent, int classes);

  // GPUs that are free on open machines whose class is in `allowed` (a bit mask).
  int in(int domain, std::uint64_t allowed) const;
  int total() const { return total_; }
  int left(int machine) const { return free_[machine]; }

  // As nimble/cluster/fit.py has it. False: does not fit.
  bool fit(int gpus, int tier, Choice choice, std::uint64_t allowed, Placement& out) const;

  // The first machine without that many free GPUs, or -1: then they are taken.
  int take(const Placement& placement, bool of_closed = false);
  // The same, the other way round: more than a machine has cannot be given back.
  int give(const Placement& placement);
  // A closed machine offers nothing; what is given back to it stays there until it opens.
  void set_open(int machine, bool open);
  void set_class(int machine, int new_class);

  int domains() const { return static_cast<int>(parent_.size()); }
  int classes() const { return classes_; }
  int machines() const { return static_cast<int>(size_.size()); }
  int tiers() const { return static_cast<int>(domains_.size()); }

 private:
  bool fit_machine(int gpus, Choice choice, std::uint64_t allowed, Placement& out) const;
  void place(int domain, int gpus, std::uint64_t allowed, Placement& out) const;
  void show(int machine, int gpus);  // adds to what the machine offers; negative takes away
  void set_free(int machine, int gpus);
  IndexSet& with(int machine_class, int free) { return with_[machine_class * (most_ + 1) + free]; }
  const IndexSet& with(int machine_class, int free) const {
    return with_[machine_class * (most_ + 1) + free];
  }

  std::vector<int> size_, parent_, free_, class_;
  std::vector<char> open_;
  std::vector<std::vector<int>> domains_;  // of each tier
  std::vector<std::vector<int>> members_;  // of each domain
  int classes_, most_, total_ = 0;
  std::vector<int> count_;      // domain x class: free on open machines
  std::vector<IndexSet> with_;  // class x free GPUs: open machines
};

}  // namespace nimble::cluster
