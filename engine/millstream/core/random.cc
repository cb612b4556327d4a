#include "millstream/core/random.h"

namespace millstream {

std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                    std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53u} * counter[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

Random::Random(Seed seed, std::uint32_t epoch, std::int64_t sample,
               std::uint32_t stage) {
  // (epoch, sample, stage) selects one block, whose words are the key and half of the
  // counter of the stream. Each stream then has 2^32 blocks of its own.
  const auto index = static_cast<std::uint64_t>(sample);
  const auto stream =
      philox({epoch, static_cast<std::uint32_t>(index),
              static_cast<std::uint32_t>(index >> 32),
              (stage << 4) | static_cast<std::uint32_t>(Purpose::kTransform)},
             {seed.low, seed.high});
  key_ = {stream[0], stream[1]};
  counter_ = {0, 0, stream[2], stream[3]};
}

std::uint32_t Random::bits() noexcept {
  if (left_ == 0) {
    block_ = philox(counter_, key_);
    ++counter_[0];
    left_ = 4;
  }
  return block_[static_cast<std::size_t>(4 - left_--)];
}

}  // namespace millstream
