#pragma once

#include <array>
#include <cstdint>

namespace millstream {

/// The user's seed: the two words of a Philox key.
struct Seed {
  std::uint32_t low = 0;   // the last word of a JAX key
  std::uint32_t high = 0;  // the first word

  bool operator==(const Seed&) const = default;
};

/// Philox 4x32 with 10 rounds: 128 random bits for each counter and key.
std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) noexcept;

/// What a random block is used for. It is part of the counter, so two purposes never
/// share bits. Never change these values: that would change every user's order.
enum class Purpose : std::uint32_t {
  kShuffle = 1,
  kReplacement = 2,
  kWeighted = 3,
  kSplit = 4,
  kTransform = 5,
  kMixture = 6,
  kBlocks = 7,
  kWindow = 8,
};

/// The random numbers of one stage for one sample: a pure function of (seed, epoch,
/// sample, stage).
class Random {
 public:
  Random(Seed seed, std::uint32_t epoch, std::int64_t sample, std::uint32_t stage);

  std::uint32_t bits() noexcept;

  /// Returns two words of `bits`, the first in the upper half.
  std::uint64_t bits64() noexcept {
    const std::uint64_t high = bits();
    return (high << 32) | bits();
  }

  /// Returns a number in [0, 1).
  float uniform() noexcept { return static_cast<float>(bits() >> 8) * 0x1p-24f; }

  /// Returns a number in [0, n) for n > 0. The relative bias is below n / 2^32.
  std::uint32_t below(std::uint32_t n) noexcept {
    return static_cast<std::uint32_t>((std::uint64_t{bits()} * n) >> 32);
  }

 private:
  std::array<std::uint32_t, 2> key_;
  std::array<std::uint32_t, 4> counter_;
  std::array<std::uint32_t, 4> block_{};
  int left_ = 0;
};

}  // namespace millstream
