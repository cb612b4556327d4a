#include "millstream/order/mixture.h"

#include <algorithm>
#include <functional>
#include <queue>
#include <utility>

#include "millstream/core/error.h"
#include "millstream/order/draw.h"

namespace millstream {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::size_t kChunk = 4096;

Seed component_seed(Seed seed, std::uint32_t component) {
  const auto words = draw(seed, 0, component, Purpose::kMixture);
  return {words[0], words[1]};
}

/// Writes positions [visits, visits + out.size()) of the endless sequence that the
/// epochs of `order` form.
void run_on(const Order& order, Seed seed, Wide visits, std::span<std::int64_t> out) {
  const auto length = static_cast<std::uint64_t>(order.length());
  auto epoch = static_cast<std::uint32_t>(visits / length);
  auto position = static_cast<std::int64_t>(visits % length);
  while (!out.empty()) {
    const auto count = static_cast<std::size_t>(
        std::min(order.length() - position, static_cast<std::int64_t>(out.size())));
    order.run(seed, epoch, position, out.first(count));
    out = out.subspan(count);
    position = 0;
    ++epoch;
  }
}

/// Builds a Huffman tree over the weights and appends its inner nodes. A node's
/// grandparent weighs at least twice as much as the node. This limits both the depth
/// and the rounding error at each split.
void plant(std::vector<Mixture::Node>& nodes) {
  using Entry = std::pair<std::uint32_t, std::uint32_t>;  // weight, node
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> loose;
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    if (nodes[i].weight > 0) loose.emplace(nodes[i].weight, i);
  }
  if (loose.size() == 1) {  // a root with a single child
    const auto [weight, only] = loose.top();
    nodes.push_back({weight, weight, only, only});
    return;
  }
  while (loose.size() > 1) {
    const auto [left_weight, left] = loose.top();
    loose.pop();
    const auto [right_weight, right] = loose.top();
    loose.pop();
    const std::uint32_t weight = left_weight + right_weight;
    loose.emplace(weight, static_cast<std::uint32_t>(nodes.size()));
    nodes.push_back({left_weight, weight, left, right});
  }
}

}  // namespace

Mixture::Mixture(std::span<const Component> components, std::int64_t length)
    : Order(length, 0, "a mixture"), components_(components.begin(), components.end()) {
  std::int64_t total = 0;
  for (std::size_t i = 0; i < components_.size(); ++i) {
    const auto& [order, weight] = components_[i];
    if (order == nullptr)
      throw ArgumentError(text("component ", i, " of a mixture has no order"));
    if (weight < 0 || weight > kMaxWeight - total) {
      throw ArgumentError(text("the weight of component ", i, " is ", weight,
                               "; weights must be at least 0 and add up to at most ",
                               kMaxWeight));
    }
    if (order->samples() > kMaxSamples - samples_) {
      throw ArgumentError(text("a mixture may have at most 2^62 samples; component ", i,
                               " exceeds that"));
    }
    total += weight;
    first_.push_back(samples_);
    samples_ += order->samples();
    const auto part = static_cast<std::uint32_t>(weight);
    const auto leaf = static_cast<std::uint32_t>(i);
    nodes_.push_back({part, part, leaf, leaf});
  }
  if (total == 0) {
    throw ArgumentError(text("a mixture needs a component whose weight is above 0; ",
                             "found none among ", components_.size()));
  }
  plant(nodes_);
}

Mixture::Visit Mixture::visit(std::uint64_t position) const noexcept {
  auto at = static_cast<std::uint32_t>(nodes_.size() - 1);
  while (at >= components_.size()) {
    // `lefts` is position * left_weight / weight, rounded: how many of the earlier
    // positions went left.
    const Node& node = nodes_[at];
    const std::uint64_t product = position * node.left_weight + node.weight / 2;
    const std::uint64_t lefts = product / node.weight;
    const bool left = product % node.weight + node.left_weight >= node.weight;
    position = left ? lefts : position - lefts;
    at = left ? node.left : node.right;
  }
  return {at, static_cast<std::uint32_t>(position)};
}

void Mixture::run(Seed seed, std::uint32_t epoch, std::int64_t first,
                  std::span<std::int64_t> out) const {
  const std::uint64_t period = nodes_.back().weight;
  const Wide from = static_cast<Wide>(epoch) * static_cast<std::uint64_t>(length_) +
                    static_cast<std::uint64_t>(first);
  Wide periods = from / period;
  auto position = static_cast<std::uint64_t>(from % period);
  std::vector<std::vector<std::size_t>> rows(components_.size());
  std::vector<Wide> visits(components_.size());
  std::vector<std::int64_t> samples;
  while (!out.empty()) {
    // Within a chunk, the visits to a component are consecutive. One run gives all of
    // them.
    const std::size_t count = std::min(kChunk, out.size());
    for (std::size_t i = 0; i < count; ++i) {
      const auto [its, number] = visit(position);
      if (rows[its].empty()) visits[its] = periods * nodes_[its].weight + number;
      rows[its].push_back(i);
      if (++position == period) {
        position = 0;
        ++periods;
      }
    }
    for (std::uint32_t its = 0; its < components_.size(); ++its) {
      if (rows[its].empty()) continue;
      samples.resize(rows[its].size());
      run_on(*components_[its].order, component_seed(seed, its), visits[its], samples);
      for (std::size_t k = 0; k < samples.size(); ++k) {
        out[rows[its][k]] = first_[its] + samples[k];
      }
      rows[its].clear();
    }
    out = out.subspan(count);
  }
}

void Mixture::add_to(Digest& digest) const {
  digest.add("mixture").add(length_);
  digest.add(static_cast<std::uint64_t>(components_.size()));
  for (const Component& component : components_) {
    digest.add(component.weight);
    component.order->add_to(digest);
  }
}

}  // namespace millstream
