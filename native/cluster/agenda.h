// When each running job will end: a heap in which any entry can be moved or taken out.
#pragma once

#include <utility>
#include <vector>

namespace nimble::cluster {

// Slots are small numbers chosen by the caller; equal times go by `tie`.
class Agenda {
 public:
  bool empty() const { return heap_.empty(); }
  int top() const { return heap_[0]; }
  double time(int slot) const { return entries_[slot].time; }

  void set(int slot, double time, long long tie) {
    if (slot >= static_cast<int>(entries_.size())) entries_.resize(slot + 1);
    Entry& entry = entries_[slot];
    entry.time = time;
    entry.tie = tie;
    if (entry.at < 0) {
      entry.at = static_cast<int>(heap_.size());
      heap_.push_back(slot);
    }
    down(up(entry.at));
  }

  void erase(int slot) {
    const int at = entries_[slot].at;
    entries_[slot].at = -1;
    const int last = heap_.back();
    heap_.pop_back();
    if (last == slot) return;
    put(last, at);
    down(up(at));
  }

 private:
  struct Entry {
    double time = 0;
    long long tie = 0;
    int at = -1;
  };

  bool before(int a, int b) const {
    const Entry &x = entries_[a], &y = entries_[b];
    return x.time != y.time ? x.time < y.time : x.tie < y.tie;
  }
  void put(int slot, int at) {
    heap_[at] = slot;
    entries_[slot].at = at;
  }
  int up(int at) {
    const int slot = heap_[at];
    while (at && before(slot, heap_[(at - 1) / 2])) {
      put(heap_[(at - 1) / 2], at);
      at = (at - 1) / 2;
    }
    put(slot, at);
    return at;
  }
  void down(int at) {
    const int slot = heap_[at], size = static_cast<int>(heap_.size());
    for (int child; (child = 2 * at + 1) < size; at = child) {
      if (child + 1 < size && before(heap_[child + 1], heap_[child])) ++child;
      if (!before(heap_[child], slot)) break;
      put(heap_[child], at);
    }
    put(slot, at);
  }

  std::vector<Entry> entries_;
  std::vector<int> heap_;
};

}  // namespace nimble::cluster
