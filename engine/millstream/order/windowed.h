#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millstream/order/order.h"
#include "millstream/order/permutation.h"

namespace millstream {

/// Every sample once per epoch, near its neighbours. Each epoch permutes blocks of
/// consecutive samples, and then the samples within each window of `window` permuted
/// blocks. It needs no buffer. The positions of a window read only the blocks of that
/// window.
///
/// The last block may be shorter. Its place among the blocks is drawn separately, so
/// that the start of a window can be computed directly.
class WindowedShuffle final : public Order {
 public:
  /// `block_size` counts samples, `window` counts blocks. Throws `ArgumentError` unless
  /// both are at least 1.
  WindowedShuffle(std::int64_t n, std::int64_t block_size, std::int64_t window);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

 private:
  /// The grid for the samples of a window. Its length depends on whether the window is
  /// the last one and whether it contains the short block.
  const Grid& samples_of(bool last, bool short_block) const noexcept {
    return samples_[(last ? 2u : 0u) + (short_block ? 1u : 0u)];
  }

  std::int64_t block_;    // samples per block
  std::int64_t full_;     // number of full blocks
  std::int64_t short_;    // samples in the short last block, or 0
  std::int64_t missing_;  // samples that the short block lacks, or 0
  std::int64_t slots_;    // number of blocks, the short one included
  std::int64_t window_;   // blocks per window
  std::int64_t last_;     // index of the last window
  Grid blocks_;
  std::array<Grid, 4> samples_;
};

}  // namespace millstream
