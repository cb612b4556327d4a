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

/// The order of samples: a pure function of (seed, epoch, position). Immutable and
/// thread-safe.
class Order {
 public:
  virtual ~Order() = default;

  /// Positions in one epoch.
  std::int64_t length() const noexcept { return length_; }

  /// The number of samples to choose from. `run` writes indices in [0, samples()).
  std::int64_t samples() const noexcept { return samples_; }

  /// Sets out[k] to the sample at position first + k. All positions must be in [0,
  /// length()).
  virtual void run(Seed seed, std::uint32_t epoch, std::int64_t first,
                   std::span<std::int64_t> out) const = 0;

  /// Adds everything that determines the order to `digest`, and nothing else.
  virtual void add_to(Digest& digest) const = 0;

 protected:
  /// Throws `ArgumentError` unless `length` is between 1 and `kMaxSamples`. `what`
  /// names the order in the message.
  Order(std::int64_t length, std::int64_t samples, std::string_view what);

  std::int64_t length_;
  std::int64_t samples_;
};

/// Samples 0, 1, 2, ... in every epoch.
class Sequential final : public Order {
 public:
  explicit Sequential(std::int64_t n) : Order(n, n, "an order") {}

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;
};

/// Every sample once per epoch, in a different random order in each epoch.
class Shuffle final : public Order {
 public:
  explicit Shuffle(std::int64_t n) : Order(Grid(n).n, n, "an order"), grid_(n) {}

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

 private:
  Grid grid_;
};

/// `length` uniform draws with replacement per epoch.
class Replacement final : public Order {
 public:
  Replacement(std::int64_t n, std::int64_t length)
      : Order(length, Grid(n).n, "an order with replacement") {}

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;
};

/// `length` draws with replacement per epoch. The probability of a sample is
/// proportional to its weight.
class Weighted final : public Order {
 public:
  /// Throws `ArgumentError` unless all weights are finite, none is negative and at
  /// least one is positive.
  Weighted(std::span<const double> weights, std::int64_t length);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

  /// A cell of Walker's alias table. Cell c gives sample c if a random word is below
  /// `threshold`, else sample `other`.
  struct AliasCell {
    std::uint32_t threshold;
    std::uint32_t other;
  };
  std::span<const AliasCell> cells() const noexcept { return cells_; }

 private:
  std::vector<AliasCell> cells_;
};

/// Samples that the user lists. `inner` determines the order in which the list is
/// visited. If there are m lists, epoch e uses list e % m.
class Listed final : public Order {
 public:
  /// `list` holds one or more lists of `inner->samples()` entries each. Throws
  /// `ArgumentError` for an entry that is not in [0, n).
  Listed(std::shared_ptr<const Order> inner, std::vector<std::int64_t> list,
         std::int64_t n);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

 private:
  std::shared_ptr<const Order> inner_;
  std::vector<std::int64_t> list_;
};

/// One range of a split of n samples: `length` positions from `first` on. `gap`
/// positions from `gap_at` on are skipped. With `shuffled`, the positions refer to a
/// permutation of the samples that `seed` determines, the same in every epoch. Without
/// it, they refer to the source's own order.
struct SplitRange {
  std::int64_t n = 0;
  std::int64_t first = 0;
  std::int64_t length = 0;
  std::int64_t gap_at = 0;
  std::int64_t gap = 0;
  bool shuffled = false;
  Seed seed;
};

/// The samples of one range of a split or of a fold, in the order of `inner`.
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
