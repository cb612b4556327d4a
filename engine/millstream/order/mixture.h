#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "millstream/order/order.h"

namespace millstream {

/// Several orders in turn, each as often as its weight says, in every stretch of
/// positions: of the first L positions of all epochs, component k has L * w_k / sum(w)
/// to within 2, or to within 1/2 where there are two components.
///
/// Components go on, whatever the mixture's epochs: position i of epoch e is position
/// e * length + i of one endless sequence, whose c-th visit to a component of l
/// positions is position c % l of that component's epoch c / l. Each has a seed of its
/// own. Samples are numbered as if the components stood one after the other.
///
/// Whose turn it is follows from the weights alone, with no table of a period: a tree
/// splits positions in two until one component is left, taking O(1 + log(sum / w_k)).
class Mixture final : public Order {
 public:
  struct Component {
    std::shared_ptr<const Order> order;
    std::int64_t weight = 1;  // 0 is never visited
  };

  /// The most that the weights may add up to.
  static constexpr std::int64_t kMaxWeight = (std::int64_t{1} << 31) - 1;

  /// An epoch is `length` positions. Throws `ArgumentError` naming the component, or
  /// for weights of no sum or one above `kMaxWeight`.
  Mixture(std::span<const Component> components, std::int64_t length);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

  /// Of each `weight` positions in a row, `left_weight` go left and the others right.
  /// The components' nodes come first and lead to themselves; the root is the last.
  struct Node {
    std::uint32_t left_weight;
    std::uint32_t weight;
    std::uint32_t left;
    std::uint32_t right;
  };

 private:
  struct Visit {
    std::uint32_t component;
    std::uint32_t number;  // of this period's visits to it
  };
  Visit visit(std::uint64_t position) const noexcept;

  std::vector<Component> components_;
  std::vector<std::int64_t> first_;  // sample of each component
  std::vector<Node> nodes_;
};

}  // namespace millstream
