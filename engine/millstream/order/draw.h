#pragma once

#include <array>
#include <cstdint>

#include "millstream/core/random.h"

namespace millstream {

/// Four random words for one position of an epoch.
inline std::array<std::uint32_t, 4> draw(Seed seed, std::uint32_t epoch,
                                         std::int64_t position, Purpose purpose) {
  const auto at = static_cast<std::uint64_t>(position);
  return philox(
      {epoch, static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(at >> 32),
       static_cast<std::uint32_t>(purpose)},
      {seed.low, seed.high});
}

/// Maps 64 random bits to [0, n): the bits, as a fraction of 2^64, times n.
inline std::int64_t below(std::int64_t n, std::uint32_t high, std::uint32_t low) {
  const std::uint64_t fraction = (std::uint64_t{high} << 32) | low;
  __extension__ using Wide = unsigned __int128;
  return static_cast<std::int64_t>(
      (static_cast<Wide>(fraction) * static_cast<std::uint64_t>(n)) >> 64);
}

}  // namespace millstream
