#pragma once

#include <cstdint>
#include <string_view>

namespace millstream {

/// A 64-bit fingerprint of the values added, in their order; the same on every machine.
class Digest {
 public:
  Digest& add(std::uint64_t value) noexcept {
    word_ = (word_ ^ value) * 0x9E3779B97F4A7C15u;
    word_ ^= word_ >> 29;
    word_ *= 0xBF58476D1CE4E5B9u;
    word_ ^= word_ >> 32;
    return *this;
  }
  Digest& add(std::int64_t value) noexcept {
    return add(static_cast<std::uint64_t>(value));
  }
  Digest& add(std::string_view value) noexcept {
    add(static_cast<std::uint64_t>(value.size()));
    for (const char c : value) add(std::uint64_t{static_cast<unsigned char>(c)});
    return *this;
  }

  std::uint64_t value() const noexcept { return word_; }

 private:
  std::uint64_t word_ = 0x6D696C6C73747265u;
};

}  // namespace millstream
