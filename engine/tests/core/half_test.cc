#include "millstream/core/half.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace millstream {
namespace {

/// The parameters of a small float format: bits of fraction, the smallest normal
/// exponent, and the smallest magnitude that rounds to infinity.
struct Format {
  int fraction;
  int smallest;
  double overflow;
};
constexpr Format kHalf = {10, -14, 65520.0};
constexpr Format kBfloat16 = {7, -126, 0x1.FFp127};

/// `value` rounded to the format in exact arithmetic, ties to even.
double rounded(float value, const Format& format) {
  const double magnitude = std::fabs(static_cast<double>(value));
  if (std::isnan(value) || magnitude == 0) return static_cast<double>(value);
  if (magnitude >= format.overflow) return std::copysign(HUGE_VAL, value);
  const int exponent = std::max(std::ilogb(magnitude), format.smallest);
  const double quantum = std::ldexp(1.0, exponent - format.fraction);
  return std::copysign(std::nearbyint(magnitude / quantum) * quantum, value);
}

/// The value of the bits, by the definition of the IEEE formats.
double decoded(std::uint16_t bits, const Format& format) {
  const int fraction = bits & ((1 << format.fraction) - 1);
  const int exponents = 0x7FFF >> format.fraction;
  const int exponent = (bits >> format.fraction) & exponents;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == exponents) {
    return sign * (fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : HUGE_VAL);
  }
  const int lead = exponent == 0 ? 0 : 1 << format.fraction;
  const int scale = format.smallest - format.fraction + std::max(exponent, 1) - 1;
  return sign * std::ldexp(lead + fraction, scale);
}

template <typename Small>
void expect_rounds(float value, const Format& format) {
  const auto result = static_cast<double>(static_cast<float>(Small(value)));
  const double expected = rounded(value, format);
  if (std::isnan(expected)) {
    ASSERT_TRUE(std::isnan(result)) << std::bit_cast<std::uint32_t>(value);
  } else {
    ASSERT_EQ(result, expected) << std::hexfloat << value;
    ASSERT_EQ(std::signbit(result), std::signbit(expected)) << std::hexfloat << value;
  }
}

template <typename Small>
void expect_every_pattern_decodes(const Format& format) {
  for (std::uint32_t word = 0; word <= 0xFFFF; ++word) {
    Small value;
    value.bits = static_cast<std::uint16_t>(word);
    const double expected = decoded(value.bits, format);
    const auto result = static_cast<float>(value);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(result)) << word;
    } else {
      ASSERT_EQ(static_cast<double>(result), expected) << word;
      ASSERT_EQ(std::signbit(result), (word & 0x8000) != 0) << word;
    }
  }
}

template <typename Small>
void expect_every_pattern_returns(const Format& format) {
  const std::uint32_t quiet = 1u << (format.fraction - 1);
  for (std::uint32_t word = 0; word <= 0xFFFF; ++word) {
    Small value;
    value.bits = static_cast<std::uint16_t>(word);
    const auto wide = static_cast<float>(value);
    const std::uint32_t expected = std::isnan(wide) ? word | quiet : word;
    ASSERT_EQ(Small(wide).bits, expected) << word;
  }
}

template <typename Small>
void expect_ties_to_even(const Format& format) {
  const auto last =
      static_cast<std::uint16_t>((0x7FFF >> format.fraction) << format.fraction);
  for (std::uint16_t word = 0; word + 1 < last; ++word) {
    const double below = decoded(word, format);
    const double above = decoded(static_cast<std::uint16_t>(word + 1), format);
    const auto middle = static_cast<float>((below + above) / 2);
    ASSERT_EQ(static_cast<double>(middle), (below + above) / 2);
    const auto even = static_cast<std::uint16_t>(word + (word & 1));
    ASSERT_EQ(Small(middle).bits, even);
    ASSERT_EQ(Small(-middle).bits, even | 0x8000);
    ASSERT_EQ(Small(std::nextafter(middle, 0.0f)).bits, word);
    ASSERT_EQ(Small(std::nextafter(middle, HUGE_VALF)).bits, word + 1);
  }
}

template <typename Small>
void expect_rounds_across_all_floats(const Format& format) {
  for (std::uint64_t word = 0; word < (std::uint64_t{1} << 32); word += 8191) {
    expect_rounds<Small>(std::bit_cast<float>(static_cast<std::uint32_t>(word)),
                         format);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Half, EveryPatternDecodes) { expect_every_pattern_decodes<Half>(kHalf); }

TEST(Half, EveryPatternRoundTripsAndNansBecomeQuiet) {
  expect_every_pattern_returns<Half>(kHalf);
}

TEST(Half, TiesGoToEven) { expect_ties_to_even<Half>(kHalf); }

TEST(Half, RoundsAsTheReferenceAcrossAllFloats) {
  expect_rounds_across_all_floats<Half>(kHalf);
}

TEST(Half, OverflowsToInfinity) {
  EXPECT_EQ(Half(65504.0f).bits, 0x7BFF);
  EXPECT_EQ(Half(std::nextafter(65520.0f, 0.0f)).bits, 0x7BFF);
  EXPECT_EQ(Half(65520.0f).bits, 0x7C00);
  EXPECT_EQ(Half(-65520.0f).bits, 0xFC00);
  EXPECT_EQ(Half(65536.0f).bits, 0x7C00);
  EXPECT_EQ(Half(HUGE_VALF).bits, 0x7C00);
  EXPECT_EQ(Half(-HUGE_VALF).bits, 0xFC00);
}

TEST(Half, UnderflowsThroughSubnormalsToSignedZero) {
  EXPECT_EQ(Half(0x1p-14f).bits, 0x0400);
  EXPECT_EQ(Half(0x1p-24f).bits, 0x0001);
  EXPECT_EQ(Half(0x1p-25f).bits, 0x0000);
  EXPECT_EQ(Half(std::nextafter(0x1p-25f, 1.0f)).bits, 0x0001);
  EXPECT_EQ(Half(-0x1p-26f).bits, 0x8000);
  EXPECT_EQ(Half(std::numeric_limits<float>::denorm_min()).bits, 0x0000);
}

TEST(Half, NansKeepTheirSignAndTheTopOfTheirPayload) {
  EXPECT_EQ(Half(std::bit_cast<float>(0x7FC00000u)).bits, 0x7E00);
  EXPECT_EQ(Half(std::bit_cast<float>(0xFF802000u)).bits, 0xFE01);
  EXPECT_EQ(Half(std::bit_cast<float>(0x7F800001u)).bits, 0x7E00);
}

TEST(BFloat16, EveryPatternDecodes) {
  expect_every_pattern_decodes<BFloat16>(kBfloat16);
}

TEST(BFloat16, EveryPatternRoundTripsAndNansBecomeQuiet) {
  expect_every_pattern_returns<BFloat16>(kBfloat16);
}

TEST(BFloat16, TiesGoToEven) { expect_ties_to_even<BFloat16>(kBfloat16); }

TEST(BFloat16, RoundsAsTheReferenceAcrossAllFloats) {
  expect_rounds_across_all_floats<BFloat16>(kBfloat16);
}

TEST(BFloat16, OverflowsToInfinity) {
  EXPECT_EQ(BFloat16(0x1.FEp127f).bits, 0x7F7F);
  EXPECT_EQ(BFloat16(std::nextafter(0x1.FFp127f, 0.0f)).bits, 0x7F7F);
  EXPECT_EQ(BFloat16(0x1.FFp127f).bits, 0x7F80);
  EXPECT_EQ(BFloat16(-std::numeric_limits<float>::max()).bits, 0xFF80);
}

TEST(BFloat16, NansNeverRoundToInfinity) {
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0x7F800001u)).bits, 0x7FC0);
  EXPECT_EQ(BFloat16(std::bit_cast<float>(0xFFFFFFFFu)).bits, 0xFFFF);
}

}  // namespace
}  // namespace millstream
