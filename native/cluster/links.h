// Max-min fair rates of jobs that share links, kept up as jobs come and go.
#pragma once

#include <utility>
#include <vector>

namespace nimble::cluster {

using Traffic = std::vector<std::pair<int, double>>;  // (link, bytes sent per byte all-reduced)

// A flow is one job: its rate counts on every link it crosses, times its weight there. Rates are max-min fair:
// no link carries more than its capacity, and every flow is at its demand or has the largest rate on a full link.
class Links {
 public:
  explicit Links(std::vector<double> capacity);

  // `flow` numbers are small and chosen by the caller; a new flow is at its demand until `settle`.
  void add(int flow, double demand, Traffic traffic);
  void remove(int flow);
  // Makes the rates fair again; `changed` gets (flow, new rate).
  void settle(std::vector<std::pair<int, double>>& changed);
  // The rate a flow would get if it were added now. Changes nothing.
  double probe(double demand, Traffic traffic);

  double rate(int flow) const { return flows_[flow].rate; }
  bool has(int flow) const {
    return flow < static_cast<int>(flows_.size()) && !flows_[flow].traffic.empty();
  }
  double load(int link) const;
  int flows_on(int link) const { return static_cast<int>(links_[link].flows.size()); }
  std::size_t size() const { return links_.size(); }
  // Links with two flows or more.
  int shared() const { return shared_; }

 private:
  struct Flow {
    double demand = 0, rate = 0;
    Traffic traffic;
    std::vector<int> at;  // where it stands in each link's list
    int seen = 0, frozen = 0;
  };
  struct Link {
    double capacity = 0;
    std::vector<std::pair<int, int>> flows;  // (flow, which of its links this is)
    bool full = false, dirty = false;
    double room = 0, weight = 0;  // while filling
    int seen = 0, entered = 0;
  };
  using Rates = std::vector<std::pair<int, double>>;

  void insert(int flow);
  void erase(int flow);
  void solve(Rates& rates);
  void include(int link);
  void fill(Rates& rates);
  void freeze(int flow, double rate, Rates& rates);

  std::vector<Link> links_;
  std::vector<Flow> flows_;
  std::vector<int> dirty_;      // links whose flows changed since the last settle
  std::vector<int> component_;  // flows being refilled
  std::vector<int> reached_;    // links whose flows are all in the component
  std::vector<int> touched_;    // every link that a flow of the component crosses
  std::vector<int> limiting_;   // links that stopped a flow in the last fill
  int stamp_ = 0, shared_ = 0;
};

}  // namespace nimble::cluster
