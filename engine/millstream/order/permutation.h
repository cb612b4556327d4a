#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millstream/core/random.h"

namespace millstream {

/// The largest number of samples in an order.
inline constexpr std::int64_t kMaxSamples = std::int64_t{1} << 62;

/// [0, n) as a grid of `rows` x `columns` cells, row by row. It has at least n cells,
/// and few more. A plan computes it once, because it needs a square root.
struct Grid {
  std::int64_t n = 0;
  std::uint32_t rows = 1;
  std::uint32_t columns = 1;

  /// Throws `ArgumentError` unless 0 < n <= kMaxSamples.
  explicit Grid(std::int64_t samples);
};

/// A permutation of [0, n) that (seed, epoch, purpose) determine, without a table of n
/// entries.
///
/// Up to `kExact` samples, all permutations are equally likely: samples are sorted by
/// random words. Above that, each pair of the eight rounds adds a keyed hash of the
/// column to the row and then a hash of the row to the column, modulo the grid's size.
/// If the result is one of the cells beyond n, the rounds are applied again (cycle
/// walking). python/millstream/_order/jnp_orders.py has the same arithmetic.
class Permutation {
 public:
  static constexpr int kExact = 128;
  static constexpr int kRounds = 8;

  Permutation(const Grid& grid, Seed seed, std::uint32_t epoch, Purpose purpose);

  std::int64_t operator()(std::int64_t position) const noexcept;

  /// Sets out[k] to the image of position first + k. All positions must be in [0, n).
  void run(std::int64_t first, std::span<std::int64_t> out) const noexcept;

 private:
  Grid grid_;
  std::array<std::uint32_t, kRounds> keys_{};
  std::array<std::uint8_t, kExact> table_{};  // for n <= kExact
};

}  // namespace millstream
