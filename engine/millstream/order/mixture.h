#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "millstream/order/order.h"

namespace millstream {

/// A weighted mixture of several orders. Among the first L positions of all epochs,
/// component k has L * w_k / sum(w) positions, with an error of at most 2, or at most
/// 1/2 if there are two components.
///
/// A component continues across the epochs of the mixture. Position i of epoch e is
/// position e * length + i of one endless sequence. The c-th visit to a component of l
/// positions is position c % l of that component's epoch c / l. Each component has its
/// own seed. Sample numbers are those of the concatenated components.
///
/// The weights alone determine the component at a position. A binary tree splits the
/// positions until one component is left, in O(1 + log(sum / w_k)) and without a table.
class Mixture final : public Order {
 public:
  struct Component {
    std::shared_ptr<const Order> order;
    std::int64_t weight = 1;  // a component of weight 0 is never visited
  };

  /// The maximum sum of the weights.
  static constexpr std::int64_t kMaxWeight = (std::int64_t{1} << 31) - 1;

  /// An epoch has `length` positions. Throws `ArgumentError` for a negative weight, for
  /// a sum of 0 or above `kMaxWeight`, and for a component without an order.
  Mixture(std::span<const Component> components, std::int64_t length);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

  /// An inner node of the tree sends `left_weight` of every `weight` consecutive
  /// positions to the left and the others to the right. The leaves, one per component,
  /// come first and refer to themselves. The root is last.
  struct Node {
    std::uint32_t left_weight;
    std::uint32_t weight;
    std::uint32_t left;
    std::uint32_t right;
  };

 private:
  struct Visit {
    std::uint32_t component;
    std::uint32_t number;  // which of this period's visits to the component
  };
  Visit visit(std::uint64_t position) const noexcept;

  std::vector<Component> components_;
  std::vector<std::int64_t> first_;  // the number of each component's first sample
  std::vector<Node> nodes_;
};

}  // namespace millstream
