#pragma once

#include <bit>
#include <cstdint>

namespace millstream {

/// A bfloat16: the upper 16 bits of a float. Rounds to nearest, ties to even; a NaN
/// stays a NaN.
struct BFloat16 {
  std::uint16_t bits = 0;

  BFloat16() = default;
  explicit BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t rounded = (word + 0x7FFFu + ((word >> 16) & 1u)) >> 16;
    const bool nan = (word & 0x7FFFFFFFu) > 0x7F800000u;
    bits = static_cast<std::uint16_t>(nan ? (word >> 16) | 0x40u : rounded);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};

/// IEEE binary16. Rounds to nearest, ties to even; overflow gives infinity.
struct Half {
  std::uint16_t bits = 0;

  Half() = default;
  explicit Half(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t sign = (word >> 16) & 0x8000u;
    std::uint32_t rest = word & 0x7FFFFFFFu;
    if (rest >= 0x47800000u) {  // 65536 and above, infinities, NaNs
      rest = rest > 0x7F800000u ? 0x7E00u | ((rest >> 13) & 0x3FFu) : 0x7C00u;
    } else if (rest < 0x38800000u) {  // below the smallest normal
      const float shifted = std::bit_cast<float>(rest) + 0.5f;  // aligns the bits
      rest = std::bit_cast<std::uint32_t>(shifted) - 0x3F000000u;
    } else {
      rest = (rest - 0x38000000u + 0xFFFu + ((rest >> 13) & 1u)) >> 13;
    }
    bits = static_cast<std::uint16_t>(sign | rest);
  }
  explicit operator float() const {
    const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000u) << 16;
    const std::uint32_t rest = bits & 0x7FFFu;
    if (rest >= 0x7C00u) {
      return std::bit_cast<float>(sign | 0x7F800000u | ((rest & 0x3FFu) << 13));
    }
    if (rest >= 0x400u)
      return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
    const float magnitude = static_cast<float>(rest) * 0x1p-24f;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(magnitude));
  }
};

}  // namespace millstream
