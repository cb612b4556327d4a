#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millstream/core/random.h"

namespace millstream {

/// The largest number of samples that can be put in order.
inline constexpr std::int64_t kMaxSamples = std::int64_t{1} << 62;

/// [0, n) laid out as `rows` x `columns` cells, row by row; few cells are left over.
/// Made once a plan, so that a permutation of it costs no square root.
struct Grid {
  std::int64_t n = 0;
  std::uint32_t rows = 1;
  std::uint32_t columns = 1;

  /// Throws `ArgumentError` unless 0 < n <= kMaxSamples.
  explicit Grid(std::int64_t samples);
};

/// A bijection of [0, n), chosen by (seed, epoch, purpose), with no table of n.
///
/// Up to `kExact` samples every order is equally likely: samples sorted by random
/// words. Above, eight rounds add a keyed hash of the column to the row and of the
/// row to the column, modulo their numbers; cells left over are walked past.
/// The same arithmetic stands in python/millstream/_order/jnp_orders.py.
class Permutation {
 public:
  static constexpr int kExact = 128;
  static constexpr int kRounds = 8;

  Permutation(const Grid& grid, Seed seed, std::uint32_t epoch, Purpose purpose);

  std::int64_t operator()(std::int64_t position) const noexcept;

  /// out[k] is where position first + k goes; all positions lie in [0, n).
  void run(std::int64_t first, std::span<std::int64_t> out) const noexcept;

 private:
  Grid grid_;
  std::array<std::uint32_t, kRounds> keys_{};
  std::array<std::uint8_t, kExact> table_{};  // for n <= kExact
};

}  // namespace millstream
