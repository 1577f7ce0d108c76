// A random network of tasks with real data dependencies, and the tape that replays it.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "tape.h"

// Replays and checks allocate no memory: under AddressSanitizer, a child forked while another thread
// is allocating would wait for ever.
class Dag {
 public:
  struct Options {
    unsigned seed;
    int streams;
    int tasks;
    int spin = 0;           // how much each task computes
    int fails = -1;         // this task throws
    int without_wait = -1;  // this task does not wait for what it reads: a race
  };

  explicit Dag(const Options& options);

  nimble::Tape& tape() { return tape_; }

  // One replay under the tape's lock; throws if a result is not what running in sequence gives.
  void replay_and_check(std::uint64_t input);
  void replay(std::uint64_t input);
  bool correct(std::uint64_t input);

 private:
  struct Node {
    Dag* dag;
    int task;
    std::vector<int> reads;
    std::uint64_t result = 0;
    std::uint64_t expected = 0;
  };

  static void run(void* node);
  std::uint64_t compute(const Node& node, std::uint64_t input,
                        std::uint64_t Node::*read_from) const;

  Options options_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::uint64_t input_ = 0;
  nimble::Tape tape_;
};
