#include "dag.h"

#include <mutex>
#include <random>
#include <stdexcept>
#include <string>

#include "replay.h"

using nimble::Tape;

Dag::Dag(const Options& options)
    : options_(options), tape_(options.streams, options.tasks, 0) {
  std::mt19937 random(options.seed);
  std::vector<int> stream_of;
  for (int task = 0; task < options.tasks; ++task) {
    const int stream = static_cast<int>(random() % static_cast<unsigned>(options.streams));
    stream_of.push_back(stream);
    auto& node = nodes_.emplace_back(std::make_unique<Node>(Node{this, task, {}}));
    const unsigned reads = task == 0 ? 0 : random() % 4;
    for (unsigned i = 0; i < reads; ++i) {
      const int near = std::max(0, task - 12);
      const int read = near + static_cast<int>(random() % static_cast<unsigned>(task - near));
      node->reads.push_back(read);
      const bool other_stream = stream_of[static_cast<std::size_t>(read)] != stream;
      if (other_stream && task != options.without_wait) tape_.wait(stream, read);
    }
    tape_.call(stream, task, run, node.get());
  }
  tape_.finish();
}

std::uint64_t Dag::compute(const Node& node, std::uint64_t input,
                           std::uint64_t Node::*read_from) const {
  std::uint64_t value = input * 0x9e3779b97f4a7c15u + static_cast<std::uint64_t>(node.task);
  for (const int read : node.reads) {
    value = (value ^ (*nodes_[static_cast<std::size_t>(read)]).*read_from) * 0xff51afd7ed558ccdu;
  }
  for (int i = 0; i < options_.spin; ++i) value = (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9u;
  return value;
}

void Dag::run(void* context) {
  Node& node = *static_cast<Node*>(context);
  const Dag& dag = *node.dag;
  if (node.task == dag.options_.fails) throw std::runtime_error("task failed");
  node.result = dag.compute(node, dag.input_, &Node::result);
}

void Dag::replay(std::uint64_t input) {
  input_ = input;
  nimble::replay(tape_);
}

bool Dag::correct(std::uint64_t input) {
  for (const auto& node : nodes_) {
    node->expected = compute(*node, input, &Node::expected);
    if (node->result != node->expected) return false;
  }
  return true;
}

void Dag::replay_and_check(std::uint64_t input) {
  const std::lock_guard held(tape_);
  replay(input);
  if (!correct(input)) {
    throw std::runtime_error("wrong results, seed " + std::to_string(options_.seed));
  }
}
