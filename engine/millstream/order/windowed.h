#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "millstream/order/order.h"
#include "millstream/order/permutation.h"

namespace millstream {

/// Every sample once an epoch, near its neighbours: blocks of consecutive samples are
/// permuted, then samples within each window of so many permuted blocks, all of it anew
/// in each epoch and without a buffer. The positions of one window touch the blocks of
/// that window alone.
///
/// The last block may be shorter; its place among the blocks is drawn by itself, so
/// that where a window begins is a matter of arithmetic.
class WindowedShuffle final : public Order {
 public:
  /// `window` is in blocks. Throws `ArgumentError` unless both are at least 1.
  WindowedShuffle(std::int64_t n, std::int64_t block_size, std::int64_t window);

  void run(Seed seed, std::uint32_t epoch, std::int64_t first,
           std::span<std::int64_t> out) const override;
  void add_to(Digest& digest) const override;

 private:
  /// How the samples of a window are laid out, by what sets its length apart.
  const Grid& samples_of(bool last, bool short_block) const noexcept {
    return samples_[(last ? 2u : 0u) + (short_block ? 1u : 0u)];
  }

  std::int64_t block_;    // samples of a block
  std::int64_t full_;     // blocks of that many
  std::int64_t short_;    // samples of the block after them, or none
  std::int64_t missing_;  // what that block has less than the others, or none
  std::int64_t slots_;    // places of blocks
  std::int64_t window_;   // slots of a window
  std::int64_t last_;     // the last window
  Grid blocks_;
  std::array<Grid, 4> samples_;
};

}  // namespace millstream
