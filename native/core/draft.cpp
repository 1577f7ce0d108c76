#include "draft.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <stdexcept>
#include <string>
#include <utility>

namespace nimble {
namespace {

std::string text(std::size_t number) { return std::to_string(number); }

[[noreturn]] void refuse(const std::string& message) { throw std::invalid_argument(message); }

void check_range(const char* what, std::int64_t number, std::size_t count) {
  if (number < 0 || static_cast<std::size_t>(number) >= count) {
    refuse(std::string(what) + " " + std::to_string(number) + " is out of range: the tape has " +
           text(count));
  }
}

// For every step, those that come before it.
using Before = std::vector<std::vector<std::uint32_t>>;

// Some of the steps in `left` form a cycle: names its tasks.
std::string describe_cycle(const Before& before, const std::vector<bool>& left,
                           const std::vector<std::uint32_t>& tasks) {
  auto step = static_cast<std::uint32_t>(std::find(left.begin(), left.end(), true) - left.begin());
  std::vector<std::uint32_t> path;
  while (std::find(path.begin(), path.end(), step) == path.end()) {
    path.push_back(step);
    step = *std::find_if(before[step].begin(), before[step].end(),
                         [&](std::uint32_t other) { return left[other]; });
  }
  path.erase(path.begin(), std::find(path.begin(), path.end(), step));
  std::string names;
  for (const std::uint32_t each : path) names += "task " + text(tasks[each]) + " after ";
  return names + "task " + text(tasks[path.front()]);
}

// Smallest task first, since tasks are numbered as the model runs them.
std::vector<std::uint32_t> topological_order(const Before& before,
                                             const std::vector<std::uint32_t>& tasks) {
  using TaskAndStep = std::pair<std::uint32_t, std::uint32_t>;
  std::priority_queue<TaskAndStep, std::vector<TaskAndStep>, std::greater<>> ready;
  std::vector<std::vector<std::uint32_t>> after(tasks.size());
  std::vector<std::size_t> missing(tasks.size());
  for (std::uint32_t step = 0; step < tasks.size(); ++step) {
    missing[step] = before[step].size();
    for (const std::uint32_t other : before[step]) after[other].push_back(step);
    if (missing[step] == 0) ready.emplace(tasks[step], step);
  }
  std::vector<std::uint32_t> order;
  std::vector<bool> left(tasks.size(), true);
  while (!ready.empty()) {
    const std::uint32_t step = ready.top().second;
    ready.pop();
    order.push_back(step);
    left[step] = false;
    for (const std::uint32_t other : after[step]) {
      if (--missing[other] == 0) ready.emplace(tasks[other], other);
    }
  }
  if (order.size() < tasks.size()) {
    refuse("the waits form a deadlock: " + describe_cycle(before, left, tasks));
  }
  return order;
}

}  // namespace

Draft::Stream& Draft::stream_at(std::int64_t stream) {
  check_range("stream", stream, streams_.size());
  return streams_[static_cast<std::size_t>(stream)];
}

void Draft::add(std::int64_t stream, std::int64_t task, KernelFn fn, void* context) {
  Stream& target = stream_at(stream);
  check_range("task", task, places_.size());
  Place& place = places_[static_cast<std::size_t>(task)];
  if (place.stream >= 0) {
    refuse("task " + std::to_string(task) + " is already on stream " +
           std::to_string(place.stream));
  }
  place = {stream, target.entries.size()};
  const Step step{fn, context, static_cast<std::uint32_t>(task), -1, 0, 0};
  target.entries.push_back({step, std::exchange(target.waits_for, {})});
}

void Draft::wait(std::int64_t stream, std::int64_t on) {
  Stream& target = stream_at(stream);
  check_range("task", on, places_.size());
  target.waits_for.push_back(static_cast<std::uint32_t>(on));
}

void Draft::check_waits() const {
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    if (!streams_[s].waits_for.empty()) {
      refuse("stream " + text(s) + " ends with a wait for task " +
             text(streams_[s].waits_for.front()) + ": no task follows that could wait");
    }
    for (const Entry& entry : streams_[s].entries) {
      for (const std::uint32_t task : entry.waits_for) {
        if (places_[task].stream < 0) {
          refuse("task " + text(entry.step.task) + " on stream " + text(s) + " waits for task " +
                 text(task) + ", which is on no stream");
        }
      }
    }
  }
}

std::vector<std::uint32_t> Draft::order_for_one_thread(
    const std::vector<std::uint32_t>& starts) const {
  Before before;
  std::vector<std::uint32_t> tasks;
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    for (const Entry& entry : streams_[s].entries) {
      const auto step = static_cast<std::uint32_t>(tasks.size());
      tasks.push_back(entry.step.task);
      auto& earlier = before.emplace_back();
      if (step > starts[s]) earlier.push_back(step - 1);
      for (const std::uint32_t task : entry.waits_for) {
        const Place& place = places_[task];
        earlier.push_back(starts[static_cast<std::size_t>(place.stream)] +
                          static_cast<std::uint32_t>(place.position));
      }
    }
  }
  return topological_order(before, tasks);
}

Layout Draft::finish() const {
  check_waits();
  std::vector<std::uint32_t> starts;
  std::uint32_t end = 0;
  Layout layout;
  for (const Stream& stream : streams_) {
    starts.push_back(end);
    layout.stream_ends.push_back(end += static_cast<std::uint32_t>(stream.entries.size()));
  }
  layout.alone = order_for_one_thread(starts);

  std::vector<std::int32_t> flags(places_.size(), -1);  // by task
  for (std::size_t s = 0; s < streams_.size(); ++s) {
    for (const Entry& entry : streams_[s].entries) {
      Step& step = layout.steps.emplace_back(entry.step);
      step.first_wait = static_cast<std::uint32_t>(layout.waits.size());
      for (const std::uint32_t task : entry.waits_for) {
        const auto producer = static_cast<std::size_t>(places_[task].stream);
        if (producer == s) continue;  // the stream's own order sees to it
        if (flags[task] < 0) {
          flags[task] = static_cast<std::int32_t>(layout.flag_streams.size());
          layout.flag_streams.push_back(static_cast<std::uint32_t>(producer));
        }
        layout.waits.push_back(static_cast<std::uint32_t>(flags[task]));
      }
      step.last_wait = static_cast<std::uint32_t>(layout.waits.size());
    }
  }
  for (Step& step : layout.steps) step.raises = flags[step.task];
  return layout;
}

}  // namespace nimble
