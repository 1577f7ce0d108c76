#include "links.h"

#include <algorithm>
#include <limits>
#include <queue>

namespace nimble::cluster {
namespace {
// A link this close to its capacity is full: sums of rates are exact to about 1e-15 of it.
constexpr double kFull = 1 - 1e-9;
constexpr double kOver = 1 + 1e-12;
}  // namespace

Links::Links(std::vector<double> capacity) : links_(capacity.size()) {
  for (std::size_t i = 0; i < capacity.size(); ++i) links_[i].capacity = capacity[i];
}

double Links::load(int link) const {
  double sum = 0;
  for (auto [flow, i] : links_[link].flows) sum += flows_[flow].traffic[i].second * flows_[flow].rate;
  return sum;
}

void Links::insert(int flow) {
  Flow& f = flows_[flow];
  f.at.resize(f.traffic.size());
  for (std::size_t i = 0; i < f.traffic.size(); ++i) {
    Link& link = links_[f.traffic[i].first];
    f.at[i] = static_cast<int>(link.flows.size());
    link.flows.emplace_back(flow, static_cast<int>(i));
    if (link.flows.size() == 2) ++shared_;
  }
}

void Links::erase(int flow) {
  Flow& f = flows_[flow];
  for (std::size_t i = 0; i < f.traffic.size(); ++i) {
    Link& link = links_[f.traffic[i].first];
    link.flows[f.at[i]] = link.flows.back();
    auto [moved, its] = link.flows[f.at[i]];
    flows_[moved].at[its] = f.at[i];
    link.flows.pop_back();
    if (link.flows.size() == 1) --shared_;
  }
}

void Links::add(int flow, double demand, Traffic traffic) {
  if (flow >= static_cast<int>(flows_.size())) flows_.resize(flow + 1);
  Flow& f = flows_[flow];
  f.demand = f.rate = demand;
  f.traffic = std::move(traffic);
  insert(flow);
  for (auto [link, weight] : f.traffic)
    if (!links_[link].dirty) links_[link].dirty = true, dirty_.push_back(link);
}

void Links::remove(int flow) {
  Flow& f = flows_[flow];
  erase(flow);
  for (auto [link, weight] : f.traffic)
    if (!links_[link].dirty) links_[link].dirty = true, dirty_.push_back(link);
  f.traffic.clear();
}

// Where a link was full, or would be, all its flows are refilled, and through them those of other full links.
// Where every touched link keeps slack, nobody else changes and there is no component.
void Links::settle(Rates& changed) {
  Rates rates;
  solve(rates);
  for (auto [flow, rate] : rates)
    if (rate != flows_[flow].rate) {
      flows_[flow].rate = rate;
      changed.emplace_back(flow, rate);
    }
  for (int link : dirty_) links_[link].dirty = false, touched_.push_back(link);
  for (int link : touched_) links_[link].full = load(link) >= kFull * links_[link].capacity;
  dirty_.clear();
  touched_.clear();
}

double Links::probe(double demand, Traffic traffic) {
  const int flow = static_cast<int>(flows_.size());
  const std::size_t pending = dirty_.size();
  add(flow, demand, std::move(traffic));
  Rates rates;
  solve(rates);
  double found = demand;
  for (auto [other, rate] : rates)
    if (other == flow) found = rate;
  for (; dirty_.size() > pending; dirty_.pop_back()) links_[dirty_.back()].dirty = false;
  touched_.clear();
  erase(flow);
  flows_.pop_back();
  return found;
}

void Links::include(int link) {
  std::vector<int> todo{link};
  while (!todo.empty()) {
    Link& l = links_[todo.back()];
    const int here = todo.back();
    todo.pop_back();
    if (l.entered == stamp_) continue;
    l.entered = stamp_;
    reached_.push_back(here);
    for (auto [flow, i] : l.flows) {
      Flow& f = flows_[flow];
      if (f.seen == stamp_) continue;
      f.seen = stamp_;
      component_.push_back(flow);
      for (auto [other, weight] : f.traffic) {
        if (links_[other].seen != stamp_) links_[other].seen = stamp_, touched_.push_back(other);
        if (links_[other].full) todo.push_back(other);
      }
    }
  }
}

void Links::solve(Rates& rates) {
  ++stamp_;
  component_.clear();
  reached_.clear();
  touched_.clear();
  for (int link : dirty_)
    if (links_[link].full || load(link) > kOver * links_[link].capacity) include(link);
  if (component_.empty()) return;
  // A flow that may rise can fill a link that had slack: then that link's other flows belong to it too.
  while (true) {
    fill(rates);
    const auto before = component_.size();
    for (int link : limiting_) include(link);
    if (component_.size() == before) return;
  }
}

void Links::fill(Rates& rates) {
  rates.clear();
  limiting_.clear();
  for (int link : touched_) {
    Link& l = links_[link];
    l.room = l.capacity;
    l.weight = 0;
    for (auto [flow, i] : l.flows) {
      const Flow& f = flows_[flow];
      if (f.seen == stamp_)
        l.weight += f.traffic[i].second;
      else
        l.room -= f.traffic[i].second * f.rate;
    }
  }
  for (int flow : component_) flows_[flow].frozen = 0;
  std::vector<int> by_demand(component_);
  std::sort(by_demand.begin(), by_demand.end(), [&](int a, int b) {
    return flows_[a].demand != flows_[b].demand ? flows_[a].demand < flows_[b].demand : a < b;
  });
  // A link's level, the rate at which it is full, only rises as flows on it stop below it.
  using Entry = std::pair<double, int>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> levels;
  auto level = [&](int link) { return std::max(0.0, links_[link].room) / links_[link].weight; };
  for (int link : touched_)
    if (links_[link].weight > 0) levels.emplace(level(link), link);
  std::size_t next = 0;
  while (true) {
    while (next < by_demand.size() && flows_[by_demand[next]].frozen) ++next;
    if (next == by_demand.size()) return;
    while (!levels.empty()) {
      auto [at, link] = levels.top();
      const bool spent = links_[link].weight <= 0;
      if (!spent && level(link) <= at) break;
      levels.pop();
      if (!spent) levels.emplace(level(link), link);
    }
    const double demand = flows_[by_demand[next]].demand;
    if (levels.empty() || demand <= levels.top().first) {
      freeze(by_demand[next], demand, rates);
      continue;
    }
    auto [at, link] = levels.top();
    levels.pop();
    limiting_.push_back(link);
    for (auto [flow, i] : links_[link].flows)
      if (flows_[flow].seen == stamp_ && !flows_[flow].frozen) freeze(flow, at, rates);
    links_[link].weight = 0;
  }
}

void Links::freeze(int flow, double rate, Rates& rates) {
  Flow& f = flows_[flow];
  f.frozen = 1;
  rates.emplace_back(flow, rate);
  for (auto [link, weight] : f.traffic) {
    Link& l = links_[link];
    l.room -= weight * rate;
    l.weight -= weight;
    // What is left of a sum of weights after all were taken away is rounding.
    if (l.weight < 1e-9) l.weight = 0;
  }
}

}  // namespace nimble::cluster
