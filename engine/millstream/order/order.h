#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "millstream/core/digest.h"
#include "millstream/core/random.h"
#include "millstream/order/permutation.h"

namespace millstream {

/// Which sample comes when: a pure function of (seed, epoch, position).
///
/// Orders are immutable: any number of threads may ask at once.
class Order {
 public:
  virtual ~Order() = default;

  /// Positions in one epoch.
  std::int64_t length() const noexcept { return length_; }

  /// The samples that it chooses from: every answer lies in [0, samples()).
  std::int64_t samples() const noexcept { return samples_; }

  /// out[k] is the sample at position first + k, all of them in [0, length()).
  virtual void run(Seed seed, std::uint32_t epoch, std::int64_t first,
                   std::span<std::int64_t> out) const = 0;

  /// Adds all that decides the answers, and nothing else.
  virtual void add_to(Digest& digest) const = 0;

 protected:
  /// Throws `ArgumentError`, which calls the order `what`, unless `length` is between 1
  /// and `kMaxSamples`.
  Order(std::int64_t length, std::int64_t samples, std::string_view what);

  std::int64_t length_;
  std::int64_t samples_;
};

/// 0, 1, 2, ... in every epoch.
class Sequential final : public Order {
 public:
  explicit Sequential(std::int64_t n) : Order(n, n, "an order") {}

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;
};

/// Every sample once an epoch, in an order of the epoch's own.
class Shuffle final : public Order {
 public:
  explicit Shuffle(std::int64_t n) : Order(Grid(n).n, n, "an order"), grid_(n) {}

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

 private:
  Grid grid_;
};

/// `length` draws an epoch, each of any sample.
class Replacement final : public Order {
 public:
  Replacement(std::int64_t n, std::int64_t length)
      : Order(length, Grid(n).n, "an order with replacement") {}

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;
};

/// `length` draws an epoch, each sample as often as its weight says.
class Weighted final : public Order {
 public:
  /// Throws `ArgumentError` unless all weights are finite, none is negative and one is
  /// positive.
  Weighted(std::span<const double> weights, std::int64_t length);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

  /// A cell of Walker's alias table: cell c stands for sample c where a random word is
  /// below `threshold`, else for `other`.
  struct AliasCell {
    std::uint32_t threshold;
    std::uint32_t other;
  };
  std::span<const AliasCell> cells() const noexcept { return cells_; }

 private:
  std::vector<AliasCell> cells_;
};

/// Samples listed by the user, in the order in which `inner` visits the list.
/// Where there are several lists, epoch e takes list e modulo their number.
class Listed final : public Order {
 public:
  /// `list` holds one or more lists of `inner->samples()`; throws `ArgumentError`
  /// naming the entry that is not in [0, n).
  Listed(std::shared_ptr<const Order> inner, std::vector<std::int64_t> list,
         std::int64_t n);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

 private:
  std::shared_ptr<const Order> inner_;
  std::vector<std::int64_t> list_;
};

/// The samples, of n, that belong to one range of a split: places [first, first +
/// length) with `gap` places left out from `gap_at` on. With `shuffled`, places are
/// taken in an order fixed by `seed`, the same in every epoch; without, in the source's
/// own.
struct SplitRange {
  std::int64_t n = 0;
  std::int64_t first = 0;
  std::int64_t length = 0;
  std::int64_t gap_at = 0;
  std::int64_t gap = 0;
  bool shuffled = false;
  Seed seed;
};

/// The samples of one range of a split or of a fold, in the order in which `inner`
/// visits it.
class SplitOrder final : public Order {
 public:
  SplitOrder(std::shared_ptr<const Order> inner, const SplitRange& range);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

 private:
  std::shared_ptr<const Order> inner_;
  SplitRange range_;
  Permutation places_;
};

}  // namespace millstream
